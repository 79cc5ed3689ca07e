"""Attention layers of a config.json: spec, matrices and vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infer_jax.catalog.huggingface.facts import REQUIRED, Facts
from infer_jax.specs import (
    UNBOUNDED,
    Attention,
    Compressed,
    Feedforward,
    Format,
    GroupedQuery,
    Latent,
    Linear,
    Sparse,
)

INDEXED = 4  # tokens of an entry that an indexer chooses (DeepSeek-V4)


@dataclass(frozen=True)
class Piece:
    """One attention or feedforward layer as a checkpoint stores it.

    ``matrices`` maps the checkpoint's module names inside the layer to elements: what a
    quantisation may or may not convert. ``vectors`` counts biases, norms and sinks.
    ``shared`` are the shared experts of a mixture.
    """

    spec: Attention | Feedforward
    matrices: Mapping[str, int]
    vectors: int = 0
    shared: "Piece | None" = field(default=None)


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
    into = {
        "q_proj": queries * head * (2 if gate else 1),
        "k_proj": shared * head * (kv_matrices >= 1),
        "v_proj": shared * value * (kv_matrices == 2),
    }
    matrices = {f"{module}.{name}": width * rows for name, rows in into.items() if rows}
    matrices[f"{module}.o_proj"] = queries * value * width
    biases = qkv_bias * sum(into.values()) + output_bias * width
    spec = GroupedQuery.of(
        query_heads=queries,
        kv_heads=shared,
        head_width=head,
        value_width=value,
        window=window,
        query_gate=float(gate),
        kv_matrices=kv_matrices,
    )
    return Piece(spec, matrices, biases + vectors)


def latent(facts: Facts, width: int) -> Piece:
    """Multi-head latent attention with its two inner norms (DeepSeek-V2, arXiv 2405.04434)."""
    queries = facts.count("num_attention_heads")
    nope, rope = facts.count("qk_nope_head_dim"), facts.count("qk_rope_head_dim")
    value, rank = facts.count("v_head_dim"), facts.count("kv_lora_rank")
    # null means that queries are projected directly; transformers' own default is 1536
    query_rank = facts.count("q_lora_rank", default=0, low=0, silent=True)
    if "q_lora_rank" not in facts.values:
        raise facts.error("q_lora_rank", "missing", "a whole number, or null for none")
    bias = facts.flag("attention_bias", default=False)
    into: dict[str, int]
    if query_rank:
        into = {
            "q_a_proj": width * query_rank,
            "q_b_proj": query_rank * queries * (nope + rope),
        }
    else:
        into = {"q_proj": width * queries * (nope + rope)}
    into["kv_a_proj_with_mqa"] = width * (rank + rope)
    into["kv_b_proj"] = rank * queries * (nope + value)
    into["o_proj"] = queries * value * width
    spec = Latent.of(
        query_heads=queries,
        nope_width=nope,
        rope_width=rope,
        value_width=value,
        kv_rank=rank,
        query_rank=query_rank,
    )
    biases = bias * (query_rank + rank + rope + width)
    matrices = {f"self_attn.{name}": count for name, count in into.items()}
    return Piece(spec, matrices, query_rank + rank + biases)


def sparse(facts: Facts, base: Piece, width: int, full: bool = True) -> Piece:
    """The lightning indexer over ``base``; where not ``full`` the layer reuses the last top k.

    Index keys are cached in 8 bits with one float32 scale per key (132 bytes at width 128).
    Source: DeepSeek-V3.2 report (arXiv 2512.02556), Section 2.1, and its released kernels.
    """
    query_rank = facts.count("q_lora_rank")
    count, index = facts.count("index_n_heads"), facts.count("index_head_dim")
    top_k = facts.count("index_topk")
    into = {"wq_b": query_rank * count * index, "wk": width * index, "weights_proj": width * count}
    spec = Sparse.of(
        base=base.spec,
        top_k=top_k,
        index_heads=count if full else 0,
        index_width=index if full else 0,
        index_query_input=query_rank,
        index_cache=Format.of(bytes=1.0 + 4.0 / index, bits=8),
    )
    facts.note("index keys are cached in 8 bits whatever the format of the KV cache")
    if not full:
        return Piece(spec, base.matrices, base.vectors)
    indexer = {f"self_attn.indexer.{name}": elements for name, elements in into.items()}
    return Piece(spec, {**base.matrices, **indexer}, base.vectors + 2 * index)


def compressed(facts: Facts, ratio: int, window: int) -> Piece:
    """DeepSeek-V4's attention with ``ratio`` tokens an entry; 0: the window alone.

    Entries of 4 tokens overlap and an indexer chooses among them. The compressors' position biases
    and norms, and the sink of each head, are vectors. Index keys are counted in 16 bits.
    Source: transformers 5.10, models/deepseek_v4.
    """
    width, heads = facts.count("hidden_size"), facts.count("num_attention_heads")
    head, rank = facts.count("head_dim"), facts.count("q_lora_rank")
    groups, inner = facts.count("o_groups"), facts.count("o_lora_rank")
    facts.divided("num_attention_heads", heads, "o_groups", groups)
    indexed = ratio == INDEXED
    overlap = 2 if indexed else 1
    index_heads, index = facts.count("index_n_heads"), facts.count("index_head_dim")
    into = {
        "wq_a": width * rank,
        "wkv": width * head,
        "wq_b": rank * heads * head,
        "wo_a": heads * head * inner,
        "wo_b": groups * inner * width,
    }
    vectors = rank + head + heads
    if ratio:
        into |= {f"compressor.{name}": width * overlap * head for name in ("wkv", "wgate")}
        vectors += ratio * overlap * head + head
    if indexed:
        into |= {"indexer.wq_b": rank * index_heads * index, "indexer.weights": width * index_heads}
        into |= {f"indexer.{name}": width * overlap * index for name in ("wkv", "wgate")}
        vectors += ratio * overlap * index + index
    chooses = {"top_k": facts.count("index_topk"), "index_heads": index_heads, "index_width": index}
    spec = Compressed.of(
        query_heads=heads,
        head_width=head,
        query_rank=rank,
        output_groups=groups,
        output_rank=inner,
        window=window,
        ratio=ratio,
        overlap=overlap,
        **(chooses if indexed else {}),
    )
    return Piece(spec, {f"self_attn.{name}": count for name, count in into.items()}, vectors)


def gated_delta(facts: Facts, width: int) -> Piece:
    """Gated DeltaNet: convolution, delta rule, gated norm (arXiv 2412.06464)."""
    keys, values = facts.count("linear_num_key_heads"), facts.count("linear_num_value_heads")
    facts.divided("linear_num_value_heads", values, "linear_num_key_heads", keys)
    key, value = facts.count("linear_key_head_dim"), facts.count("linear_value_head_dim")
    taps = facts.count("linear_conv_kernel_dim")
    inner = 2 * keys * key + values * value
    spec = Linear.of(
        key_heads=keys,
        key_width=key,
        value_heads=values,
        value_width=value,
        conv_width=taps,
        head_gates=2,
        delta=1,
        state=_state(facts, "mamba_ssm_dtype"),
    )
    matrices = {
        "linear_attn.in_proj_qkv": width * inner,
        "linear_attn.in_proj_z": width * values * value,
        "linear_attn.in_proj_a": width * values,
        "linear_attn.in_proj_b": width * values,
        "linear_attn.conv1d": inner * taps,
        "linear_attn.out_proj": values * value * width,
    }
    return Piece(spec, matrices, 2 * values + value)  # decay, time-step bias, norm


def mamba(facts: Facts, width: int) -> Piece:
    """Mamba-2: one gate a head, no delta rule (arXiv 2405.21060)."""
    groups, count = facts.count("n_groups"), facts.count("mamba_num_heads")
    facts.divided("mamba_num_heads", count, "n_groups", groups)
    head, state = facts.count("mamba_head_dim"), facts.count("ssm_state_size")
    taps = facts.count("conv_kernel", default=4)
    inner, channels = count * head, count * head + 2 * groups * state
    spec = Linear.of(
        key_heads=groups,
        key_width=state,
        value_heads=count,
        value_width=head,
        conv_width=taps,
        head_gates=1,
        delta=0,
        state=_state(facts, "mamba_ssm_cache_dtype"),
    )
    projected = channels + inner + count
    matrices = {
        "mixer.in_proj": width * projected,
        "mixer.conv1d": channels * taps,
        "mixer.out_proj": inner * width,
    }
    vectors = 3 * count + inner  # decay, skip and time-step bias; gated norm
    vectors += facts.flag("use_conv_bias", default=True) * channels
    vectors += facts.flag("use_bias", default=False) * (projected + width)
    return Piece(spec, matrices, vectors)


def _state(facts: Facts, key: str) -> Format:
    dtype = facts.text(key, default="float32", allowed=("float32", "bfloat16", "float16"))
    return Format.of(bytes=4.0 if dtype == "float32" else 2.0, bits=16)
