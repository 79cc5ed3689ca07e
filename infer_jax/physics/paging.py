"""How many tokens and requests does a paged cache hold, when layers differ in what they keep?

vLLM cuts the cache into blocks. Layers of one kind (full, sliding window, linear) form groups
of equal size; a block is one page in each layer of a group, and all pages are equally large.
Source: vLLM, v1/core/kv_cache_utils.py and v1/kv_cache_interface.py (v0.19).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics import attention as att
from infer_jax.physics.decoder import total
from infer_jax.physics.numerics import Smoothing, ceiling, flooring
from infer_jax.specs import UNBOUNDED, Architecture, Plan

WINDOWED = UNBOUNDED / 2.0  # tokens: a window below this is one
ROUNDING = 1e-6  # keeps a quotient that is whole but for rounding on its side of floor and ceil
ALIKE = 1.25  # kinds whose layer counts differ by less than this share one group size


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

    ``block_bytes``: a page in every layer of a group; ``request_blocks``: what one request of
    the longest context takes, over all groups.
    """

    block_bytes: Array
    request_blocks: Array


def kinds(arch: Architecture, plan: Plan) -> tuple[Layers, Layers, Layers]:
    """The layers of one chip with full attention, with a window, and with a state."""
    none = Layers(*(jnp.zeros(()) for _ in range(4)))
    full = sliding = linear = none
    for b in arch.blocks:
        if b.attention is None:
            continue
        layer = att.of(b.attention)
        count = b.count / jnp.maximum(plan.pp, 1.0) * layer.owns_cache
        token = layer.token_bytes(arch.cache, plan.tp)
        state = layer.state_bytes(arch.activations, plan.tp)
        row = layer.row(arch)
        window = row.window
        if layer.recurrent:
            recurrent = jnp.where(state > 0, count, 0.0)
            full = _add(full, Layers(count - recurrent, token, state, jnp.zeros(())))
            linear = _add(linear, Layers(recurrent, token, state, jnp.zeros(())))
        else:
            near = count * jnp.where(window < WINDOWED, 1.0, 0.0)
            full = _add(full, Layers(count - near, token, state, jnp.zeros(())))
            sliding = _add(sliding, Layers(near, token, state, window))
        # the last tokens beside a compressed context
        beside = count * jnp.where(row.near > 0, 1.0, 0.0)
        sliding = _add(sliding, Layers(beside, row.near_cache, jnp.zeros(()), row.near))
    return _mean(full), _mean(sliding), _mean(linear)


def paging(
    layers: tuple[Layers, Layers, Layers],
    block: Array,
    context: Array,
    batched_tokens: Array,
    state_pages: Array,
    smoothing: Smoothing = None,
) -> Paging:
    """Blocks of ``block`` tokens for requests of ``context`` tokens.

    A page is as large as the largest of a block of keys and values, or, with a state, the
    least multiple of it that takes the state. A group has as many layers as the rarest kind
    (the commonest, where counts are ``ALIKE``), the last one padded. A request takes
    ceil(M / B) pages of full attention, ceil(min(W - 1 + T, M) / B) + 1 of a window W while
    T tokens are batched, and ``state_pages`` of state, in each group of that kind.
    """
    full, sliding, linear = layers
    largest = block * jnp.maximum(full.token, sliding.token)
    keyed = largest > 0
    times = jnp.maximum(ceiling(linear.state / jnp.where(keyed, largest, 1.0), smoothing), 1.0)
    page = jnp.where(keyed, largest * times, jnp.maximum(linear.state, 1.0))
    in_full = _page_tokens(full, page, block, smoothing)
    in_sliding = _page_tokens(sliding, page, block, smoothing)

    seen = jnp.minimum(sliding.window - 1.0 + batched_tokens, context)
    pages = (
        ceiling(context / in_full, smoothing),
        ceiling(seen / in_sliding, smoothing) + 1.0,
        state_pages,
    )
    size = _group_size(layers)
    groups = [jnp.ceil(kind.count / size * (1.0 - ROUNDING)) for kind in layers]
    return Paging(
        block_bytes=page * size,
        request_blocks=total(g * p for g, p in zip(groups, pages, strict=True)),
    )


def blocks(available: Array, cut: Paging, smoothing: Smoothing = None) -> Array:
    """Blocks in ``available`` bytes, floored; negative where bytes are missing."""
    return flooring(available / cut.block_bytes, smoothing)


def concurrency(count: Array, cut: Paging) -> Array:
    """Requests of the longest context that ``count`` blocks hold at once."""
    return count / cut.request_blocks


def tokens(count: Array, cut: Paging, context: Array, smoothing: Smoothing = None) -> Array:
    """Tokens in ``count`` blocks when requests of ``context`` tokens fill them: N M / blocks each.

    Without windows and states blocks times tokens of a block, whatever the context.
    """
    return flooring(count * context / cut.request_blocks, smoothing)


def _add(some: Layers, more: Layers) -> Layers:
    """Two sets of layers as one; all but the count are sums here."""
    sums = (getattr(some, f) + more.count * getattr(more, f) for f in ("token", "state", "window"))
    return Layers(some.count + more.count, *sums)


def _mean(summed: Layers) -> Layers:
    count = jnp.where(summed.count > 0, summed.count, 1.0)
    return Layers(summed.count, *(x / count for x in summed[1:]))


def _page_tokens(kind: Layers, page: Array, block: Array, smoothing: Smoothing) -> Array:
    """Tokens of one page of a kind: whole blocks; kinds with fewer bytes a token have more."""
    there = kind.token > 0
    share = page / jnp.where(there, block * kind.token, page)
    return block * flooring(share * (1.0 + ROUNDING), smoothing)


def _group_size(layers: tuple[Layers, ...]) -> Array:
    rarest, commonest = jnp.asarray(UNBOUNDED), jnp.zeros(())
    for kind in layers:
        rarest = jnp.minimum(rarest, jnp.where(kind.count > 0, kind.count, UNBOUNDED))
        commonest = jnp.maximum(commonest, kind.count)
    size = jnp.where(commonest < ALIKE * rarest, commonest, rarest)
    return jnp.where(commonest > 0, size, 1.0)
