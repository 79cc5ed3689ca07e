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
    Sparse,
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
INDEXED_RATIO = 4  # tokens of an entry that an indexer chooses (DeepSeek-V4)


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


def below(module: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Elements by the full names of the matrices of a module."""
    return {f"{module}.{name}": size for name, size in sizes.items() if size}


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
    matrices = below(module, sizes | {"o_proj": queries * value * width})
    return Piece(spec, matrices, biases + vectors)


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
    return Piece(spec, below("self_attn", sizes), query_rank + n.kv_rank + biases)


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
        return Piece(spec, base.matrices, base.vectors)
    sizes = {
        "wq_b": query_rank * n.index_heads * n.index_width,
        "wk": width * n.index_width,
        "weights_proj": width * n.index_heads,
    }
    matrices = {**base.matrices, **below("self_attn.indexer", sizes)}
    return Piece(spec, matrices, base.vectors + 2 * n.index_width)


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
    return Piece(spec, below("self_attn", sizes), vectors)
