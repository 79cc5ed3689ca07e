"""Takes a running request back when the cache runs short: it is computed anew later."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from infer_jax.replays import caches, drafted
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules
from infer_jax.replays.state import NEVER, State, changed, get, note, put

# what changes when a request makes room; and where it goes to the end of the queue, or to its front
CHANGED = ("running", "decoding", "context", "produced", "last", "preempted", "watched", "ends",
           "part", "barred", "growth", "kept")  # fmt: skip
TO_THE_END, TO_THE_FRONT = ("again", "stamp", "back", "full", "ratio"), ("head",)


def evict(
    rules: Rules, requests: Requests, s: State, short: Array, arrived: Callable[[State], Array]
) -> State:
    """The state after one request has made room, where ``short``; ``arrived`` counts who came."""
    names = CHANGED + (TO_THE_END if rules.returns else TO_THE_FRONT)

    return changed(short, s, names, lambda s: _made_room(rules, requests, s, arrived))


def _made_room(
    rules: Rules, requests: Requests, s: State, arrived: Callable[[State], Array]
) -> State:
    """The state after one request has made room."""
    yes = jnp.ones_like(s.full)
    slot = rules.victim(s, requests)
    began = s.part >= 0 if rules.beside else jnp.zeros_like(yes)
    there = ~began
    victim = jnp.where(began, s.part, get(s.who, slot))
    unread = rules.unread(s, slot)
    left = get(s.ends, slot) - s.steps + unread
    tokens = drafted.held_by(s, slot)
    cached = jnp.where(began, s.part_done, get(s.base, slot) + s.steps - 1)
    produced = _produced(requests, victim, left, unread, slot, s)
    kept = caches.preempted(rules, requests, s, victim, cached)
    after = s._replace(
        running=s.running - 1,
        decoding=s.decoding - there,
        context=s.context - jnp.where(there, tokens, 0),
        produced=note(s.produced, victim, produced, there),
        last=note(s.last, victim, jnp.asarray(NEVER), there),
        preempted=put(s.preempted, victim, get(s.preempted, victim) + 1),
        watched=_without(rules, s, slot, there),
        ends=put(s.ends, slot, jnp.asarray(NEVER), there),
        part=jnp.where(began, -1, s.part),
        barred=yes,
        growth=drafted.taken_back(s, slot, victim, left, unread, there),
        kept=kept,
    )  # fmt: skip
    if not rules.returns:
        return after._replace(head=victim)
    ring = jnp.remainder(s.back, s.again.shape[0] - 1)
    return after._replace(
        again=put(s.again, ring, victim),
        stamp=put(s.stamp, ring, arrived(s)),
        back=s.back + 1,
        full=~yes,
        ratio=rules.kept(s, requests, slot),
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
