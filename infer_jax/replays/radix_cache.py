"""When prompts get into the radix tree of a cache, are used in it, and have to leave it.

SGLang (python/sglang/srt/managers/schedule_policy.py at 00550cd, ``PrefillAdder``; scheduler.py at
0003215; mem_cache/radix_cache.py at 006b0e3, ``cache_unfinished_req``, ``cache_finished_req``;
mem_cache/common.py at 0057abe, ``evict_from_tree_cache``): a request is looked up when it is tried
for a pass, and locks what was found if it is admitted. A part of a prompt is in the tree before the
next pass is put together, a prompt once the results of its last pass are read, a request with its
output once it has left; one that is taken back leaves there what it had put there. Where pages are
short for a pass, as many as are missing are given up.
"""

import jax.numpy as jnp
from jax import Array, lax

from infer_jax.replays.prefix_cache import Found
from infer_jax.replays.radix_tree import NONE, RadixTree, evicted, inserted, locked, matched
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules
from infer_jax.replays.state import NEVER, State, get, note, put, total


def tried(rules: Rules, s: State, requests: Requests, ok: Array) -> State:
    """The state with the request that comes next looked up, where ``ok``: it is used then."""
    prefixes = requests.prefixes
    assert isinstance(s.kept, RadixTree) and prefixes is not None
    pages = lax.div(get(requests.prompt, s.up) + s.up_lost - 1, rules.block)

    def one(given: tuple[Array, RadixTree]) -> tuple[Array, RadixTree]:
        tree, run, found = matched(given[1], prefixes, s.up, pages)

        def loose(given: tuple[Array, Array]) -> Array:
            return (given[0] >= 0) & (get(tree.locks, jnp.maximum(given[0], 0)) == 0)

        def add(given: tuple[Array, Array]) -> tuple[Array, Array]:
            return get(tree.before, given[0]), given[1] + get(tree.size, given[0])

        _, count = lax.while_loop(loose, add, (run, jnp.zeros_like(found)))
        return jnp.zeros_like(ok), tree._replace(run=run, found=found, loose=count)

    _, kept = lax.while_loop(lambda given: given[0], one, (ok, s.kept))
    return s._replace(kept=kept)


def found(tree: RadixTree) -> Found:
    """What was found of the request that was looked up, in pages."""
    used = tree.found - tree.loose
    zero = jnp.zeros_like(used)
    return Found(tree.found, used, zero, zero > 0, zero, zero, zero, zero > 0)


def admitted(s: State, new: Array, once: Array, block: Array) -> RadixTree:
    """The tree once the request that was looked up locks what was found, where ``new``."""
    assert isinstance(s.kept, RadixTree)
    tree = locked(s.kept, jnp.where(new, s.kept.run, NONE), 1)
    return tree._replace(
        node=note(tree.node, s.up, tree.run, new),
        tokens=note(tree.tokens, s.up, tree.found * block, once),
    )


def fed(s: State, tree: RadixTree, slot: Array, whole: Array, ends: Array) -> RadixTree:
    """The tree once a part is in the pass, and ends a prompt, where ``whole``."""
    item = 2 * s.up + ends
    return tree._replace(parts=tree.parts + 1, joins=put(tree.joins, slot, item, whole))


def preempted(
    rules: Rules, requests: Requests, s: State, victim: Array, tokens: Array
) -> RadixTree:
    """The tree once a request has made room, and some for passes to come."""
    tree = s.kept
    assert isinstance(tree, RadixTree)
    tree = locked(tree, get(tree.node, victim), -1)
    mine = (tree.leaving >> 1) == victim
    tree = tree._replace(leaving=jnp.where(mine, NEVER, tree.leaving))
    used = s.watched[0] + s.late_blocks - tree.shared - rules.needed(tokens)
    asked = rules.needed(rules.left_free(s))
    return evicted(tree, rules.blocks - used - asked)


def ended(
    rules: Rules, requests: Requests, s: State, after: State, go: Array, caught: Array
) -> State:
    """The state ``after`` passes: what they computed is in the tree once the engine has read it."""
    tree = after.kept
    assert isinstance(tree, RadixTree)
    lags, prompts = rules.overlap > 0, s.fed > 0
    there, several = s.ends < NEVER, go & (after.steps - s.steps > 1)
    left = jnp.where(there & (s.ends <= after.steps) & ~prompts & go, 2 * s.who + 1, NEVER)
    new = jnp.where(prompts, tree.joins, left)
    late = jnp.where(go | caught, tree.leaving, NEVER)
    # room for the first pass, what the engine reads then, room for the last, a prompt's part so far
    first, grown = _asked(rules, s, tree), rules.needed(s.base + after.steps - 2)
    grown = total(jnp.where(there, grown, 0)) + s.decoding + s.late
    part = jnp.where(go & (s.part >= 0), 2 * s.part, NEVER)
    held = rules.taken(s, requests) + s.late_blocks + tree.shared
    before = jnp.where(go, jnp.maximum(held + first, jnp.where(several & ~lags, grown, 0)), 0)
    behind = jnp.where(several & lags, grown, 0)
    known = jnp.where(lags, late, jnp.where(go, new, NEVER))
    again = lags & go & ~prompts

    def both(i: Array, tree: RadixTree) -> RadixTree:
        most = jnp.where(i == 0, before, behind)
        tree = evicted(tree, rules.blocks - most + tree.shared, most > 0)
        items = jnp.where(i == 0, known, jnp.full_like(known, NEVER).at[0].set(part))
        return _read(rules, requests, s, tree, items, again, i > 0)

    tree = lax.fori_loop(jnp.zeros_like(part), jnp.full_like(part, 2), both, tree)
    later = jnp.where(go, new, jnp.where(caught, NEVER, tree.leaving))
    tree = tree._replace(
        leaving=jnp.where(lags, later, tree.leaving),
        joins=jnp.where(go, NEVER, tree.joins),
        parts=jnp.where(go, 0, tree.parts),
    )
    after = after._replace(kept=tree)
    path = after.path
    assert path.kept is not None
    path = path._replace(
        blocks=put(path.blocks, s.turn, rules.used(after, requests)),
        kept=put(path.kept, s.turn, tree.idle),
    )
    return after._replace(path=path)


def _asked(rules: Rules, s: State, tree: RadixTree) -> Array:
    """Pages beyond those taken that are free before a pass, if enough can be given up.

    One that decodes asks for a page for each request. One with prompts takes what it feeds; where
    a page has several tokens it asks for that, not rounded, and a page each.
    """
    taken = lax.div(rules.room(s) - s.left, rules.block)
    each = rules.needed(s.fed + tree.parts * rules.block) - taken
    return jnp.where(s.fed > 0, jnp.where(rules.block > 1, each, 0), s.decoding + s.late)


def _read(
    rules: Rules,
    requests: Requests,
    s: State,
    tree: RadixTree,
    items: Array,
    again: Array,
    partly: Array,
) -> RadixTree:
    """The tree with what requests have computed, in order of arrival; those that end unlock it.

    ``again``: those that end have decoded once more; ``partly``: it is a part of a prompt.
    """
    prefixes = requests.prefixes
    assert prefixes is not None

    def some(given: tuple[RadixTree, Array]) -> Array:
        return jnp.min(given[1]) < NEVER

    def one(given: tuple[RadixTree, Array]) -> tuple[RadixTree, Array]:
        tree, items = given
        item = jnp.min(items)
        at, over = item >> 1, (item & 1) > 0
        prompt = get(requests.prompt, at)
        ended = prompt + get(requests.output, at) - 1 + again
        count = jnp.where(over, ended, prompt + get(s.produced, at))
        count = jnp.where(partly, s.part_done, count)
        tree, run = inserted(tree, prefixes, at, lax.div(count, rules.block))
        run = jnp.where(over, NONE, run)
        tree = locked(locked(tree, run, 1), get(tree.node, at), -1)
        items = jnp.where(items == item, NEVER, items)
        return tree._replace(node=put(tree.node, at, run)), items

    return lax.while_loop(some, one, (tree, items))[0]
