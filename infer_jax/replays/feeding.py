"""Feeds a part of a prompt to the pass that is put together."""

import jax.numpy as jnp
from jax import Array

from infer_jax.replays import caches, drafted
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Feed, Rules
from infer_jax.replays.state import State, changed, note, put

# what changes of a state
FED = ("head", "taken", "running", "held", "left", "fed", "pairs", "charged", "part", "part_done",
       "joined", "joining", "joined_tokens", "soonest", "who", "ends", "base", "watched", "size",
       "admitted", "first", "ready", "last", "growth", "kept")  # fmt: skip


def fed(rules: Rules, requests: Requests, s: State, feed: Feed, ok: Array) -> State:
    """The state with the part in the pass, where ``ok``."""
    return changed(ok, s, FED, lambda s: _with_part(rules, requests, s, feed))


def _with_part(rules: Rules, requests: Requests, s: State, feed: Feed) -> State:
    """The state with it in the pass."""
    new, all_of_it, at = ~feed.begun, ~feed.cut, feed.request
    chunk, aside = feed.chunk, rules.set_aside(feed)
    charge = rules.charge(s, feed).astype(s.charged.dtype)
    ready = s.steps + (1 if rules.beside else 0)
    end = ready + feed.out - 1
    slot = jnp.minimum(s.free, s.who.shape[0] - 1)
    taken, head = s.taken, s.head
    if rules.returns:
        taken, new_head = taken + (new & s.up_back), new & ~s.up_back
    else:
        new_head = new
    grow = feed.done.astype(s.pairs.dtype) + 0.5 * chunk
    once = new & ~s.up_again if rules.preempts else new
    first = all_of_it & (s.up_lost == 0) if rules.preempts else all_of_it
    base = feed.whole + 1 - (ready if s.growth is None else 0)
    now = feed.whole + 1 - ready + s.steps
    left = drafted.to_come(end - s.steps, feed.drafts and feed.drafts.each_of)
    return s._replace(
        head=head + new_head,
        taken=taken,
        running=s.running + new,
        held=s.held + jnp.where(new, aside, 0),
        left=s.left - rules.spent(feed.paid),
        fed=s.fed + chunk,
        pairs=s.pairs + chunk * grow,
        charged=s.charged + charge,
        part=jnp.where(feed.cut, at, -1),
        part_done=jnp.where(feed.cut, feed.done + chunk, s.part_done),
        joined=s.joined + all_of_it,
        joining=s.joining + (all_of_it & rules.counts(feed)),
        joined_tokens=s.joined_tokens + jnp.where(all_of_it, feed.whole + 1, 0),
        soonest=jnp.where(all_of_it, jnp.minimum(s.soonest, end), s.soonest),
        who=put(s.who, slot, at, all_of_it),
        ends=put(s.ends, slot, end, all_of_it),
        base=put(s.base, slot, base, all_of_it),
        watched=rules.summed(s, left, (now - 1, now), all_of_it),
        size=put(s.size, slot, aside, all_of_it),
        admitted=note(s.admitted, at, s.turn, once),
        first=note(s.first, at, s.turn, first),
        ready=note(s.ready, at, s.turn, all_of_it),
        last=note(s.last, at, end, all_of_it),
        growth=drafted.fed(s.growth, feed.drafts, slot, ready, all_of_it),
        kept=caches.fed(rules, s, requests, feed, new, once),
    )
