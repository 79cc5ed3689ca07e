"""How much of a paged cache does a request take, when layers differ in what they keep?

vLLM cuts the cache into blocks. Layers of one kind (full, sliding window, linear) form groups
of equal size; a block is one page in each layer of a group, and all pages are equally large.
Source: vLLM, v1/core/kv_cache_utils.py and v1/kv_cache_interface.py (v0.19).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from infer_jax.physics.memory.chip_memory import Ranks, Resident, on_chip
from infer_jax.physics.numerics import Smoothing, ceiling
from infer_jax.specs import UNBOUNDED

WINDOWED = UNBOUNDED / 2.0  # tokens: a window below this is one
ROUNDING = 1e-6  # keeps a quotient that is whole but for rounding on its side of floor and ceil
ALIKE = 1.25  # kinds whose layer counts differ by less than this share one group size
UNFILLED = 0.5  # of the last page of a request, on average


class Paging(NamedTuple):
    """A cache cut into blocks, bytes on one chip.

    ``block``: bytes of a page in every layer of a group; ``token``: bytes that a token adds while
    inside all windows. Of the layers with full attention and of those with a window, of each
    model: ``pages``, bytes of a page in all their groups, which has that many ``tokens``; the
    ``window`` in tokens, and pages ``beside`` while tokens are batched. ``state``: bytes of the
    states of a request.
    """

    block: Array
    token: Array
    pages: Float[Array, "... kinds"]
    tokens: Float[Array, "... kinds"]
    window: Float[Array, "... kinds"]
    beside: Float[Array, "... kinds"]
    state: Array

    def at_its_end(
        self, tokens: Array, batched_tokens: Array, smoothing: Smoothing = None
    ) -> Array:
        """Bytes that a request of ``tokens`` tokens takes at most, as vLLM counts it.

        ceil(M / B) pages of full attention, ceil(min(W - 1 + T, M) / B) + 1 of a window W while
        T tokens are batched, and those of a state, in each group of that kind.
        """
        batched = jnp.asarray(batched_tokens)[..., None]
        seen = jnp.minimum(self.window - 1.0 + batched, jnp.asarray(tokens)[..., None])
        taken = ceiling(seen / self.tokens, smoothing) + self.beside
        return jnp.sum(self.pages * taken, axis=-1) + self.state

    def on_average(self, tokens: Array) -> Array:
        """Bytes that a request holds while it has ``tokens`` tokens, its last pages half full."""
        seen = jnp.minimum(self.window, jnp.asarray(tokens)[..., None])
        return jnp.sum(self.pages * (seen / self.tokens + UNFILLED), axis=-1) + self.state

    def shared(self, tokens: Array | float) -> Array:
        """Bytes of ``tokens`` tokens that several requests have in common; states are not."""
        seen = jnp.minimum(self.window, jnp.asarray(tokens)[..., None])
        return jnp.sum(self.pages * (seen / self.tokens), axis=-1)

    def beside_another(self, other: "Paging", share: Array | float) -> "Paging":
        """This cache and ``share`` of another model's; ``block`` and ``token`` are this one's."""
        both = {
            name: jnp.concatenate([getattr(self, name), getattr(other, name)], axis=-1)
            for name in ("tokens", "window", "beside")
        }
        pages = jnp.concatenate([self.pages, jnp.asarray(share)[..., None] * other.pages], axis=-1)
        return self._replace(pages=pages, state=self.state + share * other.state, **both)


def paging(
    model: Resident,
    ranks: Ranks,
    block: Array,
    state_pages: Array,
    drafting: Array | float = 0.0,
    smoothing: Smoothing = None,
) -> Paging:
    """The cache of one chip in blocks of ``block`` tokens; ``drafting`` 1 for a layer more.

    Layers of a kind keep what they keep on average. A page is as large as the largest of a block
    of keys and values, or, with a state, the least multiple of it that takes the state.
    """
    cached, tp = model.layers.attention, ranks.tp[..., None]
    count = on_chip(model.layers, ranks, drafting)
    token, state = cached.cache_bytes(1.0, tp, near=0.0), cached.state_bytes(tp)
    whole = jnp.where((token > 0) & (cached.window >= WINDOWED), count, 0.0)
    near = jnp.where((token > 0) & (cached.window < WINDOWED), count, 0.0)
    last = jnp.where(cached.near > 0, count, 0.0)  # last tokens beside a compressed context
    recurrent = jnp.where(state > 0, count, 0.0)
    # full attention, windows, states: layers, bytes that one of them keeps, and its window
    number = jnp.sum(jnp.stack([whole, near + last, recurrent], axis=-2), axis=-1)
    held = (whole * token, near * token + last * cached.near_cache, recurrent * state)
    safe = jnp.where(number > 0, number, 1.0)
    held = jnp.sum(jnp.stack(held, axis=-2), axis=-1)
    window = jnp.sum(near * cached.window + last * cached.near, axis=-1) / safe[..., 1]
    keys, each = (held / safe)[..., :2], (held / safe)[..., 2]

    largest = block * jnp.max(keys, axis=-1)
    times = ceiling(each / jnp.where(largest > 0, largest, 1.0), smoothing)
    page = largest * jnp.maximum(times, 1.0)
    page = jnp.where(largest > 0, page, jnp.maximum(each, 1.0))
    size = _group_size(number)
    groups = jnp.ceil(number / size[..., None] * (1.0 - ROUNDING))
    # whole blocks: kinds with fewer bytes a token have more of them in a page
    blocks, page_bytes = jnp.asarray(block)[..., None], page[..., None]
    fill = page_bytes / jnp.where(keys > 0, blocks * keys, page_bytes)
    filled = -ceiling(-fill * (1.0 + ROUNDING), smoothing)  # whole blocks in a page
    one = jnp.ones_like(window)
    return Paging(
        block=page * size,
        token=held[..., 0] + held[..., 1],
        pages=(page * size)[..., None] * groups[..., :2],
        tokens=blocks * filled,
        window=jnp.stack([UNBOUNDED * one, window], axis=-1),
        beside=jnp.stack([0.0 * one, one], axis=-1),
        state=page * size * groups[..., 2] * state_pages,
    )


def _group_size(layers: Float[Array, "... kinds"]) -> Array:
    """Layers of a group: of the rarest kind (the commonest, where counts are ``ALIKE``)."""
    rarest = jnp.min(jnp.where(layers > 0, layers, UNBOUNDED), axis=-1)
    commonest = jnp.max(layers, axis=-1)
    size = jnp.where(commonest < ALIKE * rarest, commonest, rarest)
    return jnp.where(commonest > 0, size, 1.0)
