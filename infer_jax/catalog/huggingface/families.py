"""Readers of the config.json of each family of decoders, a row a family.

Shapes and defaults are those of the family's modules in transformers 5.
"""

from collections.abc import Sequence
from functools import partial

from infer_jax.catalog.huggingface import feedforward as ff
from infer_jax.catalog.huggingface.attention import (
    INDEXED_RATIO,
    compressed,
    grouped_query,
    heads,
    latent,
    sparse,
)
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.catalog.huggingface.irregular import (
    falcon,
    gated_delta,
    gemma4,
    gpt2,
    kimi_delta,
    nemotron_h,
    nemotron_nas,
    opt,
    selective,
)
from infer_jax.catalog.huggingface.layers import (
    BOTH,
    FULL,
    Decoder,
    Family,
    Mixer,
    alternating,
    depth,
    family,
    full,
    full_unless_named,
    late_windows,
    next_tokens,
    periodic,
    windows,
)
from infer_jax.specs import UNBOUNDED

LINEAR, CHUNKED = "linear_attention", "chunked_attention"
RATIOS = {"compressed_sparse_attention": INDEXED_RATIO, "heavily_compressed_attention": 128}
# Gemma 3 by the defaults of transformers, which published configs leave out
GEMMA3 = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
}


def qk_norms(facts: Facts, shape: tuple[int, int, int]) -> int:
    """Norms of the queries and the keys of a head."""
    return 2 * shape[2]


def gemma3(facts: Facts) -> Decoder:
    """Gemma 3: five windows to one full layer, four norms, normed queries and keys."""
    missing = {key: value for key, value in GEMMA3.items() if key not in facts}
    if len(missing) == len(GEMMA3):
        raise facts.error("hidden_size", "missing", "a whole number")
    for key, value in missing.items():
        facts.note(f"{key} is missing: {value}, the default of transformers, is taken")
    facts = Facts({**facts.values, **missing}, facts.where, facts.prefix, facts.notes)

    def kinds(facts: Facts) -> list[float]:
        every = facts.count("sliding_window_pattern", default=6, silent=True)
        return windows(facts, periodic(facts, every))

    return family(kinds, norms=4, vectors=qk_norms, tied=True)(facts)


def minimax_drafts(facts: Facts) -> int:
    """Layers of all modules that draft."""
    if not facts.flag("use_mtp", default=False):
        return 0
    layers = facts.count("mtp_transformer_layers", default=1, low=0, silent=True)
    return layers * facts.count("num_mtp_modules", low=0)


def qwen3_next_kinds(facts: Facts) -> Sequence[str]:
    """Gated delta layers, full attention on every fourth."""
    kinds = facts.items("layer_types", length=depth(facts), allowed=(FULL, LINEAR))
    if kinds is None:
        every = facts.count("full_attention_interval", default=4)
        kinds = periodic(facts, every, LINEAR)
    return kinds


def qwen3_next_mixers(facts: Facts) -> Mixer:
    """Gated delta layers and gated attention with normed queries and keys."""
    width, shape = facts.count("hidden_size"), heads(facts, 256)
    bias = facts.flag("attention_bias", default=False)
    gate = facts.flag("attn_output_gate", default=True)
    norms = qk_norms(facts, shape)
    softmax = grouped_query(width, shape, gate=gate, qkv_bias=bias, output_bias=bias, vectors=norms)
    return {LINEAR: gated_delta(facts), FULL: softmax}.__getitem__


def qwen3_next_feedforward(facts: Facts) -> ff.ByLayer:
    """Qwen's experts beside a shared one, or none."""
    return ff.qwen(facts, shared=True) if "num_experts" in facts else ff.dense_layers(facts)


def llama4_kinds(facts: Facts) -> list[float]:
    """Windows of Llama 4: a query of a chunked layer sees its own chunk, taken as a window.

    The chunk is the most it sees.
    """
    kinds = facts.items("layer_types", length=depth(facts), allowed=(FULL, CHUNKED))
    if kinds is None:
        every = facts.count("no_rope_layer_interval", default=4, silent=True)
        kinds = periodic(facts, every, CHUNKED)
    chunk = facts.count("attention_chunk_size", default=UNBOUNDED, silent=True)
    if chunk < UNBOUNDED:
        facts.note(f"attention in chunks of {chunk} tokens is taken as a window of {chunk}")
    return [UNBOUNDED if kind == FULL else chunk for kind in kinds]


def mimo_kinds(facts: Facts) -> Sequence[int]:
    """1 where a layer slides, 0 where it does not."""
    flags = facts.items("hybrid_layer_pattern", length=depth(facts), allowed=(0, 1))
    if flags is None:
        allowed = f"a list of {depth(facts)}: 1 slides"
        raise facts.error("hybrid_layer_pattern", "missing", allowed)
    return flags


def mimo_mixers(facts: Facts) -> Mixer:
    """Windows with sinks and heads of their own, values narrower than keys."""
    width, shape = facts.count("hidden_size"), heads(facts)
    queries = facts.count("swa_num_attention_heads")
    shared = facts.count("swa_num_key_value_heads")
    facts.divided("swa_num_attention_heads", queries, "swa_num_key_value_heads", shared)
    sliding = (queries, shared, facts.count("swa_head_dim"))
    bias = facts.flag("attention_bias", default=False)
    return {
        0: grouped_query(
            width,
            shape,
            value_width=facts.count("v_head_dim"),
            qkv_bias=bias,
            vectors=shape[0] * facts.flag("add_full_attention_sink_bias", default=False),
        ),
        1: grouped_query(
            width,
            sliding,
            value_width=facts.count("swa_v_head_dim"),
            window=facts.count("sliding_window", "sliding_window_size"),
            qkv_bias=bias,
            vectors=queries * facts.flag("add_swa_attention_sink_bias", default=True),
        ),
    }.__getitem__


def jamba_kinds(facts: Facts) -> list[bool]:
    """Whether a layer is attention, as every ``attn_layer_period``-th is, or the first Mamba."""
    period = facts.count("attn_layer_period", default=8)
    offset = facts.count("attn_layer_offset", default=4, low=0)
    return [i % period == offset for i in range(depth(facts))]


def jamba_mixers(facts: Facts) -> Mixer:
    """Attention, and selective state spaces."""
    softmax = grouped_query(facts.count("hidden_size"), heads(facts))
    return {True: softmax, False: selective(facts)}.__getitem__


def latent_mixer(facts: Facts) -> Mixer:
    """One latent attention for every layer."""
    piece = latent(facts)
    return lambda window: piece


def indexer_kinds(facts: Facts) -> Sequence[str]:
    """Layers with an indexer of their own, and those that reuse the choice of an earlier one."""
    kinds = facts.items("indexer_types", length=depth(facts), allowed=("full", "shared"))
    return ["full"] * depth(facts) if kinds is None else kinds


def sparse_mixers(facts: Facts) -> Mixer:
    """Latent attention over the tokens that an indexer chose."""
    base = latent(facts)
    return lambda kind: sparse(facts, base, kind == "full")


def compression_ratios(facts: Facts) -> Sequence[int]:
    """Tokens of an entry by layer, of ``compress_ratios`` or by the kinds in ``layer_types``."""
    layers = depth(facts)
    ratios = facts.items("compress_ratios", allowed=(0, *RATIOS.values()))
    if ratios is None:
        kinds = facts.items("layer_types", length=layers, allowed=("sliding_attention", *RATIOS))
        if kinds is None:
            raise facts.error("compress_ratios", "missing", "compress_ratios, or layer_types")
        ratios = [RATIOS.get(kind, 0) for kind in kinds]
    if len(ratios) < layers:
        raise facts.error("compress_ratios", f"{len(ratios)} items", f"one a layer: {layers}")
    return ratios[:layers]


def residual_streams(facts: Facts) -> int:
    """Numbers that mix the ``hc_mult`` residual streams of DeepSeek-V4 (mHC) around a layer.

    Each of both sublayers mixes n streams by a matrix of (2 + n) n x n d numbers.
    """
    streams = facts.count("hc_mult", default=4)
    mixing = (2 + streams) * streams
    facts.note("the traffic of the residual streams (mHC) is not counted")
    return 2 * (mixing * streams * facts.count("hidden_size") + mixing + 3)


def _delta_config(facts: Facts) -> Facts:
    return facts.of("linear_attn_config", facts.values.get("linear_attn_config"))


def kimi_linear_kinds(facts: Facts) -> list[bool]:
    """Whether a layer is latent attention; layers are numbered from 1.

    Raises:
        InputError: layers that are neither or both.
    """
    own, every = _delta_config(facts), range(1, depth(facts) + 1)
    latent_layers = own.items("full_attn_layers", allowed=range(every.stop)) or []
    linear = own.items("kda_layers", allowed=range(every.stop)) or []
    if sorted([*latent_layers, *linear]) != [*every]:
        raise own.error("kda_layers", linear, f"all of 1 to {every[-1]} but full_attn_layers")
    return [i in latent_layers for i in every]


def kimi_linear_mixers(facts: Facts) -> Mixer:
    """Latent attention, and Kimi delta attention.

    Shapes and keys are those of configuration_kimi.py and modeling_kimi.py beside the checkpoint
    (huggingface.co/moonshotai/Kimi-Linear-48B-A3B-Instruct).
    """
    return {True: latent(facts), False: kimi_delta(facts, _delta_config(facts))}.__getitem__


# readers by the ``model_type`` of their configs
READERS: dict[str, Family] = {
    "deepseek_v2": family(full, latent_mixer, partial(ff.deepseek, correction=False)),
    "deepseek_v3 kimi_k2 kimi_k25": family(full, latent_mixer, ff.deepseek, drafts=next_tokens),
    "deepseek_v32 glm_moe_dsa": family(
        indexer_kinds, sparse_mixers, ff.deepseek, drafts=next_tokens
    ),
    "deepseek_v4": family(
        compression_ratios,
        lambda facts: partial(compressed, facts),
        lambda facts: ff.routed(facts, ff.fine_grained(facts)),
        more_norms=residual_streams,
        drafts=next_tokens,
    ),
    "falcon": falcon,
    "gemma": family(full_unless_named, head=256, tied=True),
    "gemma2": family(alternating, head=256, norms=4, tied=True),
    "gemma3 gemma3_text": gemma3,
    "gemma4 gemma4_text": gemma4,
    "glm4": family(full, biased=("qkv",), bias=True, head=128, norms=4),
    "glm4_moe": family(
        full,
        feedforward=ff.deepseek,
        drafts=next_tokens,
        biased=("qkv",),
        bias=False,
        vectors=lambda facts, n: qk_norms(facts, n) * facts.flag("use_qk_norm", default=False),
    ),
    "gpt2": gpt2,
    "gpt_oss": family(  # a sink for each query head
        alternating, feedforward=ff.gpt_oss, biased=BOTH, bias=True, head=64,
        vectors=lambda facts, n: n[0],
    ),
    "jamba": family(jamba_kinds, jamba_mixers, ff.jamba),
    "kimi_linear": family(
        kimi_linear_kinds,
        kimi_linear_mixers,
        partial(ff.deepseek, module="block_sparse_moe"),
        drafts=next_tokens,
    ),
    "llama": family(
        full_unless_named, feedforward=partial(ff.dense_layers, biased=True), grouped=False,
        biased=BOTH, bias=False,
    ),
    "llama4 llama4_text": family(llama4_kinds, feedforward=ff.llama4, biased=BOTH, bias=False),
    "mimo": family(late_windows, biased=("qkv",), bias=True, drafts=next_tokens),
    "mimo_v2_flash": family(mimo_kinds, mimo_mixers, ff.deepseek),
    "minimax_m2": family(  # queries and keys are normed over all heads at once
        full,
        feedforward=ff.minimax,
        drafts=minimax_drafts,
        head=128,
        vectors=lambda facts, n: (n[0] + n[1]) * n[2] * facts.flag("use_qk_norm", default=True),
    ),
    "mistral ministral3 mistral3": family(windows),  # on every layer where one is given
    "mixtral": family(windows, feedforward=ff.mixtral),
    "nemotron-nas": nemotron_nas,
    "nemotron_h": nemotron_h,
    "opt": opt,
    # one key-value head, one norm (Chowdhery et al. 2022, arXiv 2204.02311, Section 2); it has no
    # config.json of its own: the keys are those of transformers
    "palm": family(full, norms=1, tied=True, parallel=True),
    "phi3": family(windows, grouped=False),  # fused matrices, equal elements
    "qwen2": family(late_windows, biased=("qkv",)),
    "qwen2_moe": family(
        late_windows, feedforward=partial(ff.qwen, shared=True), biased=("qkv",), bias=True,
        bias_key="qkv_bias",
    ),
    "qwen3 qwen3_vl qwen3_vl_text": family(
        late_windows, biased=BOTH, bias=False, head=128, vectors=qk_norms
    ),
    "qwen3_moe qwen3_vl_moe qwen3_vl_moe_text": family(
        late_windows, feedforward=partial(ff.qwen, shared=False), biased=BOTH, bias=False,
        vectors=qk_norms,
    ),
    "qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text": family(
        qwen3_next_kinds,
        qwen3_next_mixers,
        qwen3_next_feedforward,
        drafts=lambda facts: facts.count("mtp_num_hidden_layers", default=0, low=0, silent=True),
    ),
}  # fmt: skip
FAMILIES = {name: read for names, read in READERS.items() for name in names.split()}
