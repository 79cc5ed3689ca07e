"""Attention layers of a config.json, softmax and linear: spec, matrices and vectors.

Shapes and defaults are those of the modules in transformers 5.
"""

import math
from dataclasses import replace

from infer_jax.catalog.huggingface.facts import REQUIRED, Facts
from infer_jax.catalog.huggingface.layers import Piece
from infer_jax.specs import (
    UNBOUNDED,
    Compressed,
    Format,
    GroupedQuery,
    KimiDelta,
    Latent,
    Linear,
    Sparse,
    StateSpace,
)

# numbers of a spec by their keys
LATENT = {
    "query_heads": "num_attention_heads",
    "nope_width": "qk_nope_head_dim",
    "rope_width": "qk_rope_head_dim",
    "value_width": "v_head_dim",
    "kv_rank": "kv_lora_rank",
}
COMPRESSED = {
    "query_heads": "num_attention_heads",
    "head_width": "head_dim",
    "query_rank": "q_lora_rank",
    "output_groups": "o_groups",
    "output_rank": "o_lora_rank",
}
INDEXER = {"top_k": "index_topk", "index_heads": "index_n_heads", "index_width": "index_head_dim"}
POOL = ("wkv", "wgate")  # matrices that pool tokens into an entry
RECURRENT = {
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_width": "linear_key_head_dim",
    "value_width": "linear_value_head_dim",
    "conv_width": "linear_conv_kernel_dim",
}
MAMBA = {
    "key_heads": "n_groups",
    "value_heads": "mamba_num_heads",
    "value_width": "mamba_head_dim",
    "key_width": "ssm_state_size",
}
INDEXED_RATIO = 4  # tokens of an entry that an indexer chooses (DeepSeek-V4)


def heads(facts: Facts, width: int = REQUIRED, grouped: bool = True) -> tuple[int, int, int]:
    """Query heads, key-value heads and the width of a head.

    A missing ``head_dim`` is ``width``, the family's default, or else ``hidden_size`` over the
    query heads. ``num_key_value_heads`` may be null, or missing where not ``grouped``: as many
    as query heads then.

    Raises:
        InputError: heads that do not divide, or a missing key.
    """
    queries = facts.count("num_attention_heads")
    shared = queries
    if "num_key_value_heads" in facts or (grouped and "num_key_value_heads" not in facts.values):
        shared = facts.count("num_key_value_heads")
    facts.divided("num_attention_heads", queries, "num_key_value_heads", shared)
    if "head_dim" in facts or width is not REQUIRED:
        return queries, shared, facts.count("head_dim", default=width)
    model = facts.count("hidden_size")
    return queries, shared, facts.divided("hidden_size", model, "num_attention_heads", queries)


def grouped_query(
    width: int,
    shape: tuple[int, int, int],
    *,
    value_width: int | None = None,
    window: float = UNBOUNDED,
    gate: bool = False,
    kv_matrices: int = 2,
    qkv_bias: bool = False,
    output_bias: bool = False,
    vectors: int = 0,
    module: str = "self_attn",
) -> Piece:
    """Softmax attention of ``shape`` (query heads, key-value heads, head width)."""
    queries, shared, head = shape
    value = head if value_width is None else value_width
    rows = {
        "q_proj": queries * head * (2 if gate else 1),
        "k_proj": shared * head * (kv_matrices >= 1),
        "v_proj": shared * value * (kv_matrices == 2),
    }
    sizes = {name: width * count for name, count in rows.items()}
    biases = qkv_bias * sum(rows.values()) + output_bias * width
    spec = GroupedQuery.of(
        query_heads=queries,
        kv_heads=shared,
        head_width=head,
        value_width=value,
        window=window,
        query_gate=float(gate),
        kv_matrices=kv_matrices,
    )
    return Piece(spec, module, sizes | {"o_proj": queries * value * width}, biases + vectors)


def latent(facts: Facts) -> Piece:
    """Multi-head latent attention with its two inner norms (DeepSeek-V2, arXiv 2405.04434)."""
    width, n = facts.count("hidden_size"), facts.counts(LATENT)
    # null means that queries are projected directly; transformers' own default is 1536
    query_rank = facts.count("q_lora_rank", default=0, low=0, silent=True)
    if "q_lora_rank" not in facts.values:
        raise facts.error("q_lora_rank", "missing", "a whole number, or null for none")
    bias = facts.flag("attention_bias", default=False)
    rows = n.query_heads * (n.nope_width + n.rope_width)
    sizes = {"q_proj": width * rows}
    if query_rank:
        sizes = {"q_a_proj": width * query_rank, "q_b_proj": query_rank * rows}
    sizes |= {
        "kv_a_proj_with_mqa": width * (n.kv_rank + n.rope_width),
        "kv_b_proj": n.kv_rank * n.query_heads * (n.nope_width + n.value_width),
        "o_proj": n.query_heads * n.value_width * width,
    }
    biases = bias * (query_rank + n.kv_rank + n.rope_width + width)
    spec = Latent.of(**vars(n), query_rank=query_rank)
    return Piece(spec, "self_attn", sizes, query_rank + n.kv_rank + biases)


def sparse(facts: Facts, base: Piece, full: bool = True) -> Piece:
    """The lightning indexer over ``base``; where not ``full`` the layer reuses the last top k.

    Index keys are cached in 8 bits with one float32 scale per key (132 bytes at width 128).
    Source: DeepSeek-V3.2 report (arXiv 2512.02556), Section 2.1, and its released kernels.
    """
    width, query_rank = facts.count("hidden_size"), facts.count("q_lora_rank")
    n = facts.counts(INDEXER)
    spec = Sparse.of(
        base=base.spec,
        top_k=n.top_k,
        index_heads=n.index_heads if full else 0,
        index_width=n.index_width if full else 0,
        index_query_input=query_rank,
        index_cache=Format.of(bytes=1.0 + 4.0 / n.index_width, bits=8),
    )
    facts.note("index keys are cached in 8 bits whatever the format of the KV cache")
    if not full:
        return replace(base, spec=spec)
    sizes = {
        "indexer.wq_b": query_rank * n.index_heads * n.index_width,
        "indexer.wk": width * n.index_width,
        "indexer.weights_proj": width * n.index_heads,
    }
    return Piece(spec, base.module, {**base.matrices, **sizes}, base.vectors + 2 * n.index_width)


def compressed(facts: Facts, ratio: int) -> Piece:
    """DeepSeek-V4's attention with ``ratio`` tokens an entry; 0: the window alone.

    Entries of 4 tokens overlap and an indexer chooses among them. The compressors' position biases
    and norms, and the sink of each head, are vectors. Index keys are counted in 16 bits.
    Source: transformers 5.10, models/deepseek_v4.
    """
    width, n, index = facts.count("hidden_size"), facts.counts(COMPRESSED), facts.counts(INDEXER)
    facts.divided("num_attention_heads", n.query_heads, "o_groups", n.output_groups)
    indexed = ratio == INDEXED_RATIO
    overlap = 2 if indexed else 1
    sizes = {
        "wq_a": width * n.query_rank,
        "wkv": width * n.head_width,
        "wq_b": n.query_rank * n.query_heads * n.head_width,
        "wo_a": n.query_heads * n.head_width * n.output_rank,
        "wo_b": n.output_groups * n.output_rank * width,
    }
    vectors = n.query_rank + n.head_width + n.query_heads
    if ratio:
        sizes |= {f"compressor.{name}": width * overlap * n.head_width for name in POOL}
        vectors += ratio * overlap * n.head_width + n.head_width
    if indexed:
        head = index.index_width
        sizes["indexer.wq_b"] = n.query_rank * index.index_heads * head
        sizes["indexer.weights"] = width * index.index_heads
        sizes |= {f"indexer.{name}": width * overlap * head for name in POOL}
        vectors += ratio * overlap * head + head
    spec = Compressed.of(
        **vars(n),
        window=facts.count("sliding_window"),
        ratio=ratio,
        overlap=overlap,
        **(vars(index) if indexed else {}),
    )
    return Piece(spec, "self_attn", sizes, vectors)


def gated_delta(facts: Facts) -> Piece:
    """Gated DeltaNet: convolution, delta rule, gated norm (arXiv 2412.06464)."""
    width, n = facts.count("hidden_size"), facts.counts(RECURRENT)
    facts.divided("linear_num_value_heads", n.value_heads, "linear_num_key_heads", n.key_heads)
    values = n.value_heads * n.value_width
    inner = 2 * n.key_heads * n.key_width + values
    sizes = {
        "in_proj_qkv": width * inner,
        "in_proj_z": width * values,
        "in_proj_a": width * n.value_heads,
        "in_proj_b": width * n.value_heads,
        "conv1d": inner * n.conv_width,
        "out_proj": values * width,
    }
    state = _state(facts, "mamba_ssm_dtype")
    spec = Linear.of(**vars(n), head_gates=2, delta=1, state=state)
    # decay, time-step bias, norm
    return Piece(spec, "linear_attn", sizes, 2 * n.value_heads + n.value_width)


def mamba(facts: Facts) -> Piece:
    """Mamba-2: one gate a head, no delta rule (arXiv 2405.21060)."""
    width, n = facts.count("hidden_size"), facts.counts(MAMBA)
    facts.divided("mamba_num_heads", n.value_heads, "n_groups", n.key_heads)
    taps = facts.count("conv_kernel", default=4)
    inner = n.value_heads * n.value_width
    channels = inner + 2 * n.key_heads * n.key_width
    projected = channels + inner + n.value_heads
    sizes = {"in_proj": width * projected, "conv1d": channels * taps, "out_proj": inner * width}
    state = _state(facts, "mamba_ssm_cache_dtype")
    spec = Linear.of(**vars(n), conv_width=taps, head_gates=1, delta=0, state=state)
    vectors = 3 * n.value_heads + inner  # decay, skip and time-step bias; gated norm
    vectors += facts.flag("use_conv_bias", default=True) * channels
    vectors += facts.flag("use_bias", default=False) * (projected + width)
    return Piece(spec, "mixer", sizes, vectors)


def _state(facts: Facts, key: str) -> Format:
    dtype = facts.text(key, default="float32", allowed=("float32", "bfloat16", "float16"))
    return Format.of(bytes=4.0 if dtype == "float32" else 2.0, bits=16)


def selective(facts: Facts) -> Piece:
    """The first Mamba with norms of step, B and C; A, which is not multiplied, is a vector.

    States are kept in the format of activations, vLLM's default.
    """
    width = facts.count("hidden_size")
    channels = width * facts.count("mamba_expand", default=2)
    state, taps = facts.count("mamba_d_state", default=16), facts.count("mamba_d_conv", default=4)
    rank = math.ceil(width / 16)
    if facts.values.get("mamba_dt_rank") != "auto":
        rank = facts.count("mamba_dt_rank", default=rank)
    sizes = {
        "in_proj": width * 2 * channels,
        "conv1d": channels * taps,
        "x_proj": channels * (rank + 2 * state),
        "dt_proj": rank * channels,
        "out_proj": channels * width,
    }
    vectors = channels * state + 2 * channels + rank + 2 * state  # A, skip and step bias, norms
    vectors += facts.flag("mamba_conv_bias", default=True) * channels
    vectors += facts.flag("mamba_proj_bias", default=False) * (2 * channels + width)
    spec = StateSpace.of(channels=channels, state_width=state, step_rank=rank, conv_width=taps)
    return Piece(spec, "mamba", sizes, vectors)


def kimi_delta(facts: Facts, own: Facts) -> Piece:
    """Kimi delta attention; decays and gates are projected through the width of a head.

    ``own``: the ``linear_attn_config`` of the file.
    """
    width = facts.count("hidden_size")
    count, head = own.count("num_heads"), own.count("head_dim")
    taps, inner = own.count("short_conv_kernel_size"), count * head
    sizes = {f"{name}_proj": width * inner for name in "qkvo"} | {"b_proj": width * count}
    sizes |= {f"{name}_a_proj": width * head for name in "fg"}
    sizes |= {f"{name}_b_proj": head * inner for name in "fg"}
    sizes |= {f"{name}_conv1d": inner * taps for name in "qkv"}
    spec = KimiDelta.of(heads=count, head_width=head, gate_rank=head, conv_width=taps)
    vectors = count + inner + head  # decay of a head, bias of the decays, norm of the outputs
    return Piece(spec, "self_attn", sizes, vectors)
