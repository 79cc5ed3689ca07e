"""One layer of attention as numbers, the same ones for every kind, and what follows from them.

What a layer keeps, reads and computes is said here once for all kinds; a kind gives the numbers.
All figures are of one layer; of one sequence where a context enters. Contexts are in tokens.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from infer_jax.physics.attention.causal_pairs import every_pair, pairs
from infer_jax.physics.numerics import at_least
from infer_jax.specs import UNBOUNDED

Numbers = Float[Array, "*layers"]  # one of a layer, or an array over the blocks of a model


class Launches(NamedTuple):
    """Kernel launches of a layer in a decode pass, in units of one layer of each kernel class."""

    grouped: Numbers
    latent: Numbers
    sparse: Numbers
    linear: Numbers


def launching(**times: Array | float) -> Launches:
    """Launches of the named kernel classes; 0 of the others."""
    none = Launches(*(jnp.asarray(0.0) for _ in Launches._fields))
    return none._replace(**{name: jnp.asarray(x) for name, x in times.items()})


class Row(NamedTuple):
    """One attention layer as numbers.

    ``launches``: kernels of a decode pass, by class. ``cache``: bytes of a token's keys and values
    that a pass reads; they are divided over at most ``split`` tensor ranks. ``heads``: of queries,
    0 without a cache. ``owned``: 1, or 0 where the layer reads another layer's keys and values.
    ``index``: bytes of a token's index keys, which every rank keeps. ``state``: bytes of recurrent
    state that a pass reads and writes for a sequence. ``window``, ``top_k``: tokens that a query
    sees at most.

    FLOP: of a query-key pair in decode (``absorbed``) and in prefill (``expanded``), of expanding a
    cached token again in prefill (``reopened``), of the indexer for a pair (``indexing``), of the
    recurrence for a token (``recurring``). Where the last tokens are kept beside a compressed
    context: how many (``near``), the bytes of one and the FLOP of a pair with one.
    """

    launches: Launches
    cache: Numbers
    owned: Numbers
    split: Numbers
    heads: Numbers
    index: Numbers
    state: Numbers
    window: Numbers
    top_k: Numbers
    absorbed: Numbers
    expanded: Numbers
    reopened: Numbers
    indexing: Numbers
    recurring: Numbers
    near: Numbers
    near_cache: Numbers
    near_flops: Numbers

    def share(self, tp: Array) -> Array:
        """The part of keys and values that each of ``tp`` ranks keeps: 1 / min(tp, split).

        A head is not split; beyond one head a rank it is copied.
        """
        return jnp.where(tp < self.split, 1.0 / tp, 1.0 / at_least(self.split, 1.0))

    def tile_fill(self, new_tokens: Array | float, tp: Array, tile: Array) -> Array:
        """The share of a decode kernel's rows that queries fill: min(1, s n_q / (max(tp, n_kv) M)).

        The query heads that share a cached head, times the new tokens, are rows of one product on
        the matrix units, which multiplies no fewer than a ``tile`` of M rows: 64 by a warp group of
        Hopper (PTX ISA, wgmma.mma_async .m64nNkK), 128 on Blackwell or 256 of two blocks
        (tcgen05.mma, M = 128 and 256), 16 on CDNA (V_MFMA_F32_16X16X16). 1 where a layer has no
        cached heads.
        """
        rows = new_tokens * self.heads / jnp.maximum(tp, self.split)
        return jnp.where(rows > 0.0, jnp.minimum(rows / tile, 1.0), 1.0)

    def held_bytes(self, context: Array) -> Array:
        """Bytes that one sequence of ``context`` tokens keeps, all ranks together."""
        return self.cache_bytes(context, jnp.asarray(1.0)) + self.state / 2.0

    def cache_bytes(self, context: Array | float, tp: Array, near: Array | float = 1.0) -> Array:
        """Bytes of keys, values and index keys of ``context`` tokens on each of ``tp`` ranks.

        ``near``: 0 leaves out the last tokens that are kept beside a compressed context.
        """
        keys = self.cache * jnp.minimum(context, self.window)
        keys = keys + near * self.near_cache * jnp.minimum(context, self.near)
        return self.owned * (keys * self.share(tp) + self.index * context)

    def read_bytes(self, context: Array) -> Array:
        """Bytes that one pass of one sequence moves; a state is read and written."""
        seen = jnp.minimum(jnp.minimum(context, self.window), self.top_k)
        near = self.near_cache * jnp.minimum(context, self.near)
        return self.cache * seen + near + self.index * context + self.state

    def state_bytes(self, tp: Array) -> Array:
        """Bytes of state of one sequence on each of ``tp`` ranks."""
        return self.state / 2.0 / tp

    def core_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """FLOP of one sequence: scores and weighted values, causal; indexer and recurrence.

        The cheaper of absorbed and expanded, which differ for latent attention alone. In the
        expanded form each new token may choose ``top_k`` cached ones to be expanded again.
        """
        seen = pairs(new_tokens, cached_tokens, jnp.minimum(self.window, self.top_k))
        again = jnp.minimum(cached_tokens, new_tokens * self.top_k)
        absorbed = self.absorbed * seen
        expanded = self.expanded * seen + self.reopened * again
        far = jnp.where(absorbed <= expanded, absorbed, expanded)
        near = self.near_flops * pairs(new_tokens, cached_tokens, self.near)
        scored = self.indexing * every_pair(new_tokens, cached_tokens)
        return far + near + scored + self.recurring * new_tokens

    def cached_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """FLOP of new tokens that each attend to the cached ones alone, absorbed.

        s (a_d min(c, window) + index and recurrence): 4 d_h n_q c s, with the latent width in
        place of d_h under MLA.
        """
        seen = jnp.minimum(jnp.minimum(cached_tokens, self.window), self.top_k)
        near = self.near_flops * jnp.minimum(cached_tokens, self.near)
        each = self.absorbed * seen + near + self.indexing * cached_tokens + self.recurring
        return each * new_tokens


def blank() -> Row:
    """The row of a layer with no bytes, no FLOP, no limit to what is seen.

    It is launched as a layer of grouped-query attention is.
    """
    zero, far = jnp.asarray(0.0), jnp.asarray(UNBOUNDED)
    nothing = Row(launching(grouped=1.0), *(zero for _ in Row._fields[1:]))
    one = jnp.asarray(1.0)
    return nothing._replace(owned=one, split=one, window=far, top_k=far)
