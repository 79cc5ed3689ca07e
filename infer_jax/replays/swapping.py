"""Preemption by swapping: what a request has in the cache goes to host memory, and comes back."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int

from infer_jax.replays.preempting import Preempting
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Feed, Rules
from infer_jax.replays.state import State, get, note
from infer_jax.specs import spec


@spec
class Swapping(Preempting):
    """Decodes first; the last admitted is swapped to ``host`` blocks of host memory.

    vLLM V0 with ``--preemption-mode swap`` (vllm/core/scheduler.py at 0dce2b2, ``_preempt``,
    ``_swap_out``, ``_schedule_swapped``; the order of arrival by ``sort_by_priority`` at 0054e1f;
    vllm/core/block_manager.py at 9a4b60a, ``_can_swap``): where the next token of a running request
    finds no block, all blocks of the last one to arrive are copied to host memory. It comes back
    when its blocks and that of its next token are free, not in a pass that preempts, and before any
    request that waits: none of these is admitted while one is swapped out. It goes on where it was.
    Copies of both directions are issued before the pass in its own stream, so that it waits
    ``fetch`` seconds for each block (vllm/worker/worker.py, ``execute_worker``).

    Where host memory has no room, V0 ends with an error; here the request is computed anew instead,
    in its place in the order of arrival.
    """

    speculates = False
    keeps = False
    swaps = True


class HostSpace(NamedTuple):
    """What is in host memory, of every request and in all."""

    tokens: Int[Array, " n"]  # in the cache when it was swapped out; 0 of one that was not
    blocks: Int[Array, " n"]  # of these
    decodes: Bool[Array, " n"]  # whether it was decoding, and not in its prompt
    times: Int[Array, " n"]  # how often it was swapped out
    taken: Int[Array, ""]  # blocks
    moved: Int[Array, ""]  # blocks that the pass which is put together waits for
    # of the request that is fed next
    up_tokens: Int[Array, ""]
    up_decodes: Bool[Array, ""]


def opened(rules: Rules, s: State) -> State:
    """A state with empty host memory, if the rules swap."""
    if not rules.swaps:
        return s
    zero, own = jnp.zeros((), jnp.int32), jnp.zeros_like(s.last)
    space = HostSpace(own, own, own > 0, own, zero, zero, zero, zero > 0)
    return s._replace(space=space, path=s.path._replace(fetching=jnp.zeros_like(s.path.time)))


def ahead(space: HostSpace | None, up: Array) -> HostSpace | None:
    """What is to be known of the request that is fed next."""
    if space is None:
        return None
    return space._replace(up_tokens=get(space.tokens, up), up_decodes=get(space.decodes, up))


def out(
    rules: Rules, requests: Requests, s: State, victim: Array, tokens: Array
) -> HostSpace | None:
    """Host memory once a request with ``tokens`` tokens has made room."""
    space = s.space
    if space is None:
        return None
    began = s.part >= 0
    blocks = jnp.where(began, rules.begun(s, requests), rules.needed(tokens))
    ok = blocks <= rules.host - space.taken
    more = jnp.where(ok, blocks, 0)
    return space._replace(
        tokens=note(space.tokens, victim, tokens, ok),
        blocks=note(space.blocks, victim, blocks, ok),
        decodes=note(space.decodes, victim, ~began, ok),
        times=note(space.times, victim, get(space.times, victim) + 1, ok),
        taken=space.taken + more,
        moved=space.moved + more,
    )


def back(before: State, fed: State, feed: Feed, ok: Array) -> State:
    """The state with a request that was fed, where ``ok``: one that comes back goes on decoding."""
    space = fed.space
    if space is None:
        return fed
    returns = ok & ~feed.begun & (space.up_tokens > 0)
    decodes = returns & space.up_decodes
    blocks = jnp.where(returns, get(space.blocks, feed.request), 0)
    prompt = {
        name: jnp.where(decodes, getattr(before, name), getattr(fed, name))
        for name in ("fed", "pairs", "joined", "joined_tokens")
    }
    return fed._replace(
        **prompt,
        decoding=fed.decoding + decodes,
        context=fed.context + jnp.where(decodes, feed.whole, 0),
        space=space._replace(
            tokens=note(space.tokens, feed.request, jnp.zeros_like(blocks), returns),
            taken=space.taken - blocks,
            moved=space.moved + blocks,
        ),
    )
