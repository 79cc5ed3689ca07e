"""Blocks of prompts that stay in the cache: shared by running requests, evicted when it is full.

vLLM V1 (vllm/v1/core/block_pool.py, kv_cache_manager.py and single_type_kv_cache_manager.py of
0.24): a block that no request uses goes to the end of a queue, of a request the last block first,
and new blocks are taken from its front; one that is found is taken out. A block that is not full
goes to the front. So the place of a block in the queue, counted from its very beginning, is known
when it gets there, and it is in the cache while fewer blocks have been taken from the front. Where
one is taken out, those behind it move up. Nothing is to be done when blocks are evicted.

``NoCache`` is of a server without prefix caching, ``RadixCache`` is SGLang's tree: the scheduler
calls the same methods of all three.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Int

from infer_jax.replays.requests import Prefixes
from infer_jax.replays.state import UNREACHED, State, Tree, change_where, get, note, put, total

if TYPE_CHECKING:
    from infer_jax.replays.rules import Rules, ScheduledChunk
    from infer_jax.replays.scheduler import Scheduler


class CacheHit(NamedTuple):
    """What a lookup finds of a prompt, in blocks."""

    tokens: Array  # that need not be computed
    blocks: Array | int = 0
    used: Array | int = 0  # of these, by running requests
    fetched: Array | int = 0  # of these, from host memory
    again: Array | bool = False  # whether the prompt's last block is cached and computed anew
    popped: Array | int = 0
    lost: Array | int = 0
    counted: Array | int = 0  # blocks that requests shared when the pass was begun
    waits: Array | bool = False  # whether a running request computes what is wanted next


class NoCache(NamedTuple):
    """No prompt is looked up; what is said to be cached of one need not be computed."""

    shared = 0  # blocks that several requests count, less one each
    waits = False  # whether the request that comes next waits for what another one computes
    overflowed = False  # whether the arrays had no entry left
    cached = None  # tokens found of each request
    fetched = 0  # blocks that the next pass brings back from host memory
    counts_unseen = False  # whether a path counts blocks of requests that left unseen

    @classmethod
    def start(cls, s: State, prefixes: Prefixes) -> State:
        """The state of a server that has just started."""
        return s

    def look_up(self, ctx: "Scheduler", s: State) -> tuple["NoCache", CacheHit]:
        """What is in the cache of the request that comes next, and the cache that knows it."""
        return self, CacheHit(get(ctx.requests.cached, s.queue.next))

    def admit(
        self, ctx: "Scheduler", s: State, chunk: "ScheduledChunk", new: Array, once: Array
    ) -> "NoCache":
        """The cache once a chunk is in the pass; ``new``: the first of an admission, ``once``:
        of the first one."""
        return self

    def preempt(self, ctx: "Scheduler", s: State, victim: Array, tokens: Array) -> "NoCache":
        """The cache once a request with ``tokens`` tokens in it was preempted."""
        return self

    def finish(
        self, ctx: "Scheduler", s: State, steps: Array, go: Array, caught: Array
    ) -> "NoCache":
        """The cache once passes have run up to a step, where ``go``, or were ``caught`` up with."""
        return self

    def idle(self, rules: "Rules") -> Array | int:
        """Blocks of prompts in the cache that no request uses."""
        return 0


class PrefixCache(NamedTuple):
    """The state of a prefix cache: of shared parts, and of what a preempted request has alone."""

    users: Int[Array, " p"]  # running requests that use a part
    place: Int[Array, " p"]  # in the queue, of the first block of a part that none uses
    there: Int[Array, " p"]  # blocks of it that are computed
    own_place: Int[Array, " n"]
    own_there: Int[Array, " n"]
    again: Int[Array, " n"]  # 1 where the last block of the prompt was found and computed anew
    shared: Int[Array, ""]  # blocks that several requests count, less one each
    flow: Int[Array, ""]  # blocks that went to the queue's end, less those that were found in it
    popped: Int[Array, ""]  # the place up to which the queue was used up
    lost: Int[Array, ""]  # the place up to which blocks have left host memory, too
    fetched: Int[Array, ""]  # blocks that the next pass brings back from host memory
    leaving: Int[Array, " w"]  # requests that left, if the engine does not know yet
    cached: Int[Array, " n"]  # tokens found in the cache at the first admission
    # where what a pass computes is found once it was read: who computes a part, what was shared
    # when the pass was begun, and whether the request that comes next waits for a part
    owner: Int[Array, " p"]
    counted: Int[Array, ""]
    waits: Bool[Array, ""]
    overflowed = False
    counts_unseen = True

    @classmethod
    def start(cls, s: State, prefixes: Prefixes) -> State:
        """A state with an empty prefix cache."""
        zero = jnp.zeros((), jnp.int32)
        parts, own = jnp.zeros_like(prefixes.blocks), jnp.zeros_like(s.log.last)
        cache = cls(
            users=parts, place=parts, there=parts, own_place=own, own_there=own, again=own,
            shared=zero, flow=zero, popped=zero, lost=zero, fetched=zero,
            leaving=jnp.full_like(s.slots.end, UNREACHED), cached=own, owner=parts, counted=zero,
            waits=zero > 0,
        )  # fmt: skip
        path = s.log.path
        kept, fetching = jnp.zeros_like(path.count), jnp.zeros_like(path.time)
        path = path._replace(kept=kept, fetching=fetching)
        return s._replace(cache=cache).update(log={"path": path})

    def look_up(self, ctx: "Scheduler", s: State) -> tuple["PrefixCache", CacheHit]:
        rules, prefixes = ctx.rules, ctx.requests.prefixes
        assert prefixes is not None
        taken = rules.taken_blocks(s, ctx.requests) + s.unseen.blocks
        popped = jnp.maximum(self.popped, taken + self.flow)
        lost = jnp.maximum(self.lost, popped - rules.host)
        at, depth = s.queue.next, get(prefixes.depth, s.queue.next)
        zero = jnp.zeros_like(popped)

        def body(carry: tuple[Array, ...]) -> tuple[Array, ...]:
            i, found, used, fetched, _, _, _, _ = carry
            part = prefixes.parts[at, i]
            size, uses = get(prefixes.blocks, part), get(self.users, part) > 0
            waits = zero > 0
            if rules.found_once_read:
                # the owner's prompt is being computed, or was in a pass that was not read
                owner = get(self.owner, part)
                read = s.clock.entries > get(s.log.ready, owner) + rules.overlap
                waits = uses & ~((get(s.log.last, owner) < UNREACHED) & read)
            uses &= ~waits
            there = jnp.where(uses, size, self._left(part, lost))
            away = jnp.where(uses, 0, there - self._left(part, popped))
            used += jnp.where(uses, there, 0)
            complete = ~waits & (there >= size)
            return i + 1, found + there, used, fetched + away, complete, uses, away > 0, waits

        tries = (s.batch.request < 0) & (s.batch.left > 0)
        start = zero, zero, zero, zero, tries, tries, tries, zero > 0
        _, found, used, fetched, complete, uses, away, waits = lax.while_loop(
            lambda carry: carry[4] & (carry[0] < depth), body, start
        )
        # all but one token of a prompt can be found; one that was preempted has more than its own
        again = complete & (get(prefixes.ends, at) > 0) & (s.queue.next_lost == 0)
        own, near = (
            jnp.clip(get(self.own_place, at) - x, 0, get(self.own_there, at))
            for x in (lost, popped)
        )
        blocks = found - again + jnp.where(complete, own, 0)
        hit = CacheHit(
            tokens=blocks * rules.block,
            blocks=blocks,
            used=used - (again & uses),
            fetched=fetched - (again & ~uses & away) + jnp.where(complete, own - near, 0),
            again=again,
            popped=popped,
            lost=lost,
            counted=self.counted,
            waits=waits,
        )
        return self._replace(waits=waits & ctx.waits(s) & (s.batch.request < 0)), hit

    def _left(self, part: Array, gone: Array | int) -> Array:
        """Blocks of an unused part that are not among the first ``gone`` places of the queue."""
        return jnp.clip(get(self.place, part) - gone, 0, get(self.there, part))

    def admit(
        self, ctx: "Scheduler", s: State, chunk: "ScheduledChunk", new: Array, once: Array
    ) -> "PrefixCache":
        """The request that was looked up uses what was found, where ``new``."""
        prefixes, at, hit = ctx.requests.prefixes, s.queue.next, chunk.hit
        assert prefixes is not None
        depth = get(prefixes.depth, at) - hit.again

        def use(i: Array, carry: tuple[PrefixCache, Array]) -> tuple[PrefixCache, Array]:
            cache, complete = carry
            part = prefixes.parts[at, i]
            users, place = get(cache.users, part), get(cache.place, part)
            there = cache._left(part, hit.lost)
            cache = cache._move_up(place, jnp.where(complete & (users == 0), there, 0))
            complete &= (users > 0) | (there >= get(prefixes.blocks, part))
            if ctx.rules.found_once_read:
                cache = cache._replace(owner=put(cache.owner, part, at, ~complete))
            return cache._replace(users=put(cache.users, part, users + 1)), complete

        def change(cache: PrefixCache) -> PrefixCache:
            zero = jnp.zeros_like(depth)
            cache, complete = lax.fori_loop(zero, depth, use, (cache, jnp.asarray(True)))
            place, there = get(cache.own_place, at), get(cache.own_there, at)
            own = jnp.clip(place - hit.lost, 0, there)
            cache = cache._move_up(place, jnp.where(complete, own, 0))
            return cache._replace(
                again=put(cache.again, at, jnp.asarray(hit.again)),
                shared=cache.shared + hit.used,
                flow=cache.flow - hit.blocks + hit.used,
                popped=hit.popped - hit.fetched,
                lost=hit.lost,
                fetched=cache.fetched + hit.fetched,
                cached=note(cache.cached, at, hit.tokens, once),
            )

        return change_where(new, self, change)

    def _move_up(self, place: Array, out: Array) -> "PrefixCache":
        """The cache with ``out`` blocks that end at ``place`` taken out of the queue."""

        def change(cache: PrefixCache) -> PrefixCache:
            places, own = (jnp.where(x > place, x - out, x) for x in (cache.place, cache.own_place))
            return cache._replace(place=places, own_place=own)

        return change_where(out > 0, self, change)

    def _free(self, ctx: "Scheduler", at: Array, tokens: Array) -> "PrefixCache":
        """The cache once a request with ``tokens`` tokens in it uses its blocks no more.

        A block that is full goes to the queue's end if nobody else uses it, the last one first.
        """
        cache, rules, prefixes = self, ctx.rules, ctx.requests.prefixes
        assert prefixes is not None
        again = get(cache.again, at)
        held, full = rules.blocks_of(tokens), lax.div(tokens, rules.block)
        if rules.found_once_read:  # one that is not full goes to the queue's end, too
            cache = cache._replace(flow=cache.flow + held - full)
        covered = get(prefixes.covered, at) - again
        own = jnp.maximum(full - covered, 0)
        start = rules.blocks + cache.flow + own
        cache = cache._replace(
            own_place=put(cache.own_place, at, start - again),
            own_there=put(cache.own_there, at, jnp.maximum(own - again, 0)),
            flow=cache.flow + own,
        )

        def body(carry: tuple[PrefixCache, Array, Array]) -> tuple[PrefixCache, Array, Array]:
            cache, i, end = carry
            part = prefixes.parts[at, i - 1]
            size, users = get(prefixes.blocks, part), get(cache.users, part) - 1
            mine, there = (jnp.clip(x - end + size, 0, size) for x in (held, full))
            idle = users == 0
            flow = cache.flow + jnp.where(idle, there, 0)
            cache = cache._replace(
                users=put(cache.users, part, users),
                place=put(cache.place, part, rules.blocks + flow, idle),
                there=put(cache.there, part, there, idle),
                shared=cache.shared - jnp.where(idle, 0, mine),
                flow=flow,
            )
            return cache, i - 1, end - size

        depth = get(prefixes.depth, at) - again
        return lax.while_loop(lambda carry: carry[1] > 0, body, (cache, depth, covered))[0]

    def preempt(self, ctx: "Scheduler", s: State, victim: Array, tokens: Array) -> "PrefixCache":
        rules = ctx.rules
        taken = jnp.minimum(rules.taken_blocks(s, ctx.requests) + s.unseen.blocks, rules.blocks)
        cache = self._use_up(rules, taken + self.shared)
        return cache._free(ctx, victim, tokens)

    def finish(
        self, ctx: "Scheduler", s: State, steps: Array, go: Array, caught: Array
    ) -> "PrefixCache":
        """Blocks are free of requests that the engine knows to have left."""
        rules, requests, s = ctx.rules, ctx.requests, ctx.recount(s)
        # blocks taken in the first pass and in the last, before what leaves then is free again;
        # what the engine did not know to have left is free after the first
        slots, lags = s.slots, rules.overlap > 0
        there = slots.end < UNREACHED
        held = rules.blocks_of(slots.base + steps - 1)
        taken = rules.taken_blocks(s, requests) + self.shared
        grown = jnp.maximum(taken + total(jnp.where(there, held, 0)) - slots.sums.next, taken)
        first = taken + s.unseen.blocks
        cache = self._use_up(rules, jnp.where(lags, first, jnp.maximum(first, grown)), go)
        new = jnp.where(go & there & (slots.end <= steps), slots.request, UNREACHED)
        known, leaving = read_now(lags, self.leaving, new, go, caught)

        def free(cache: PrefixCache, at: Array) -> PrefixCache:
            return cache._free(ctx, at, get(requests.prompt, at) + get(requests.output, at) - 1)

        cache = in_order(known, cache, free)._use_up(rules, grown, go & lags)
        return cache._replace(
            fetched=jnp.where(go, 0, cache.fetched),
            leaving=leaving,
            counted=jnp.where(go | caught, cache.shared, cache.counted),
        )

    def idle(self, rules: "Rules") -> Array:
        return rules.blocks + self.flow - jnp.maximum(self.popped, rules.blocks)

    def _use_up(self, rules: "Rules", counted: Array, ok: Array | bool = True) -> "PrefixCache":
        """The cache once running requests count as many blocks: the queue is shorter."""
        longest = jnp.maximum(self.popped, counted - self.shared + self.flow)
        popped = jnp.where(ok, longest, self.popped)
        return self._replace(popped=popped, lost=jnp.maximum(self.lost, popped - rules.host))


def read_now(
    lags: Array, leaving: Array, new: Array, go: Array, caught: Array
) -> tuple[Array, Array]:
    """Which of the requests that left the engine reads now, and which later.

    ``new`` are those of the pass that has run, ``leaving`` those of the pass before, which an
    engine that ``lags`` reads while the next one runs.
    """
    never = jnp.full_like(new, UNREACHED)
    known = jnp.where(lags, jnp.where(go | caught, leaving, never), jnp.where(go, new, never))
    later = jnp.where(go, new, jnp.where(caught, never, leaving))
    return known, jnp.where(lags, later, leaving)


def in_order(items: Array, cache: Tree, act: Callable[[Tree, Array], Tree]) -> Tree:
    """The cache after ``act`` for each of some items, the smallest first."""

    def body(carry: tuple[Tree, Array]) -> tuple[Tree, Array]:
        cache, items = carry
        item = jnp.min(items)
        return act(cache, item), jnp.where(items == item, UNREACHED, items)

    return lax.while_loop(lambda carry: jnp.min(carry[1]) < UNREACHED, body, (cache, items))[0]
