"""Readers of the config.json of each family of decoders, a row a family.

Shapes and defaults are those of the family's modules in transformers 5.
"""

from collections.abc import Callable, Sequence
from functools import partial

from infer_jax.catalog.huggingface import feedforward as ff
from infer_jax.catalog.huggingface.attention import (
    INDEXED_RATIO,
    compressed,
    gated_delta,
    grouped_query,
    heads,
    kimi_delta,
    latent,
    selective,
    sparse,
)
from infer_jax.catalog.huggingface.facts import REQUIRED, Facts
from infer_jax.catalog.huggingface.irregular import (
    falcon,
    gemma4,
    gpt2,
    nemotron_h,
    nemotron_nas,
    opt,
)
from infer_jax.catalog.huggingface.layers import (
    FULL,
    SLIDING,
    Decoder,
    Piece,
    alternating,
    decoder,
    depth,
    full,
    full_unless_named,
    late_windows,
    next_tokens,
    periodic,
    windows,
)
from infer_jax.specs import UNBOUNDED

LINEAR, CHUNKED = "linear_attention", "chunked_attention"
BOTH = ("qkv", "output")  # projections that may have biases
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
Shape = tuple[int, int, int]  # query heads, key-value heads, the width of a head
Family = Callable[[Facts], Decoder]  # how the configs of one model_type are read


def family(
    kinds: Callable[[Facts], Sequence[float]] = full,
    feedforward: Callable[[Facts], list[Piece]] = ff.dense_layers,
    *,
    head: int = REQUIRED,
    grouped: bool = True,
    biased: Sequence[str] = (),
    bias: bool | None = None,
    bias_key: str = "attention_bias",
    vectors: Callable[[Facts, Shape], int] = lambda facts, shape: 0,
    drafts: Callable[[Facts], int] = lambda facts: 0,
    norms: int = 2,
    tied: bool = False,
    parallel: bool = False,
) -> Family:
    """The reader of a family whose layers are softmax attention and feedforward.

    ``kinds``: the window of every layer; ``head``: the width of a head that is not given;
    ``biased``: which of the projections ``BOTH`` have biases, if ``bias_key`` says so, of which
    ``bias`` is the default (None: it is not read); ``vectors``: numbers of norms and sinks, of a
    shape; ``norms``: those of a layer.
    """

    def read(facts: Facts) -> Decoder:
        order = kinds(facts)
        width, shape = facts.count("hidden_size"), heads(facts, head, grouped)
        has_bias = True if bias is None else facts.flag(bias_key, default=bias)
        others = vectors(facts, shape)
        by_window = {
            window: grouped_query(
                width,
                shape,
                window=window,
                qkv_bias=has_bias and "qkv" in biased,
                output_bias=has_bias and "output" in biased,
                vectors=others,
            )
            for window in dict.fromkeys(order)
        }
        mixers, shared = [by_window[window] for window in order], feedforward(facts)
        options = {"tied": tied, "parallel": parallel, "drafts": drafts(facts)}
        return decoder(facts, mixers, shared, norms=norms, **options)

    return read


def qk_norms(facts: Facts, shape: Shape) -> int:
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


def qwen3_next(facts: Facts) -> Decoder:
    """Gated delta layers, gated attention with normed queries and keys on every fourth.

    Qwen's experts beside a shared one, or none.
    """
    kinds = facts.items("layer_types", length=depth(facts), allowed=(FULL, LINEAR))
    if kinds is None:
        kinds = periodic(facts, facts.count("full_attention_interval", default=4), LINEAR)
    width, shape = facts.count("hidden_size"), heads(facts, 256)
    bias = facts.flag("attention_bias", default=False)
    gate = facts.flag("attn_output_gate", default=True)
    norms = qk_norms(facts, shape)
    softmax = grouped_query(width, shape, gate=gate, qkv_bias=bias, output_bias=bias, vectors=norms)
    by_kind = {LINEAR: gated_delta(facts), FULL: softmax}
    mlp = ff.qwen(facts, shared=True) if "num_experts" in facts else ff.dense_layers(facts)
    drafts = facts.count("mtp_num_hidden_layers", default=0, low=0, silent=True)
    return decoder(facts, [by_kind[kind] for kind in kinds], mlp, drafts=drafts)


def llama4_windows(facts: Facts) -> list[float]:
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


def mimo_v2(facts: Facts) -> Decoder:
    """Windows with sinks and heads of their own, values narrower than keys; 1 slides."""
    layers = depth(facts)
    slides = facts.items("hybrid_layer_pattern", length=layers, allowed=(0, 1))
    if slides is None:
        raise facts.error("hybrid_layer_pattern", "missing", f"a list of {layers}: 1 slides")
    width, shape = facts.count("hidden_size"), heads(facts)
    queries = facts.count("swa_num_attention_heads")
    shared = facts.count("swa_num_key_value_heads")
    facts.divided("swa_num_attention_heads", queries, "swa_num_key_value_heads", shared)
    bias = facts.flag("attention_bias", default=False)
    full_layer = grouped_query(
        width,
        shape,
        value_width=facts.count("v_head_dim"),
        qkv_bias=bias,
        vectors=shape[0] * facts.flag("add_full_attention_sink_bias", default=False),
    )
    sliding = grouped_query(
        width,
        (queries, shared, facts.count("swa_head_dim")),
        value_width=facts.count("swa_v_head_dim"),
        window=facts.count("sliding_window", "sliding_window_size"),
        qkv_bias=bias,
        vectors=queries * facts.flag("add_swa_attention_sink_bias", default=True),
    )
    return decoder(facts, [sliding if x else full_layer for x in slides], ff.deepseek(facts))


def jamba(facts: Facts) -> Decoder:
    """Attention on every ``attn_layer_period``-th layer, selective state spaces on the others."""
    period = facts.count("attn_layer_period", default=8)
    offset = facts.count("attn_layer_offset", default=4, low=0)
    layers = range(depth(facts))
    softmax, mamba = grouped_query(facts.count("hidden_size"), heads(facts)), selective(facts)
    mixers = [softmax if i % period == offset else mamba for i in layers]
    return decoder(facts, mixers, ff.jamba(facts))


def deepseek(facts: Facts, correction: bool = True, drafting: bool = True) -> Decoder:
    """Latent attention on every layer, experts after the first ones.

    ``correction``: a bias balances the load of experts; ``drafting``: layers may draft.
    """
    mixers = [latent(facts)] * depth(facts)
    drafts = next_tokens(facts) if drafting else 0
    return decoder(facts, mixers, ff.deepseek(facts, correction), drafts=drafts)


def deepseek_sparse(facts: Facts) -> Decoder:
    """Latent attention over the tokens that an indexer chose, the layer's own or an earlier one."""
    kinds = facts.items("indexer_types", length=depth(facts), allowed=("full", "shared"))
    kinds = ["full"] * depth(facts) if kinds is None else kinds
    base = latent(facts)
    by_kind = {kind: sparse(facts, base, kind == "full") for kind in dict.fromkeys(kinds)}
    drafts = next_tokens(facts)
    return decoder(facts, [by_kind[kind] for kind in kinds], ff.deepseek(facts), drafts=drafts)


def deepseek_v4(facts: Facts) -> Decoder:
    """Entries of several tokens, of ``compress_ratios`` or by the kinds in ``layer_types``.

    Around a layer ``hc_mult`` residual streams are mixed (mHC): each of both sublayers mixes n
    streams by a matrix of (2 + n) n x n d numbers.
    """
    layers = depth(facts)
    ratios = facts.items("compress_ratios", allowed=(0, *RATIOS.values()))
    if ratios is None:
        kinds = facts.items("layer_types", length=layers, allowed=(SLIDING, *RATIOS))
        if kinds is None:
            raise facts.error("compress_ratios", "missing", "compress_ratios, or layer_types")
        ratios = [RATIOS.get(kind, 0) for kind in kinds]
    if len(ratios) < layers:
        raise facts.error("compress_ratios", f"{len(ratios)} items", f"one a layer: {layers}")
    by_ratio = {ratio: compressed(facts, ratio) for ratio in dict.fromkeys(ratios[:layers])}
    mixers, mixture = [by_ratio[ratio] for ratio in ratios[:layers]], ff.fine_grained(facts)
    streams = facts.count("hc_mult", default=4)
    mixing = (2 + streams) * streams
    mixed = 2 * (mixing * streams * facts.count("hidden_size") + mixing + 3)
    facts.note("the traffic of the residual streams (mHC) is not counted")
    drafts = next_tokens(facts)
    return decoder(facts, mixers, [mixture] * layers, more_norms=mixed, drafts=drafts)


def kimi_linear(facts: Facts) -> Decoder:
    """Latent attention, and Kimi delta attention; layers are numbered from 1.

    Shapes and keys are those of configuration_kimi.py and modeling_kimi.py beside the checkpoint
    (huggingface.co/moonshotai/Kimi-Linear-48B-A3B-Instruct).

    Raises:
        InputError: layers that are neither or both.
    """
    own = facts.of("linear_attn_config", facts.values.get("linear_attn_config"))
    every = range(1, depth(facts) + 1)
    latent_layers = own.items("full_attn_layers", allowed=range(every.stop)) or []
    linear = own.items("kda_layers", allowed=range(every.stop)) or []
    if sorted([*latent_layers, *linear]) != [*every]:
        raise own.error("kda_layers", linear, f"all of 1 to {every[-1]} but full_attn_layers")
    by_kind = {True: latent(facts), False: kimi_delta(facts, own)}
    mixers = [by_kind[i in latent_layers] for i in every]
    mlp = ff.deepseek(facts, module="block_sparse_moe")
    return decoder(facts, mixers, mlp, drafts=next_tokens(facts))


# readers by the ``model_type`` of their configs
READERS: dict[str, Family] = {
    "deepseek_v2": partial(deepseek, correction=False, drafting=False),
    "deepseek_v3 kimi_k2 kimi_k25": deepseek,
    "deepseek_v32 glm_moe_dsa": deepseek_sparse,
    "deepseek_v4": deepseek_v4,
    "falcon": falcon,
    "gemma": family(full_unless_named, head=256, tied=True),
    "gemma2": family(alternating, head=256, norms=4, tied=True),
    "gemma3 gemma3_text": gemma3,
    "gemma4 gemma4_text": gemma4,
    "glm4": family(biased=("qkv",), bias=True, head=128, norms=4),
    "glm4_moe": family(
        feedforward=ff.deepseek,
        drafts=next_tokens,
        biased=("qkv",),
        bias=False,
        vectors=lambda facts, n: qk_norms(facts, n) * facts.flag("use_qk_norm", default=False),
    ),
    "gpt2": gpt2,
    "gpt_oss": family(  # a sink for each query head
        alternating, ff.gpt_oss, biased=BOTH, bias=True, head=64, vectors=lambda facts, n: n[0]
    ),
    "jamba": jamba,
    "kimi_linear": kimi_linear,
    "llama": family(
        full_unless_named, partial(ff.dense_layers, biased=True), grouped=False, biased=BOTH,
        bias=False,
    ),
    "llama4 llama4_text": family(llama4_windows, ff.llama4, biased=BOTH, bias=False),
    "mimo": family(late_windows, biased=("qkv",), bias=True, drafts=next_tokens),
    "mimo_v2_flash": mimo_v2,
    "minimax_m2": family(  # queries and keys are normed over all heads at once
        feedforward=ff.minimax,
        drafts=minimax_drafts,
        head=128,
        vectors=lambda facts, n: (n[0] + n[1]) * n[2] * facts.flag("use_qk_norm", default=True),
    ),
    "mistral ministral3 mistral3": family(windows),  # on every layer where one is given
    "mixtral": family(windows, ff.mixtral),
    "nemotron-nas": nemotron_nas,
    "nemotron_h": nemotron_h,
    "opt": opt,
    # one key-value head, one norm (Chowdhery et al. 2022, arXiv 2204.02311, Section 2); it has no
    # config.json of its own: the keys are those of transformers
    "palm": family(norms=1, tied=True, parallel=True),
    "phi3": family(windows, grouped=False),  # fused matrices, equal elements
    "qwen2": family(late_windows, biased=("qkv",)),
    "qwen2_moe": family(
        late_windows, partial(ff.qwen, shared=True), biased=("qkv",), bias=True,
        bias_key="qkv_bias",
    ),
    "qwen3 qwen3_vl qwen3_vl_text": family(
        late_windows, biased=BOTH, bias=False, head=128, vectors=qk_norms
    ),
    "qwen3_moe qwen3_vl_moe qwen3_vl_moe_text": family(
        late_windows, partial(ff.qwen, shared=False), biased=BOTH, bias=False, vectors=qk_norms
    ),
    "qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text": qwen3_next,
}  # fmt: skip
FAMILIES = {name: read for names, read in READERS.items() for name in names.split()}
