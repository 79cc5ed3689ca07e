"""The program of one point, traced once per structure and precision, for every use of it."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.tree_util import PyTreeDef
from jax.typing import DTypeLike

from infer_jax.estimators.estimate import Estimate, Phase
from infer_jax.estimators.jaxpr_split import apart, only
from infer_jax.sweeps.constraint import Predicate, holds
from infer_jax.sweeps.group import Group, Slot
from infer_jax.sweeps.paths import Point, by_path, counts, drawn, grows, look, numbers, unit_of
from infer_jax.sweeps.reducers import Reducer

Shapes = tuple[tuple[int, ...], ...]
Seen = Callable[[Point, Estimate], None]
Answers = tuple[dict[str, Array], Array, Array, Array]  # terms, accepted, feasible, shortfall
Whole = tuple[dict[str, Array], Array, Array, Array, Estimate]  # the same, and the estimate


class Program(NamedTuple):
    """The structure of a segment without its numbers; hashable, as the key of compiled programs."""

    slots: tuple[Slot, ...]
    sizes: tuple[int, ...]
    per: tuple[int, ...]  # digits for whose positions answers are kept separately
    signs: tuple[tuple[str, float], ...]  # by term: -1 where more is better
    where: tuple[Predicate, ...]
    feasible: str
    reducer: Reducer  # None in the key of a trace, which all reducers share
    chunk: int
    limbs: int
    masks: tuple[tuple[int, ...], ...] = ()  # the digits of each table of what is legal


def one_point(
    program: Program, base: Point, steps: Sequence[Array], seen: Seen | None = None
) -> Answers:
    """Terms, whether the constraints hold, whether the limits do, and the excess over them.

    ``seen`` is called with the point and its estimate while they are traced.
    """
    group = Group(base, program.sizes, program.slots, (), (), 0)
    point = group.fill(steps)
    estimate = point.estimator.estimate(point.arch, point.hardware, point.workload, point.plan)
    if seen is not None:
        seen(point, estimate)
    kind = jnp.result_type(*jax.tree.leaves(base))
    values = {name: jnp.asarray(look(name, point, estimate), kind) for name, _ in program.signs}
    accepted = jnp.asarray(True)
    for predicate in program.where:
        accepted &= jnp.asarray(holds(predicate, point, estimate), bool)
    feasible = look(program.feasible, point, estimate)
    above = program.feasible.rpartition(".")[0]
    phases = [look(above, point, estimate)] if above else [estimate.prefill, estimate.decode]
    short = jnp.asarray(0.0)
    for phase in phases:
        short = jnp.maximum(short, phase.shortfall)
    return values, accepted, jnp.asarray(feasible, bool), short


class Declared(NamedTuple):
    """Declarations of the terms: signs, units, which are counts, which are energies."""

    signs: tuple[tuple[str, float], ...]
    counts: frozenset[str]
    units: dict[str, str]
    drawn: frozenset[str]


class PointProgram(NamedTuple):
    """One point's program, of the leaves of its base and its steps."""

    jaxpr: ClosedJaxpr
    shapes: Whole  # of what it returns flat: shapes and types in place of arrays
    scope: tuple[bool, ...]  # by output: whether it needs nothing of a phase not asked about
    signs: tuple[tuple[str, float], ...]
    counts: frozenset[str]  # the terms that are counts
    units: dict[str, str]
    drawn: frozenset[str]  # the terms that are unknown where the chip's power is


def traced(program: Program, base: Point, dtype: DTypeLike) -> PointProgram:
    """The trace of a program's points, the same for all numbers, chunk sizes and reducers."""
    names = tuple((name, 1.0) for name, _ in program.signs)
    asked = program._replace(sizes=(), per=(), signs=names, reducer=None, chunk=0, limbs=0,
                             masks=())  # fmt: skip
    leaves, tree = jax.tree.flatten(base)
    return _traced(asked, tree, tuple(jnp.shape(x) for x in leaves), np.dtype(dtype))


@lru_cache(maxsize=256)
def _traced(asked: Program, tree: PyTreeDef, shapes: Shapes, dtype: np.dtype) -> PointProgram:
    declared: list[Declared] = []
    estimates: list[Estimate] = []  # the traced one, on its way out of the point's program

    def seen(point: Point, estimate: Estimate) -> None:
        names = [name for name, _ in asked.signs]
        every = (*names, *numbers(estimate))
        declared.append(
            Declared(
                tuple((n, -1.0 if grows(n, point, estimate) else 1.0) for n in names),
                frozenset(n for n in names if counts(n, point, estimate)),
                {n: unit_of(n, point, estimate) for n in every},
                frozenset(n for n in every if drawn(n, point, estimate)),
            )
        )
        estimates.append(estimate)

    def whole(base: Point, steps: Sequence[Array]) -> Whole:
        values, accepted, feasible, short = one_point(asked, base, steps, seen)
        return values, accepted, feasible, short, estimates.pop()

    leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    steps = [jax.ShapeDtypeStruct((), dtype) if s.rule else leaves[s.leaf] for s in asked.slots]
    with jax.enable_x64(dtype == np.float64):
        make = jax.make_jaxpr(whole, return_shape=True)  # pyright: ignore[reportUnknownMemberType]
        jaxpr, returned = make(jax.tree.unflatten(tree, leaves), steps)
    scope = _scope(jaxpr, returned, asked.feasible)
    return PointProgram(jaxpr, returned, scope, *declared[-1])


def _scope(jaxpr: ClosedJaxpr, shapes: Whole, feasible: str) -> tuple[bool, ...]:
    """By output: whether it is computed when only one phase is asked for."""
    *answers, estimate = shapes
    count, total = len(jax.tree.leaves(answers)), len(jax.tree.leaves(shapes))
    parts = [path.partition(".")[0] for path in by_path(estimate)]
    phases = [name for name in dict.fromkeys(parts) if isinstance(getattr(estimate, name), Phase)]
    phase = feasible.split(".")[0]
    if phase not in phases:
        return (True,) * total
    mine = [True] * count + [name == phase for name in parts]
    others = [False] * count + [name in phases and name != phase for name in parts]
    return tuple(apart(jaxpr, mine, others))


def answers(
    program: Program, base: Point, estimate: str = ""
) -> Callable[[Sequence[Array]], Whole]:
    """steps -> (terms, accepted, feasible, shortfall, estimate).

    Only the part of the trace that the answers need is evaluated. Of the estimate the function
    returns nothing (None at each leaf), the numbers in scope (``estimate="asked"``), or all of it
    ("whole").
    """
    leaves = jax.tree.leaves(base)
    trace = traced(program, base, jnp.result_type(*leaves))
    first, tree = len(jax.tree.leaves(trace.shapes[:4])), jax.tree.structure(trace.shapes)
    wanted = [
        i < first or estimate == "whole" or (estimate == "asked" and near)
        for i, near in enumerate(trace.scope)
    ]
    run = cast(Callable[..., list[Array]], jaxpr_as_fun(only(trace.jaxpr, wanted)))

    def answer(steps: Sequence[Array]) -> Whole:
        values = iter(run(*leaves, *steps))
        return jax.tree.unflatten(tree, [next(values) if each else None for each in wanted])

    return answer
