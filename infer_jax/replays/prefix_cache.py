"""Blocks of prompts that stay in the cache: shared by running requests, kept until room is short.

vLLM V1 (vllm/v1/core/block_pool.py, kv_cache_manager.py and single_type_kv_cache_manager.py of
0.24): a block that no request uses goes to the end of a queue, of a request the last block first,
and new blocks are taken from its front; one that is found is taken out. A block that is not full
goes to the front. So the place of a block in the queue, counted from its very beginning, is known
when it gets there, and it is in the cache while fewer blocks have been taken from the front. Where
one is taken out, those behind it move up. Nothing is to be done when blocks are evicted.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Int

from infer_jax.replays.prefixes import Prefixes
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules
from infer_jax.replays.state import NEVER, State, get, note, put, total


class PrefixCache(NamedTuple):
    """The state of a prefix cache: of shared parts, and of what a preempted request has alone."""

    users: Int[Array, " p"]  # running requests that use a part
    place: Int[Array, " p"]  # in the queue, of the first block of a part that none uses
    there: Int[Array, " p"]  # blocks of it that were computed
    own_place: Int[Array, " n"]
    own_there: Int[Array, " n"]
    again: Int[Array, " n"]  # 1 where the last block of the prompt was found and computed anew
    shared: Int[Array, ""]  # blocks that several requests count, less one each
    flow: Int[Array, ""]  # blocks that went to the queue's end, less those that were found in it
    popped: Int[Array, ""]  # the place up to which the queue was used up
    lost: Int[Array, ""]  # the place up to which blocks have left host memory, too
    fetched: Int[Array, ""]  # blocks that the pass put together brings back from there
    leaving: Int[Array, " w"]  # requests that left, if the engine does not know yet
    tokens: Int[Array, " n"]  # found in the cache at the first admission
    # where what a pass computes is found once it was read: who computes a part, what was shared
    # when the pass was begun, and whether the request that comes next waits for a part
    owner: Int[Array, " p"]
    counted: Int[Array, ""]
    waits: Bool[Array, ""]


class Found(NamedTuple):
    """What a lookup finds of a prompt, in blocks."""

    all: Int[Array, ""]
    used: Int[Array, ""]  # of these, by running requests
    fetched: Int[Array, ""]  # of these, from host memory
    again: Bool[Array, ""]  # whether the last block of the prompt is there and is computed anew
    popped: Int[Array, ""]
    lost: Int[Array, ""]
    counted: Int[Array, ""]  # blocks that requests shared when the pass was begun
    waits: Bool[Array, ""]  # whether a running request computes what is wanted next


def opened(s: State, prefixes: Prefixes, width: int) -> State:
    """A state with an empty prefix cache."""
    zero = jnp.zeros((), jnp.int32)
    parts, own = jnp.zeros_like(prefixes.blocks), jnp.zeros_like(s.last)
    kept = PrefixCache(
        users=parts, place=parts, there=parts, own_place=own, own_there=own, again=own,
        shared=zero, flow=zero, popped=zero, lost=zero, fetched=zero,
        leaving=jnp.full(width, NEVER, jnp.int32), tokens=own, owner=parts, counted=zero,
        waits=zero > 0,
    )  # fmt: skip
    path = s.path._replace(kept=jnp.zeros_like(s.path.count), fetching=jnp.zeros_like(s.path.time))
    return s._replace(kept=kept, path=path)


def look(rules: Rules, s: State, requests: Requests) -> Found | None:
    """What is in the cache of the request that comes next, if prefixes are kept."""
    kept, prefixes = s.kept, requests.prefixes
    if not isinstance(kept, PrefixCache) or prefixes is None:
        return None
    popped = jnp.maximum(kept.popped, rules.taken(s, requests) + s.late_blocks + kept.flow)
    lost = jnp.maximum(kept.lost, popped - rules.host)
    at, depth = s.up, get(prefixes.depth, s.up)
    zero = jnp.zeros_like(popped)

    def more(given: tuple[Array, ...]) -> Array:
        return given[4] & (given[0] < depth)

    def one(given: tuple[Array, ...]) -> tuple[Array, ...]:
        i, found, used, fetched, _, _, _, _ = given
        part = prefixes.parts[at, i]
        size, uses = get(prefixes.blocks, part), get(kept.users, part) > 0
        waits = uses & _computed(rules, s, get(kept.owner, part)) if rules.stores else zero > 0
        uses &= ~waits
        there = jnp.where(uses, size, _left(kept, part, lost))
        away = jnp.where(uses, 0, there - _left(kept, part, popped))
        used += jnp.where(uses, there, 0)
        whole = ~waits & (there >= size)
        return i + 1, found + there, used, fetched + away, whole, uses, away > 0, waits

    looks = (s.part < 0) & (s.left > 0)
    start = zero, zero, zero, zero, looks, looks, looks, zero > 0
    _, found, used, fetched, whole, uses, away, waits = lax.while_loop(more, one, start)
    # at most all but one token of a prompt is found; one that was preempted has more than its own
    again = whole & (get(prefixes.ends, at) > 0) & (s.up_lost == 0)
    own, near = (
        jnp.clip(get(kept.own_place, at) - x, 0, get(kept.own_there, at)) for x in (lost, popped)
    )
    return Found(
        all=found - again + jnp.where(whole, own, 0),
        used=used - (again & uses),
        fetched=fetched - (again & ~uses & away) + jnp.where(whole, own - near, 0),
        again=again,
        popped=popped,
        lost=lost,
        counted=kept.counted,
        waits=waits,
    )


def _computed(rules: Rules, s: State, owner: Array) -> Array:
    """Whether a request's prompt is being computed, or was in a pass that was not read."""
    read = s.turn > get(s.ready, owner) + rules.overlap
    return ~((get(s.last, owner) < NEVER) & read)


def _left(kept: PrefixCache, part: Array, gone: Array) -> Array:
    """Blocks of a part that no request uses which are not among the first ``gone`` places."""
    return jnp.clip(get(kept.place, part) - gone, 0, get(kept.there, part))


def admitted(
    rules: Rules, s: State, requests: Requests, found: Found | None, new: Array, once: Array
) -> PrefixCache | None:
    """The cache once the request that was looked up uses what was found, where ``new``."""
    prefixes = requests.prefixes
    if not isinstance(s.kept, PrefixCache) or prefixes is None or found is None:
        return None
    at, hit, stores = s.up, found, rules.stores
    depth = get(prefixes.depth, at) - hit.again

    def one(kept: PrefixCache) -> PrefixCache:
        def use(i: Array, given: tuple[PrefixCache, Array]) -> tuple[PrefixCache, Array]:
            kept, whole = given
            part = prefixes.parts[at, i]
            users, place = get(kept.users, part), get(kept.place, part)
            there = _left(kept, part, hit.lost)
            kept = _moved_up(kept, place, jnp.where(whole & (users == 0), there, 0))
            whole &= (users > 0) | (there >= get(prefixes.blocks, part))
            if stores:
                kept = kept._replace(owner=put(kept.owner, part, at, ~whole))
            return kept._replace(users=put(kept.users, part, users + 1)), whole

        zero = jnp.zeros_like(depth)
        kept, whole = lax.fori_loop(zero, depth, use, (kept, jnp.asarray(True)))
        place, there = get(kept.own_place, at), get(kept.own_there, at)
        own = jnp.clip(place - hit.lost, 0, there)
        kept = _moved_up(kept, place, jnp.where(whole, own, 0))
        return kept._replace(
            again=put(kept.again, at, hit.again),
            shared=kept.shared + hit.used,
            flow=kept.flow - hit.all + hit.used,
            popped=hit.popped - hit.fetched,
            lost=hit.lost,
            fetched=kept.fetched + hit.fetched,
            tokens=note(kept.tokens, at, hit.all * rules.block, once),
        )

    return _where(new, one, s.kept)


def _moved_up(kept: PrefixCache, place: Array, out: Array) -> PrefixCache:
    """The cache with ``out`` blocks that end at ``place`` taken out of the queue."""

    def one(kept: PrefixCache) -> PrefixCache:
        moved = (jnp.where(x > place, x - out, x) for x in (kept.place, kept.own_place))
        return kept._replace(**dict(zip(("place", "own_place"), moved, strict=True)))

    return _where(out > 0, one, kept)


def _where(
    ok: Array, change: Callable[[PrefixCache], PrefixCache], kept: PrefixCache
) -> PrefixCache:
    """The cache changed where ``ok``: a loop of one turn or none, as a choice copies all of it."""

    def one(given: tuple[Array, PrefixCache]) -> tuple[Array, PrefixCache]:
        return jnp.zeros_like(given[0]), change(given[1])

    return lax.while_loop(lambda given: given[0], one, (ok, kept))[1]


def freed(
    rules: Rules, requests: Requests, kept: PrefixCache, at: Array, tokens: Array
) -> PrefixCache:
    """The cache once a request with ``tokens`` tokens in it uses its blocks no more.

    A block that is full goes to the queue's end if nobody else uses it, the last one first.
    """
    prefixes = requests.prefixes
    assert prefixes is not None
    again = get(kept.again, at)
    held, full = rules.needed(tokens), lax.div(tokens, rules.block)
    if rules.stores:  # one that is not full goes to the queue's end, too
        kept = kept._replace(flow=kept.flow + held - full)
    covered = get(prefixes.covered, at) - again
    own = jnp.maximum(full - covered, 0)
    start = rules.blocks + kept.flow + own
    kept = kept._replace(
        own_place=put(kept.own_place, at, start - again),
        own_there=put(kept.own_there, at, jnp.maximum(own - again, 0)),
        flow=kept.flow + own,
    )

    def more(given: tuple[PrefixCache, Array, Array]) -> Array:
        return given[1] > 0

    def one(given: tuple[PrefixCache, Array, Array]) -> tuple[PrefixCache, Array, Array]:
        kept, i, end = given
        part = prefixes.parts[at, i - 1]
        size, users = get(prefixes.blocks, part), get(kept.users, part) - 1
        mine, there = (jnp.clip(x - end + size, 0, size) for x in (held, full))
        idle = users == 0
        flow = kept.flow + jnp.where(idle, there, 0)
        kept = kept._replace(
            users=put(kept.users, part, users),
            place=put(kept.place, part, rules.blocks + flow, idle),
            there=put(kept.there, part, there, idle),
            shared=kept.shared - jnp.where(idle, 0, mine),
            flow=flow,
        )
        return kept, i - 1, end - size

    depth = get(prefixes.depth, at) - again
    return lax.while_loop(more, one, (kept, depth, covered))[0]


def preempted(
    rules: Rules, requests: Requests, s: State, victim: Array, tokens: Array
) -> PrefixCache | None:
    """The cache once a request has made room; what was kept is used up."""
    kept = s.kept
    if not isinstance(kept, PrefixCache):
        return None
    taken = jnp.minimum(rules.taken(s, requests) + s.late_blocks, rules.blocks)
    kept = _used_up(rules, kept, taken + kept.shared)
    return freed(rules, requests, kept, victim, tokens)


def ended(
    rules: Rules, requests: Requests, s: State, after: State, go: Array, caught: Array
) -> State:
    """The state ``after`` passes, blocks free of requests that the engine knows to have left."""
    kept = after.kept
    if not isinstance(kept, PrefixCache):
        return after
    # blocks taken in the first pass and in the last, before what leaves then is free again; what
    # the engine did not know to have left is free after the first
    lags = rules.overlap > 0
    there, held = s.ends < NEVER, rules.needed(s.base + after.steps - 1)
    taken = rules.taken(s, requests) + kept.shared
    grown = jnp.maximum(taken + total(jnp.where(there, held, 0)) - s.watched[1], taken)
    first = taken + s.late_blocks
    kept = _used_up(rules, kept, jnp.where(lags, first, jnp.maximum(first, grown)), go)
    new = jnp.where(go & there & (s.ends <= after.steps), s.who, NEVER)
    known = jnp.where(lags, jnp.where(go | caught, kept.leaving, NEVER), new)
    later = jnp.where(go, new, jnp.where(caught, NEVER, kept.leaving))

    def some(given: tuple[PrefixCache, Array]) -> Array:
        return jnp.min(given[1]) < NEVER

    def one(given: tuple[PrefixCache, Array]) -> tuple[PrefixCache, Array]:
        kept, known = given
        at = jnp.min(known)
        tokens = get(requests.prompt, at) + get(requests.output, at) - 1
        kept = freed(rules, requests, kept, at, tokens)
        return kept, jnp.where(known == at, NEVER, known)

    kept, _ = lax.while_loop(some, one, (kept, known))
    kept = _used_up(rules, kept, grown, go & lags)
    seconds = kept.fetched * rules.fetch
    kept = kept._replace(fetched=jnp.where(go, 0, kept.fetched))
    leaving = jnp.where(lags, later, kept.leaving)
    counted = jnp.where(go | caught, kept.shared, kept.counted)
    kept = kept._replace(leaving=leaving, counted=counted)
    after = after._replace(kept=kept)
    idle = rules.blocks + kept.flow - jnp.maximum(kept.popped, rules.blocks)
    entries = {"blocks": rules.used(after, requests), "kept": idle, "fetching": seconds}
    path = after.path
    assert path.kept is not None
    columns = {name: put(getattr(path, name), s.turn, x) for name, x in entries.items()}
    return after._replace(path=path._replace(**columns))


def _used_up(
    rules: Rules, kept: PrefixCache, counted: Array, ok: Array | bool = True
) -> PrefixCache:
    """The cache once running requests count as many blocks: the queue is shorter, where ``ok``."""
    most = jnp.maximum(kept.popped, counted - kept.shared + kept.flow)
    popped = jnp.where(ok, most, kept.popped)
    return kept._replace(popped=popped, lost=jnp.maximum(kept.lost, popped - rules.host))
