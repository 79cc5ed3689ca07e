"""Takes a running request back when the cache runs short: it is computed anew, or swapped out."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from infer_jax.replays import caches, drafted, swapping
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules
from infer_jax.replays.state import NEVER, State, get, note, put


def evict(
    rules: Rules, requests: Requests, s: State, short: Array, arrived: Callable[[State], Array]
) -> State:
    """The state after one request has made room, where ``short``; ``arrived`` counts who came."""

    def choose() -> tuple[Array, Array, Array]:
        slot = rules.victim(s, requests)
        return slot, rules.kept(s, requests, slot), arrived(s)

    # rare, and a look through all slots
    none = jnp.zeros_like(s.free), s.ratio, jnp.zeros_like(s.head)
    slot, ratio, came = lax.cond(short, choose, lambda: none)
    began = short & (s.part >= 0) if rules.beside else jnp.zeros_like(short)
    there = short & ~began
    victim = jnp.where(began, s.part, get(s.who, slot))
    unread = rules.unread(s, slot)
    left = get(s.ends, slot) - s.steps + unread
    tokens = drafted.held_by(s, slot)
    cached = jnp.where(began, s.part_done, get(s.base, slot) + s.steps - 1)
    produced = _produced(requests, victim, left, unread, slot, s)
    kept = caches.preempted(rules, requests, s, victim, cached, short)
    after = s._replace(
        running=s.running - short,
        decoding=s.decoding - there,
        context=s.context - jnp.where(there, tokens, 0),
        produced=note(s.produced, victim, produced, there),
        last=note(s.last, victim, jnp.asarray(NEVER), there),
        preempted=note(s.preempted, victim, get(s.preempted, victim) + 1, short),
        watched=_without(rules, s, slot, there),
        ends=put(s.ends, slot, jnp.asarray(NEVER), there),
        part=jnp.where(began, -1, s.part),
        barred=s.barred | short,
        growth=drafted.taken_back(s, slot, victim, left, unread, there),
        kept=kept,
        space=swapping.out(rules, requests, s, victim, cached, short),
    )  # fmt: skip
    if not rules.returns:
        return after._replace(head=jnp.where(short, victim, s.head))
    ring = jnp.remainder(s.back, s.again.shape[0] - 1)
    return after._replace(
        again=note(s.again, ring, victim, short),
        stamp=note(s.stamp, ring, came, short),
        back=s.back + short,
        full=s.full & ~short,
        ratio=ratio,
    )


def _produced(
    requests: Requests, victim: Array, left: Array, unread: Array, slot: Array, s: State
) -> Array:
    """Output tokens that a request has, and loses."""
    if s.growth is None:
        return get(requests.output, victim) - left
    tokens = drafted.held_by(s, slot, unread)
    return jnp.round(tokens).astype(jnp.int32) - get(requests.prompt, victim)


def _without(rules: Rules, s: State, slot: Array, there: Array) -> tuple[Array, ...]:
    """The sums over slots without one of them."""
    if s.growth is None:
        now = get(s.base, slot) + s.steps
        tokens = now - 1, now
    else:
        last, now = rules.tokens(s, s.steps)
        tokens = get(last, slot), get(now, slot)
    one = s.growth and s.growth.of(slot)
    left = drafted.to_come(get(s.ends, slot) - s.steps, one)
    return rules.summed(s, left, tokens, there, -1)
