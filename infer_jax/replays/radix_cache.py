"""When prompts get into the radix tree of a cache, are used in it, and have to leave it.

SGLang (python/sglang/srt/managers/schedule_policy.py at 00550cd, ``PrefillAdder``; scheduler.py at
0003215; mem_cache/radix_cache.py at 006b0e3, ``cache_unfinished_req``, ``cache_finished_req``;
mem_cache/common.py at 0057abe, ``evict_from_tree_cache``): a request is looked up when it is tried
for a pass, and locks what was found if it is admitted. A part of a prompt is in the tree before the
next pass is put together, a prompt once the results of its last pass are read, a request with its
output once it has left; one that is preempted leaves in it what it had put there. Where pages are
short for a pass, as many as are missing are evicted.
"""

from typing import TYPE_CHECKING, NamedTuple, cast

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Int

from infer_jax.replays.prefix_cache import CacheHit, in_order, read_now
from infer_jax.replays.radix_tree import NONE, RadixTree, empty_tree, evict, find, insert, lock
from infer_jax.replays.requests import Prefixes
from infer_jax.replays.state import UNREACHED, State, change_where, get, note, put, total

if TYPE_CHECKING:
    from infer_jax.replays.prefill_first import PrefillFirst
    from infer_jax.replays.rules import Rules, ScheduledChunk
    from infer_jax.replays.scheduler import Scheduler


class RadixCache(NamedTuple):
    """A radix tree, and who uses it. The methods are those of ``NoCache``."""

    tree: RadixTree
    node: Int[Array, " n"]  # the last run that a request locks
    # the match of the request that comes next: its last run, and pages
    run: Int[Array, ""]
    matched: Int[Array, ""]
    unlocked: Int[Array, ""]  # of these, the ones that nobody locks
    parts: Int[Array, ""]  # requests that the pass put together feeds
    joins: Int[Array, " w"]  # those whose prompt it ends: twice the index, + 1 if they end, too
    leaving: Int[Array, " w"]  # the same of the pass that runs, if the engine has not read it
    cached: Int[Array, " n"]  # tokens found in the cache at the first admission
    waits, fetched, counts_unseen = False, 0, True

    @classmethod
    def start(cls, s: State, prefixes: Prefixes) -> State:
        """A state with an empty tree."""
        own, zero = jnp.zeros_like(s.log.last), jnp.zeros((), jnp.int32)
        path, never = s.log.path, jnp.full_like(s.slots.end, UNREACHED)
        tree = empty_tree(prefixes, own.shape[0], path.time.shape[0])
        cache = cls(tree, jnp.full_like(own, NONE), zero - 1, zero, zero, zero, never, never, own)
        path = path._replace(kept=jnp.zeros_like(path.count))
        return s._replace(cache=cache).update(log={"path": path})

    @property
    def shared(self) -> Array:
        """Pages that several requests count, less one each."""
        return self.tree.shared

    @property
    def overflowed(self) -> Array:
        """Whether the tree had no free entry for a run."""
        return self.tree.overflowed

    def look_up(self, ctx: "Scheduler", s: State) -> tuple["RadixCache", CacheHit]:
        """It is looked up where it is tried for a pass: what is found is used then."""
        rules, requests, prefixes = ctx.rules, ctx.requests, ctx.requests.prefixes
        assert prefixes is not None
        ok = ctx.waits(s) & (s.batch.request < 0) & rules.admits(s)
        tokens = get(requests.prompt, s.queue.next) + s.queue.next_lost - 1
        pages = lax.div(tokens, rules.block)

        def match(cache: RadixCache) -> RadixCache:
            tree, run, found = find(cache.tree, prefixes, s.queue.next, pages)

            _, count = lax.while_loop(
                lambda at: (at[0] >= 0) & (get(tree.locks, jnp.maximum(at[0], 0)) == 0),
                lambda at: (get(tree.before, at[0]), at[1] + get(tree.size, at[0])),
                (run, jnp.zeros_like(found)),
            )
            return cache._replace(tree=tree, run=run, matched=found, unlocked=count)

        cache = change_where(ok, self, match)
        used = cache.matched - cache.unlocked
        return cache, CacheHit(cache.matched * rules.block, cache.matched, used)

    def idle(self, rules: "Rules") -> Array:
        return self.tree.idle

    def admit(
        self, ctx: "Scheduler", s: State, chunk: "ScheduledChunk", new: Array, once: Array
    ) -> "RadixCache":
        """It locks what was found, where ``new``; a prompt may end in this pass."""
        at, slot = s.queue.next, jnp.minimum(s.slots.free, s.slots.request.shape[0] - 1)
        joins = put(self.joins, slot, 2 * at + (chunk.passes <= 1), ~chunk.cut)
        return self._replace(
            tree=lock(self.tree, jnp.where(new, self.run, NONE), 1),
            node=note(self.node, at, self.run, new),
            cached=note(self.cached, at, self.matched * ctx.rules.block, once),
            parts=self.parts + 1,
            joins=joins,
        )

    def preempt(self, ctx: "Scheduler", s: State, victim: Array, tokens: Array) -> "RadixCache":
        """It unlocks what it used, and pages are evicted for passes to come."""
        rules, tree = ctx.rules, lock(self.tree, get(self.node, victim), -1)
        used = s.slots.sums.last + s.unseen.blocks - tree.shared - rules.blocks_of(tokens)
        wanted = rules.blocks_of(cast("PrefillFirst", rules).retracted_tokens(s))
        mine = (self.leaving >> 1) == victim
        return self._replace(
            tree=evict(tree, rules.blocks - used - wanted),
            leaving=jnp.where(mine, UNREACHED, self.leaving),
        )

    def finish(
        self, ctx: "Scheduler", s: State, steps: Array, go: Array, caught: Array
    ) -> "RadixCache":
        """What passes computed is in the tree once the engine has read it."""
        s = ctx.recount(s)
        slots, rules, requests = s.slots, ctx.rules, ctx.requests
        lags, prompts = rules.overlap > 0, s.batch.tokens > 0
        decoding = slots.decoding + s.unseen.finished
        there, several = slots.end < UNREACHED, go & (steps - s.clock.steps > 1)
        left = there & (slots.end <= steps) & ~prompts & go
        left = jnp.where(left, 2 * slots.request + 1, UNREACHED)
        new = jnp.where(prompts, self.joins, left)
        known, leaving = read_now(lags, self.leaving, new, go, caught)
        # pages for the first pass, what the engine reads then, pages for the last, a prompt's part.
        # A pass that decodes asks for a page for each request, one with prompts takes what it
        # feeds; where a page has several tokens it asks for that, not rounded, and a page each.
        fed = lax.div(rules.prompt_budget(s) - s.batch.left, rules.block)
        more = rules.blocks_of(s.batch.tokens + self.parts * rules.block) - fed
        first = jnp.where(prompts, jnp.where(rules.block > 1, more, 0), decoding)
        grown = rules.blocks_of(slots.base + steps - 2)
        grown = total(jnp.where(there, grown, 0)) + decoding
        part = jnp.where(go & (s.batch.request >= 0), 2 * s.batch.request, UNREACHED)
        held = rules.taken_blocks(s, requests) + s.unseen.blocks + self.shared
        before = jnp.maximum(held + first, jnp.where(several & ~lags, grown, 0))
        before, behind = jnp.where(go, before, 0), jnp.where(several & lags, grown, 0)
        again = lags & go & ~prompts

        def read(i: Array, cache: RadixCache) -> RadixCache:
            most = jnp.where(i == 0, before, behind)
            tree = evict(cache.tree, rules.blocks - most + cache.shared, most > 0)
            items = jnp.where(i == 0, known, jnp.full_like(known, UNREACHED).at[0].set(part))
            return cache._replace(tree=tree)._read(ctx, s, items, again, i > 0)

        cache = lax.fori_loop(jnp.zeros_like(part), jnp.full_like(part, 2), read, self)
        return cache._replace(
            leaving=leaving,
            joins=jnp.where(go, UNREACHED, self.joins),
            parts=jnp.where(go, 0, self.parts),
        )

    def _read(
        self, ctx: "Scheduler", s: State, items: Array, again: Array, partly: Array
    ) -> "RadixCache":
        """The tree with what requests computed, in order of arrival; those that end unlock it.

        ``again``: those that end have decoded once more; ``partly``: it is a part of a prompt.
        """
        rules, requests, prefixes = ctx.rules, ctx.requests, ctx.requests.prefixes
        assert prefixes is not None

        def enter(cache: RadixCache, item: Array) -> RadixCache:
            at, over = item >> 1, (item & 1) > 0
            prompt = get(requests.prompt, at)
            ended = prompt + get(requests.output, at) - 1 + again
            count = jnp.where(over, ended, prompt + get(s.log.produced, at))
            count = jnp.where(partly, s.batch.computed, count)
            tree, run = insert(cache.tree, prefixes, at, lax.div(count, rules.block))
            run = jnp.where(over, NONE, run)
            tree = lock(lock(tree, run, 1), get(cache.node, at), -1)
            return cache._replace(tree=tree, node=put(cache.node, at, run))

        return in_order(items, self, enter)
