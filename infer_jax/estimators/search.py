"""The best of many layouts, exactly or smoothly.

What does not depend on the layout is evaluated once: a program is split into the part that late
inputs reach and the rest. A program is a jaxpr: a list of operations on named values. An operation
is late if a late input reaches it, else early; early values that late operations need are handed
over. So a quantity is computed as often as what it depends on changes, whatever a compiler makes
of it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import eval_jaxpr  # pyright: ignore[reportUnknownVariableType]
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.interpreters import partial_eval

from infer_jax.estimators.estimate import Phase
from infer_jax.physics.numerics import soft_weights
from infer_jax.typed_jax import trees

Values = list[Array]


def function_of(program: ClosedJaxpr) -> Callable[..., Values]:
    """The program as a function of its inputs."""
    return partial(eval_jaxpr, program.jaxpr, program.consts)


def reads(program: ClosedJaxpr, output: int) -> list[bool]:
    """Whether each input is read by one output."""
    asked = [i == output for i in range(len(program.jaxpr.outvars))]
    return list(partial_eval.dce_jaxpr(program.jaxpr, asked)[1])


def only(program: ClosedJaxpr, asked: Sequence[bool]) -> ClosedJaxpr:
    """The program of some of its outputs, without what they do not need."""
    lean, _ = partial_eval.dce_jaxpr(program.jaxpr, list(asked), instantiate=True)
    return ClosedJaxpr(lean, program.consts)


def independent(program: ClosedJaxpr, mine: Sequence[bool], others: Sequence[bool]) -> list[bool]:
    """Which outputs need no operation that ``others`` need and ``mine`` do not.

    >>> import jax
    >>> program = jax.make_jaxpr(lambda a, b: (a + 1, b + 1, a + 2, a * (b + 1)))(1.0, 1.0)
    >>> independent(program, [True, False, False, False], [False, True, False, False])
    [True, False, True, True]
    """
    jaxpr = program.jaxpr
    alien = _needed(jaxpr, others) - _needed(jaxpr, mine)
    touched: set[Var] = set()
    for at, equation in enumerate(jaxpr.eqns):
        inputs = [v for v in equation.invars if not isinstance(v, Literal)]
        if at in alien or any(v in touched for v in inputs):
            touched.update(equation.outvars)
    return [isinstance(v, Literal) or v not in touched for v in jaxpr.outvars]


def _needed(jaxpr: Jaxpr, asked: Sequence[bool]) -> set[int]:
    """The positions of the operations that some outputs need."""
    wanted = {v for v, is_asked in zip(jaxpr.outvars, asked, strict=True)
              if is_asked and not isinstance(v, Literal)}  # fmt: skip
    needed: set[int] = set()
    for at in reversed(range(len(jaxpr.eqns))):
        equation = jaxpr.eqns[at]
        if any(v in wanted for v in equation.outvars):
            needed.add(at)
            wanted.update(v for v in equation.invars if not isinstance(v, Literal))
    return needed


def factor(
    program: ClosedJaxpr, late: Sequence[bool]
) -> tuple[Callable[..., Values], Callable[..., Values]]:
    """(early, finish): ``finish(early(*early inputs), *late inputs)`` are the outputs.

    >>> import jax
    >>> program = jax.make_jaxpr(lambda a, b: jax.numpy.sin(a) * b)(1.0, 1.0)
    >>> early, finish = factor(program, [False, True])
    >>> [float(finish(early(0.5), b)[0] / jax.numpy.sin(0.5)) for b in (1.0, 2.0)]
    [1.0, 2.0]
    """
    jaxpr = program.jaxpr
    touched = {v for v, is_late in zip(jaxpr.invars, late, strict=True) if is_late}
    first: list[JaxprEqn] = []
    then: list[JaxprEqn] = []
    for equation in jaxpr.eqns:
        reached = any(v in touched for v in equation.invars if not isinstance(v, Literal))
        (then if reached else first).append(equation)
        touched.update(equation.outvars if reached else ())
    needed = [v for e in then for v in e.invars] + list(jaxpr.outvars)
    kept = [
        v for v in dict.fromkeys(v for v in needed if not isinstance(v, Literal))
        if v not in touched
    ]  # fmt: skip

    inputs = [[v for v, is_late in zip(jaxpr.invars, late, strict=True) if is_late is side]
              for side in (False, True)]  # fmt: skip
    before = jaxpr.replace(eqns=first, invars=inputs[0], outvars=kept)
    after = jaxpr.replace(constvars=kept, eqns=then, invars=inputs[1])
    return partial(eval_jaxpr, before, program.consts), partial(eval_jaxpr, after)


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
    from infer_jax.estimators.search import factor, function_of, only, reads

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
