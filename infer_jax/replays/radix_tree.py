"""A radix tree of cached prompts in arrays: look-ups, insertions, locks and evictions.

SGLang (python/sglang/srt/mem_cache/radix_cache.py at 006b0e3, ``RadixCache``): a node of the tree
is what one request put there at once: a part of a prompt, a prompt, or its output. One that is
matched only in part is split. Requests lock the nodes that they use; the others count as free, and
are evicted whole, a child before its parent, by when a look-up or an insertion last came past.

Which prompts begin alike is known in advance (``Prefixes``). So a node is kept as runs of pages,
one for each part of the prompts that it is in, linked to the run before it; a node is a chain of
runs. A look-up goes down the parts of a prompt, all else goes up from the last run.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Int

from infer_jax.replays.requests import Prefixes
from infer_jax.replays.state import UNREACHED, get, note, put

NONE = -1  # no run


class RadixTree(NamedTuple):
    """The state of a radix tree; the last run is none, and takes what is written nowhere."""

    # of the shared parts of prompts, then of what each request has alone
    last: Int[Array, " p"]  # the last run of a part in the tree
    there: Int[Array, " p"]  # pages
    # the runs: the one before (of one not in use: the next such), and the one behind in its node
    before: Int[Array, " r"]
    behind: Int[Array, " r"]
    part: Int[Array, " r"]
    size: Int[Array, " r"]  # pages, 0 if not in use
    end: Int[Array, " r"]  # pages from the root
    locks: Int[Array, " r"]
    used: Int[Array, " r"]  # the clock when it was last used
    spare: Int[Array, ""]  # the first that is not in use
    clock: Int[Array, ""]
    shared: Int[Array, ""]  # pages that several requests count, less one each
    idle: Int[Array, ""]  # of runs that nobody locks
    overflowed: Bool[Array, ""]  # whether there was no free entry for a run


Placed = tuple[RadixTree, Array, Array, Array]  # the next part, pages so far, the last run


def empty_tree(prefixes: Prefixes, requests: int, entries: int) -> RadixTree:
    """An empty tree for a path of ``entries`` entries."""
    shared = prefixes.blocks.shape[0]
    runs = shared + 2 * requests + entries // 4
    zero, none = jnp.zeros((), jnp.int32), jnp.full(shared + requests, NONE, jnp.int32)
    empty = jnp.zeros(runs, jnp.int32)
    return RadixTree(
        last=none, there=jnp.zeros_like(none),
        before=jnp.arange(1, runs + 1, dtype=jnp.int32).at[runs - 2 :].set(NONE),
        behind=jnp.full_like(empty, NONE), part=empty, size=empty, end=empty, locks=empty,
        used=empty, spare=zero, clock=zero, shared=zero, idle=zero,
        overflowed=jnp.asarray(False),
    )  # fmt: skip


def _part(prefixes: Prefixes, at: Array, i: Array, shared: int) -> tuple[Array, Array]:
    """The ``i``-th part of a request and its pages; behind the shared ones, what it has alone."""
    inside = i < get(prefixes.depth, at)
    part = prefixes.parts[at, jnp.minimum(i, prefixes.parts.shape[1] - 1)]
    size = jnp.where(inside, get(prefixes.blocks, part), UNREACHED)
    return jnp.where(inside, part, shared + at), size


def _up(
    tree: RadixTree, run: Array, change: Callable[[RadixTree, Array], RadixTree], down: bool = False
) -> RadixTree:
    """The tree with each run from ``run`` up to the root changed, or down to the node's end."""

    def body(carry: tuple[RadixTree, Array]) -> tuple[RadixTree, Array]:
        tree, at = carry
        following = get(tree.behind if down else tree.before, at)
        return change(tree, at), following

    return lax.while_loop(lambda carry: carry[1] >= 0, body, (tree, run))[0]


def find(
    tree: RadixTree, prefixes: Prefixes, at: Array, pages: Array
) -> tuple[RadixTree, Array, Array]:
    """The tree after a look-up of the first ``pages`` pages, the last run, and pages found.

    All on the way counts as used now, and so does what is split off below.
    """
    shared = prefixes.blocks.shape[0]
    zero = jnp.zeros_like(pages)

    def body(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        i, run, found, _ = carry
        part, size = _part(prefixes, at, i, shared)
        take = jnp.minimum(get(tree.there, part), pages - found)
        return i + 1, jnp.where(take > 0, get(tree.last, part), run), found + take, take == size

    _, run, found, _ = lax.while_loop(
        lambda carry: carry[3] & (carry[2] < pages), body, (zero, zero - 1, zero, zero == 0)
    )
    run = lax.while_loop(
        lambda run: (run >= 0) & (get(tree.end, run) - get(tree.size, run) >= found),
        lambda run: get(tree.before, run),
        run,
    )
    tree, run, lower = _split(tree, run, found)
    clock = tree.clock + 2

    def touch(when: Array) -> Callable[[RadixTree, Array], RadixTree]:
        return lambda tree, x: tree._replace(used=put(tree.used, x, when))

    tree = _up(tree._replace(clock=clock), lower, touch(clock - 1), down=True)
    return _up(tree, run, touch(clock)), run, found


def _split(tree: RadixTree, run: Array, found: Array) -> tuple[RadixTree, Array, Array]:
    """The tree with a node ending at page ``found``, its last run, and what was split off."""
    none = tree.size.shape[0] - 1
    there = run >= 0
    at = jnp.where(there, run, none)
    end, size = get(tree.end, at), get(tree.size, at)
    tree, new, cut = _take_run(tree, there & (end > found))
    before, locks, part = (get(x, at) for x in (tree.before, tree.locks, tree.part))
    linked = cut & (before >= 0) & (get(tree.behind, jnp.maximum(before, 0)) == run)
    behind = get(tree.behind, at)
    upper = size - (end - found)
    tree = tree._replace(
        size=note(note(tree.size, at, size - upper, cut), new, upper, cut),
        end=note(tree.end, new, found, cut),
        part=note(tree.part, new, part, cut),
        locks=note(tree.locks, new, locks, cut),
        before=note(note(tree.before, new, before, cut), at, new, cut),
        behind=note(
            note(tree.behind, jnp.where(cut, new, at), jnp.full_like(new, NONE), there),
            before, new, linked,
        ),
    )  # fmt: skip
    lower = jnp.where(cut, run, jnp.where(there, behind, NONE))
    return tree, jnp.where(cut, new, run), lower


def _take_run(tree: RadixTree, ok: Array) -> tuple[RadixTree, Array, Array]:
    """A run that is not in use, where ``ok``, and whether there is one.

    Where there is none, nothing is linked, so that every way up still ends at the root.
    """
    none = tree.size.shape[0] - 1
    there = ok & (tree.spare >= 0)
    new = jnp.where(there, tree.spare, none)
    spare = jnp.where(there, get(tree.before, new), tree.spare)
    return tree._replace(spare=spare, overflowed=tree.overflowed | (ok & ~there)), new, there


def insert(tree: RadixTree, prefixes: Prefixes, at: Array, pages: Array) -> tuple[RadixTree, Array]:
    """The tree with the first ``pages`` pages of a request, and the last run of them."""
    tree, run, found = find(tree, prefixes, at, pages)
    shared = prefixes.blocks.shape[0]
    zero = jnp.zeros_like(pages)

    def body(carry: Placed) -> Placed:
        tree, i, begin, run = carry
        part, size = _part(prefixes, at, i, shared)
        end = jnp.minimum(size, pages - begin) + begin
        first = jnp.maximum(begin, found)
        tree, new, ok = _take_run(tree, end > first)
        count = end - first
        tree = tree._replace(
            last=put(tree.last, part, new, ok),
            there=put(tree.there, part, get(tree.there, part) + count, ok),
            before=note(tree.before, new, run, ok),
            behind=note(
                note(tree.behind, new, jnp.full_like(new, NONE), ok), run, new, ok & (first > found)
            ),
            part=note(tree.part, new, part, ok),
            size=note(tree.size, new, count, ok),
            end=note(tree.end, new, end, ok),
            locks=note(tree.locks, new, zero, ok),
            used=note(tree.used, new, tree.clock, ok),
            idle=tree.idle + jnp.where(ok, count, 0),
        )
        return tree, i + 1, end, jnp.where(ok, new, run)

    start = tree, zero, zero, run
    tree, _, _, run = lax.while_loop(lambda carry: carry[2] < pages, body, start)
    return tree, run


def lock(tree: RadixTree, run: Array, sign: int) -> RadixTree:
    """The tree with the way to a run locked by one request more (``sign`` 1) or less (-1)."""

    def change(tree: RadixTree, at: Array) -> RadixTree:
        locks, size = get(tree.locks, at), get(tree.size, at)
        least = jnp.minimum(locks, locks + sign)
        return tree._replace(
            locks=put(tree.locks, at, locks + sign),
            idle=tree.idle - jnp.where(least == 0, sign * size, 0),
            shared=tree.shared + jnp.where(least > 0, sign * size, 0),
        )

    return _up(tree, run, change)


def evict(tree: RadixTree, most: Array, ok: Array | bool = True) -> RadixTree:
    """The tree once no more than ``most`` pages of it are unused, where ``ok``."""
    most = jnp.maximum(most, 0)

    def body(tree: RadixTree) -> RadixTree:
        def remove(carry: tuple[RadixTree, Array]) -> tuple[RadixTree, Array]:
            tree, at = carry
            before, part, size = (get(x, at) for x in (tree.before, tree.part, tree.size))
            up = jnp.maximum(before, 0)
            same = (before >= 0) & (get(tree.part, up) == part)
            linked = (before >= 0) & (get(tree.behind, up) == at)
            tree = tree._replace(
                last=put(tree.last, part, jnp.where(same, before, NONE)),
                there=put(tree.there, part, get(tree.there, part) - size),
                size=put(tree.size, at, jnp.zeros_like(size)),
                before=put(tree.before, at, tree.spare),
                spare=at,
                idle=tree.idle - size,
            )
            return tree, jnp.where(linked, before, NONE)

        return lax.while_loop(lambda carry: carry[1] >= 0, remove, (tree, _oldest(tree)))[0]

    return lax.while_loop(lambda tree: ok & (tree.idle > most), body, tree)


def _oldest(tree: RadixTree) -> Array:
    """The run to be evicted next: unlocked, longest unused, and of one way the last."""
    index = jnp.arange(tree.size.shape[0], dtype=jnp.int32)
    loose = (tree.size > 0) & (tree.locks == 0) & (index < tree.size.shape[0] - 1)
    columns = jnp.where(loose, tree.used, UNREACHED), tree.end, index

    def older(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
        first = (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] > b[1]))
        return tuple(jnp.where(first, x, y) for x, y in zip(a, b, strict=True))

    start = tuple(jnp.asarray(x, jnp.int32) for x in (UNREACHED, -1, NONE))
    return lax.reduce(columns, start, older, (0,))[2]
