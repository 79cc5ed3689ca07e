"""What does one attention layer hold, read and compute, for each kind of attention?

All figures are of one layer; of one sequence where a context enters. Contexts are in tokens.
"""

import jax.numpy as jnp
from jax import Array, lax

from infer_jax.physics.matmul import Matrix
from infer_jax.specs import Attention, Format, GroupedQuery, Latent, Linear, Sparse


def matrices(attention: Attention, width: Array) -> tuple[Matrix, ...]:
    """The projections of a layer, inputs fused where one kernel reads them once.

    Grouped query: [Q, gate, K, V] and O. MLA (DeepSeek-V2, arXiv 2405.04434, Section 2.1):
    the two down-projections fused, Q up, K and V up, O; without a query latent (rank 0) Q
    comes from the model width. Linear: [Q, K, V, Z, gates] and O. Sparse: its base and the
    indexer's queries, key and head weights (DeepSeek-V3.2-Exp, Section 2.1).
    """
    match attention:
        case GroupedQuery():
            heads = attention.query_heads
            queries = heads * attention.head_width * (1.0 + attention.query_gate)
            return (
                Matrix(queries + _key_value_width(attention), width),
                Matrix(width, heads * attention.value_width),
            )
        case Latent():
            heads, ranked = attention.query_heads, attention.query_rank > 0
            query = heads * (attention.nope_width + attention.rope_width)
            down = attention.kv_rank + attention.rope_width
            return (
                Matrix(down + attention.query_rank, width),
                Matrix(query, jnp.where(ranked, attention.query_rank, width)),
                Matrix(heads * (attention.nope_width + attention.value_width), attention.kv_rank),
                Matrix(width, heads * attention.value_width),
            )
        case Linear():
            keys = attention.key_heads * attention.key_width
            values = attention.value_heads * attention.value_width
            gates = attention.head_gates * attention.value_heads
            return (Matrix(2.0 * keys + 2.0 * values + gates, width), Matrix(width, values))
        case Sparse():
            return (
                *matrices(attention.base, width),
                Matrix(attention.index_heads * attention.index_width, attention.index_query_input),
                Matrix(attention.index_width + attention.index_heads, width),
            )


def convolution(attention: Attention) -> Array:
    """Weights of the short convolution over queries, keys and values; 0 where there is none."""
    if not isinstance(attention, Linear):
        return jnp.asarray(0.0)
    return _convolved(attention) * attention.conv_width


def output_width(attention: Attention) -> Array:
    """Numbers per token that the input projections hand to the attention core."""
    match attention:
        case GroupedQuery():
            queries = attention.query_heads * attention.head_width
            return queries * (1.0 + attention.query_gate) + _key_value_width(attention)
        case Latent():
            return attention.query_heads * (
                2.0 * attention.nope_width + attention.rope_width + attention.value_width
            )
        case Linear():
            return matrices(attention, jnp.asarray(1.0))[0].outputs
        case Sparse():
            return output_width(attention.base)


def weights(attention: Attention) -> Format:
    """The format that the projections of a layer are stored in."""
    return attention.base.weights if isinstance(attention, Sparse) else attention.weights


def held_bytes(attention: Attention, cache: Format, context: Array) -> Array:
    """Bytes that one sequence of ``context`` tokens keeps in a layer's cache.

    Grouped query: n_kv (d_k + d_v) a token, at most ``window`` tokens. MLA: the latent and
    the shared rotary key. Sparse: its base and the index keys. Linear: the state
    (heads x d_k x d_v) and the last conv_width - 1 inputs of the convolution, at any context.
    """
    match attention:
        case GroupedQuery():
            tokens = jnp.minimum(context, attention.window)
            return _key_value_width(attention) * cache.bytes * tokens
        case Latent():
            return (attention.kv_rank + attention.rope_width) * cache.bytes * context
        case Linear():
            taps = _convolved(attention) * (attention.conv_width - 1.0)
            return _state(attention) * attention.state.bytes + taps * cache.bytes
        case Sparse():
            index = attention.index_width * attention.index_cache.bytes * context
            return held_bytes(attention.base, cache, context) + index


def read_bytes(attention: Attention, cache: Format, context: Array) -> Array:
    """Bytes of cache that one pass of one sequence moves in a layer.

    What is held, except: a layer that owns neither K nor V reads those of another, as wide as
    its own heads; sparse attention reads at most ``top_k`` tokens of its base; and a linear
    layer writes its state back.
    """
    match attention:
        case GroupedQuery():
            owned = attention.kv_matrices
            read = attention.replace(kv_matrices=jnp.where(owned > 0, owned, 2.0))
            return held_bytes(read, cache, context)
        case Sparse():
            chosen = jnp.minimum(context, attention.top_k)
            index = attention.index_width * attention.index_cache.bytes * context
            return held_bytes(attention.base, cache, chosen) + index
        case Linear():
            return 2.0 * held_bytes(attention, cache, context)
        case Latent():
            return held_bytes(attention, cache, context)


def pairs(new_tokens: Array, cached_tokens: Array, window: Array) -> Array:
    """Query-key pairs of a causal pass: sum over i = 1..s of min(c + i, window).

    In closed form, for real s: with a = clip(window - c, 0, s) positions below the window,
    a c + a (a + 1) / 2 + (s - a) window. A window that no token reaches leaves no trace in
    float32 either, in value or gradient.

    >>> float(pairs(jnp.array(3.0), jnp.array(2.0), jnp.array(4.0)))
    11.0
    """
    below = jnp.clip(window - cached_tokens, 0.0, new_tokens)
    # an unbounded window of 2^40 would swallow every other term of the gradient in float32
    beyond = jnp.minimum(window, cached_tokens + new_tokens)
    return below * (cached_tokens + (below + 1.0) / 2.0) + (new_tokens - below) * beyond


def core_flops(attention: Attention, new_tokens: Array, cached_tokens: Array) -> Array:
    """FLOP of the attention core for one sequence: scores and weighted values, causal.

    Grouped query: 2 n_q (d_k + d_v) a pair. MLA: the cheaper of absorbed, 2 n_q (2 d_c + d_r)
    a pair, and expanded, 2 n_q (d_n + d_r + d_v) a pair with the cached latents expanded once
    more (new ones are expanded by the projections either way). Sparse: its base over at most
    ``top_k`` tokens, of which each new token may choose others to expand, and 2 n_i d_i a
    pair for the indexer. Linear: 2 d_k d_v to write and to read a head's state, once more to
    read it first under the delta rule, d_k d_v to decay it, and the convolution; a chunked
    form multiplies more.
    """
    match attention:
        case GroupedQuery():
            width = attention.head_width + attention.value_width
            seen = pairs(new_tokens, cached_tokens, attention.window)
            return 2.0 * attention.query_heads * width * seen
        case Latent():
            return _latent_core(attention, pairs(new_tokens, cached_tokens, _far()), cached_tokens)
        case Linear():
            reads = 5.0 + 2.0 * attention.delta
            conv = 2.0 * _convolved(attention) * attention.conv_width
            return (reads * _state(attention) + conv) * new_tokens
        case Sparse(base=base):
            index = attention.index_heads * attention.index_width
            scored = 2.0 * index * pairs(new_tokens, cached_tokens, _far())
            if isinstance(base, GroupedQuery):
                narrow = base.replace(window=jnp.minimum(base.window, attention.top_k))
                return core_flops(narrow, new_tokens, cached_tokens) + scored
            seen = pairs(new_tokens, cached_tokens, attention.top_k)
            chosen = jnp.minimum(cached_tokens, new_tokens * attention.top_k)
            return _latent_core(base, seen, chosen) + scored


def absorbed_flops(attention: Attention, new_tokens: Array, cached_tokens: Array) -> Array:
    """FLOP of the core as the economics paper counts it: cached tokens only, MLA absorbed.

    4 d_h n_q c s, with the latent width in place of d_h under MLA.
    Source: Erdil 2025 (arXiv 2506.04645), Sections 3.1 and 3.6, attention FLOP.
    """
    match attention:
        case GroupedQuery():
            width = attention.head_width + attention.value_width
            seen = jnp.minimum(cached_tokens, attention.window)
            return 2.0 * attention.query_heads * width * seen * new_tokens
        case Latent():
            width = 2.0 * attention.kv_rank + attention.rope_width
            return 2.0 * attention.query_heads * width * cached_tokens * new_tokens
        case _:
            return core_flops(attention, new_tokens, cached_tokens)


def economics_weights(attention: Attention, width: Array) -> tuple[Matrix, ...]:
    """The projections as the economics paper counts parameters.

    As ``matrices``, but MLA has two latents of width d_c (keys and values apart) and no
    rotary part. Source: the reference implementation of Erdil 2025 (arXiv 2506.04645).
    """
    if not isinstance(attention, Latent):
        return matrices(attention, width)
    heads = attention.query_heads
    return (
        Matrix(2.0 * attention.kv_rank + attention.query_rank, width),
        Matrix(2.0 * heads * attention.value_width, attention.kv_rank),
        Matrix(heads * attention.value_width, attention.query_rank),
        Matrix(width, heads * attention.value_width),
    )


def economics_products(attention: Attention, width: Array) -> tuple[Matrix, ...]:
    """The projections as the economics paper streams them through memory.

    As ``matrices``, but MLA's up-projections are one product from both latents to queries,
    keys and values. Source: the reference implementation of Erdil 2025 (arXiv 2506.04645).
    """
    if not isinstance(attention, Latent):
        return matrices(attention, width)
    latents = attention.kv_rank + attention.query_rank
    heads = attention.query_heads * attention.value_width
    return (Matrix(latents, width), Matrix(3.0 * heads, latents), Matrix(width, heads))


def _key_value_width(attention: GroupedQuery) -> Array:
    keys = attention.head_width * jnp.minimum(attention.kv_matrices, 1.0)
    values = attention.value_width * jnp.maximum(attention.kv_matrices - 1.0, 0.0)
    return attention.kv_heads * (keys + values)


def _latent_core(attention: Latent, seen: Array, cached_tokens: Array) -> Array:
    heads = 2.0 * attention.query_heads
    absorbed = heads * (2.0 * attention.kv_rank + attention.rope_width) * seen
    per_pair = attention.nope_width + attention.rope_width + attention.value_width
    expansion = attention.kv_rank * (attention.nope_width + attention.value_width)
    expanded = heads * (per_pair * seen + expansion * cached_tokens)
    return lax.select(absorbed < expanded, absorbed, expanded)


def _convolved(attention: Linear) -> Array:
    keys = attention.key_heads * attention.key_width
    return 2.0 * keys + attention.value_heads * attention.value_width


def _state(attention: Linear) -> Array:
    return attention.value_heads * attention.key_width * attention.value_width


def _far() -> Array:
    return jnp.asarray(2.0**40)
