"""The best of many layouts, exactly or smoothly."""

import math
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.estimators.estimate import Phase
from infer_jax.physics.numerics import soft_weights
from infer_jax.typed_jax import trees

Numbered = Callable[
    [*tuple[Array, ...]], Phase
]  # the phase of the candidate at these indices, outermost first
Row = tuple[Array, ...]  # shortfall, time, and values that are kept with them


def fastest(phase: Numbered, counts: tuple[int, ...]) -> Row:
    """The indices of the fastest feasible phase, else of the least infeasible one.

    ``phase(i, j, ..., k)`` for i in 0 .. counts[0] - 1 and so on, as nested loops, the last one
    written out: what an inner index does not touch is computed once per turn of the outer ones,
    and under ``vmap`` the loops are outside and each turn is one pass over the grid. Pass inputs
    without gradient (``stopped``) and evaluate the winner again: its gradient is the gradient of
    the minimum.
    """
    # here: it imports the rest of JAX, which commands whose program is kept do not need
    from infer_jax.estimators.jaxpr_split import factor, function_of, only, reads

    zeros = [jnp.asarray(0, jnp.int32) for _ in counts]
    if math.prod(counts) == 1:
        return tuple(zeros)

    def candidate(*index: Array) -> Row:
        priced = phase(*index)
        return priced.shortfall, priced.time

    traced = jax.make_jaxpr(candidate)(*zeros)  # pyright: ignore[reportUnknownMemberType]
    program = only(traced, [True, True])
    shortfall = function_of(only(program, [True, False]))
    touching = max((level + 1 for level, read in enumerate(reads(program, 0)) if read), default=0)
    early, finish = factor(program, [level == len(counts) - 1 for level in range(len(counts))])

    def rows(level: int, *outer: Array) -> list[Row]:
        numbers = [jnp.asarray(i, jnp.int32) for i in range(counts[level])]
        if level == len(counts) - 1:
            handed = early(*outer)
            turns: list[Row] = [tuple(finish(handed, i)) for i in numbers]
        else:
            # stored before they are compared: in a loop that compares as it goes, XLA computes
            # each time again for each of its uses
            inner = jnp.stack(numbers)
            stacked = trees.one_by_one(lambda i: loop(level + 1, *outer, i), inner)
            turns = [tuple(t[i] for t in stacked) for i in range(counts[level])]
        if level >= touching:  # no index from here on touches the limits
            (same,) = shortfall(*outer, *zeros[level:])
            turns = [(same, *t[1:]) for t in turns]
        return [(*t[:2], i, *t[2:]) for i, t in zip(numbers, turns, strict=True)]

    def loop(level: int, *outer: Array) -> Row:
        winner = first(rows(level, *outer))
        return winner if level < len(counts) - 1 else winner[:2]

    outer = loop(0)[2:]
    return (*outer, first(rows(len(counts) - 1, *outer))[2])


def first(rows: Iterable[Row]) -> Row:
    """The first of the rows with the least shortfall, and of those with the least time."""
    kept, *others = rows
    for row in others:
        better = row[1] < kept[1]
        if row[0] is not kept[0]:
            better = (row[0] < kept[0]) | ((row[0] == kept[0]) & better)
        kept = tuple(
            o if n is o else jnp.where(better, n, o) for n, o in zip(row, kept, strict=True)
        )
    return kept


def best(one: Phase, others: Phase) -> Phase:
    """The fastest feasible of one phase and a stack of phases, else the least infeasible."""

    def joined(first: Array, rest: Array) -> Array:
        return jnp.concatenate([first[None], rest])

    phases: Phase = jax.tree.map(joined, one, others)
    return trees.take(phases, chosen(jax.vmap(_shortfall)(phases), phases.time))


def chosen(shortfall: Array, time: Array) -> Array:
    """The index of the least time among those of the least shortfall; the first of equals."""
    short, time = lax.stop_gradient(shortfall), lax.stop_gradient(time)
    *_, index = first((short[i], time[i], jnp.asarray(i)) for i in range(len(time)))
    return index


def blend(phase: Numbered, counts: tuple[int, ...], smoothing: Array) -> Phase:
    """The mean of all phases by ``soft_weights``: the best one as ``smoothing`` goes to 0."""
    numbers = jnp.arange(math.prod(counts), dtype=jnp.int32)

    def numbered(number: Array) -> Phase:
        return phase(*jnp.unravel_index(number, counts))

    phases = jax.vmap(numbered)(numbers)
    share = soft_weights(phases.time, jax.vmap(_shortfall)(phases), smoothing)

    def mean(leaf: Array) -> Array:
        return jnp.sum(share * leaf, axis=0)

    return jax.tree.map(mean, phases)


def _shortfall(phase: Phase) -> Array:
    return phase.shortfall
