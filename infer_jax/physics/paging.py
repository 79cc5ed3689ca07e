"""How much of a paged cache does a request take, when layers differ in what they keep?

vLLM cuts the cache into blocks. Layers of one kind (full, sliding window, linear) form groups
of equal size; a block is one page in each layer of a group, and all pages are equally large.
Source: vLLM, v1/core/kv_cache_utils.py and v1/kv_cache_interface.py (v0.19).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import Smoothing, ceiling, flooring
from infer_jax.physics.resident import Ranks, Resident, on_chip
from infer_jax.specs import UNBOUNDED

WINDOWED = UNBOUNDED / 2.0  # tokens: a window below this is one
ROUNDING = 1e-6  # keeps a quotient that is whole but for rounding on its side of floor and ceil
ALIKE = 1.25  # kinds whose layer counts differ by less than this share one group size
UNFILLED = 0.5  # of the last page of a request, on average


class Layers(NamedTuple):
    """The layers of one kind on one chip: how many, and what each keeps, on average.

    ``token`` and ``state`` are bytes a layer, ``window`` tokens.
    """

    count: Array
    token: Array
    state: Array
    window: Array


class Paging(NamedTuple):
    """A cache cut into blocks.

    ``block_bytes``: a page in every layer of a group. Of full, windowed and recurrent layers
    each: ``groups`` of layers, tokens of a page (``full``, ``sliding``), the ``window`` in tokens,
    pages of a ``state``.
    """

    block_bytes: Array
    groups: tuple[Array, Array, Array]
    full: Array
    sliding: Array
    window: Array
    state: Array

    def at_its_end(
        self, tokens: Array, batched_tokens: Array, smoothing: Smoothing = None
    ) -> Array:
        """Blocks that a request of ``tokens`` tokens takes at most, as vLLM counts them.

        ceil(M / B) pages of full attention, ceil(min(W - 1 + T, M) / B) + 1 of a window W while
        T tokens are batched, and those of a state, in each group of that kind.
        """
        seen = jnp.minimum(self.window - 1.0 + batched_tokens, tokens)
        near = ceiling(seen / self.sliding, smoothing) + 1.0
        return self._of(ceiling(tokens / self.full, smoothing), near, self.state)

    def on_average(self, tokens: Array) -> Array:
        """Blocks that a request holds while it has ``tokens`` tokens, its last ones half full."""
        near = jnp.minimum(self.window, tokens) / self.sliding + UNFILLED
        return self._of(tokens / self.full + UNFILLED, near, self.state)

    def shared(self, tokens: Array) -> Array:
        """Blocks of ``tokens`` tokens that several requests have in common; states are not."""
        near = jnp.minimum(self.window, tokens) / self.sliding
        return self._of(tokens / self.full, near, jnp.zeros_like(self.state))

    def _of(self, *pages: Array) -> Array:
        full, sliding, linear = (g * p for g, p in zip(self.groups, pages, strict=True))
        return full + sliding + linear


def kinds(
    model: Resident, ranks: Ranks, drafting: Array | float = 0.0
) -> tuple[Layers, Layers, Layers]:
    """The layers of one chip with full attention, with a window, and with a state."""
    rows, cached = model.layers, model.layers.attention
    count = on_chip(rows, ranks, drafting)
    token = cached.token_bytes(ranks.tp[..., None])
    state = cached.state_bytes(ranks.tp[..., None])
    kept, near = token > 0, cached.window < WINDOWED
    none = jnp.zeros_like(token)
    full = (kept & ~near, token, none)
    sliding = (kept & near, token, cached.window)
    # the last tokens beside a compressed context
    beside = (cached.near > 0, cached.near_cache, cached.near)
    linear = (state > 0, state, none)

    def mean(*parts: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        each = [(jnp.where(there, count, 0.0), size, reach) for there, size, reach in parts]
        number, size, reach = (
            sum((jnp.sum(x, axis=-1) for x in column), start=jnp.asarray(0.0))
            for column in zip(*((n, n * s, n * r) for n, s, r in each), strict=True)
        )
        safe = jnp.where(number > 0, number, 1.0)
        return number, size / safe, reach / safe

    whole, windowed, recurrent = mean(full), mean(sliding, beside), mean(linear)
    zero = jnp.zeros_like(whole[0])
    return (
        Layers(whole[0], whole[1], zero, zero),
        Layers(windowed[0], windowed[1], zero, windowed[2]),
        Layers(recurrent[0], zero, recurrent[1], zero),
    )


def paging(
    layers: tuple[Layers, Layers, Layers],
    block: Array,
    state_pages: Array,
    smoothing: Smoothing = None,
) -> Paging:
    """The cache of these layers in blocks of ``block`` tokens.

    A page is as large as the largest of a block of keys and values, or, with a state, the
    least multiple of it that takes the state. A group has as many layers as the rarest kind
    (the commonest, where counts are ``ALIKE``), the last one padded.
    """
    full, sliding, linear = layers
    largest = block * jnp.maximum(full.token, sliding.token)
    keyed = largest > 0
    times = jnp.maximum(ceiling(linear.state / jnp.where(keyed, largest, 1.0), smoothing), 1.0)
    page = jnp.where(keyed, largest * times, jnp.maximum(linear.state, 1.0))
    size = _group_size(layers)
    whole, near, recurrent = (jnp.ceil(k.count / size * (1.0 - ROUNDING)) for k in layers)
    return Paging(
        block_bytes=page * size,
        groups=(whole, near, recurrent),
        full=_page_tokens(full, page, block, smoothing),
        sliding=_page_tokens(sliding, page, block, smoothing),
        window=sliding.window,
        state=state_pages,
    )


def _page_tokens(kind: Layers, page: Array, block: Array, smoothing: Smoothing) -> Array:
    """Tokens of one page of a kind: whole blocks; kinds with fewer bytes a token have more."""
    there = kind.token > 0
    share = page / jnp.where(there, block * kind.token, page)
    return block * flooring(share * (1.0 + ROUNDING), smoothing)


def _group_size(layers: tuple[Layers, ...]) -> Array:
    rarest, commonest = jnp.asarray(UNBOUNDED), jnp.asarray(0.0)
    for kind in layers:
        rarest = jnp.minimum(rarest, jnp.where(kind.count > 0, kind.count, UNBOUNDED))
        commonest = jnp.maximum(commonest, kind.count)
    size = jnp.where(commonest < ALIKE * rarest, commonest, rarest)
    return jnp.where(commonest > 0, size, 1.0)
