"""The program of one point, traced once per structure and precision, for every use of it.

From the trace follow the leaves that the outputs depend on; axes over others are refused.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import partial_eval
from jax.tree_util import PyTreeDef
from jax.typing import DTypeLike

from infer_jax.errors import InputError
from infer_jax.estimators.estimate import Estimate, Phase
from infer_jax.estimators.search import independent, only
from infer_jax.sweeps.constraint import Predicate, holds
from infer_jax.sweeps.paths import Point, by_path, declared, estimate_at, look, numbers, unit_of
from infer_jax.sweeps.space import Group, Slot

Shapes = tuple[tuple[int, ...], ...]
Judged = tuple[dict[str, Array], Array, Array, Array]  # terms, accepted, feasible, shortfall
Evaluated = tuple[dict[str, Array], Array, Array, Array, Estimate]  # the same, and the estimate
Extent = Literal["none", "scope", "all"]  # of an estimate: the numbers that are returned


class Evaluation(NamedTuple):
    """What is evaluated at each point, without its numbers; hashable, as the key of a trace."""

    slots: tuple[Slot, ...]
    terms: tuple[str, ...]
    where: tuple[Predicate, ...]
    feasible: str

    def phases(self, point: Point, estimate: Estimate) -> dict[str, Phase]:
        """The phases whose limits make a point feasible, by name."""
        if above := self.feasible.rpartition(".")[0]:
            return {above: look(above, point, estimate)}
        return {"prefill": estimate.prefill, "decode": estimate.decode}


class Declarations(NamedTuple):
    """What the fields of the terms declare."""

    signs: dict[str, float]  # by term of the evaluation: -1 where more is better
    counts: frozenset[str]
    units: dict[str, str]
    powers: frozenset[str]  # powers and energies, unknown where the chip's power is


class PointProgram(NamedTuple):
    """One point's program, of the leaves of its base and its steps."""

    jaxpr: ClosedJaxpr
    shapes: Evaluated  # of what it returns flat: shapes and types in place of arrays
    scope: tuple[bool, ...]  # by output: whether it needs nothing of a phase not asked about
    declared: Declarations


def one_point(
    evaluation: Evaluation, base: Point, steps: Sequence[Array]
) -> tuple[Judged, Point, Estimate]:
    """Terms, whether the constraints and the limits hold, the excess over them; point, estimate."""
    point = Group(base, (), evaluation.slots, (), (), 0).fill(steps)
    estimate = estimate_at(point)
    kind = jnp.result_type(*jax.tree.leaves(base))
    values = {name: jnp.asarray(look(name, point, estimate), kind) for name in evaluation.terms}
    accepted = jnp.asarray(True)
    for predicate in evaluation.where:
        accepted &= jnp.asarray(holds(predicate, point, estimate), bool)
    feasible = jnp.asarray(look(evaluation.feasible, point, estimate), bool)
    shortfall = jnp.asarray(0.0)
    for phase in evaluation.phases(point, estimate).values():
        shortfall = jnp.maximum(shortfall, phase.shortfall)
    return (values, accepted, feasible, shortfall), point, estimate


def trace_evaluation(evaluation: Evaluation, base: Point, dtype: DTypeLike) -> PointProgram:
    """The trace of an evaluation, the same for all numbers, chunk sizes and reducers."""
    leaves, tree = jax.tree.flatten(base)
    return _trace(evaluation, tree, tuple(jnp.shape(x) for x in leaves), np.dtype(dtype))


@lru_cache(maxsize=256)
def _trace(
    evaluation: Evaluation, tree: PyTreeDef, shapes: Shapes, dtype: np.dtype
) -> PointProgram:
    declarations: list[Declarations] = []

    def evaluate(base: Point, steps: Sequence[Array]) -> Evaluated:
        judged, point, estimate = one_point(evaluation, base, steps)
        terms = evaluation.terms
        fields = {n: declared(n, point, estimate) for n in (*terms, *numbers(estimate))}
        signs = {n: -1.0 if fields[n].more_is_better else 1.0 for n in terms}
        counts = frozenset(n for n in terms if fields[n].kind == "count")
        units = {n: field.full_unit for n, field in fields.items()}
        powers = frozenset(n for n, field in fields.items() if field.drawn)
        declarations.append(Declarations(signs, counts, units, powers))
        return *judged, estimate

    leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    scalar = jax.ShapeDtypeStruct((), dtype)
    steps = [scalar if s.rule else leaves[s.leaf] for s in evaluation.slots]
    with jax.enable_x64(dtype == np.float64):
        make = jax.make_jaxpr(evaluate, return_shape=True)  # pyright: ignore[reportUnknownMemberType]
        jaxpr, returned = make(jax.tree.unflatten(tree, leaves), steps)
    # which outputs are computed when only one phase is asked for
    *judged, estimate = returned
    count, total = len(jax.tree.leaves(judged)), len(jax.tree.leaves(returned))
    parts = [path.partition(".")[0] for path in by_path(estimate)]
    phases = [name for name in dict.fromkeys(parts) if isinstance(getattr(estimate, name), Phase)]
    phase = evaluation.feasible.split(".")[0]
    scope = (True,) * total
    if phase in phases:
        own = [True] * count + [name == phase for name in parts]
        others = [False] * count + [name in phases and name != phase for name in parts]
        scope = tuple(independent(jaxpr, own, others))
    return PointProgram(jaxpr, returned, scope, declarations[-1])


def answers(
    evaluation: Evaluation, base: Point, extent: Extent = "none"
) -> Callable[[Sequence[Array]], Evaluated]:
    """steps -> (terms, accepted, feasible, shortfall, estimate).

    Only the part of the trace that the answers need is evaluated. Of the estimate the function
    returns nothing (None at each leaf), the numbers in scope, or all.
    """
    leaves = jax.tree.leaves(base)
    trace = trace_evaluation(evaluation, base, jnp.result_type(*leaves))
    first, tree = len(jax.tree.leaves(trace.shapes[:4])), jax.tree.structure(trace.shapes)
    used = [
        i < first or extent == "all" or (extent == "scope" and in_scope)
        for i, in_scope in enumerate(trace.scope)
    ]
    run = cast(Callable[..., list[Array]], jaxpr_as_fun(only(trace.jaxpr, used)))

    def answer(steps: Sequence[Array]) -> Evaluated:
        values = iter(run(*leaves, *steps))
        return jax.tree.unflatten(tree, [next(values) if x else None for x in used])

    return answer


class Reading(NamedTuple):
    """The result of tracing one point: which inputs its outputs read, and what these declare."""

    reads: dict[str, bool]  # by path of every number of the five pytrees
    steps: tuple[bool, ...]  # by slot: whether its step is read
    declared: Declarations
    text: str  # the program of a point, without what differs from run to run


def read(evaluation: Evaluation, group: Group, dtype: DTypeLike) -> Reading:
    """Trace one point and follow back which inputs the terms, constraints and limits read.

    Raises:
        InputError: a name that is no input and no term.
    """
    trace = trace_evaluation(evaluation, group.base, dtype)
    reads, steps, text = _read(trace.jaxpr, len(evaluation.terms) + 2, len(group.slots))
    axes = [c.path for c in group.columns if not c.is_spec]
    units = {path: unit_of(path, group.base, None) for path in axes} | trace.declared.units
    by_name = dict(zip(by_path(group.base), reads, strict=True))
    return Reading(by_name, steps, trace.declared._replace(units=units), text)


@lru_cache(maxsize=256)
def _read(
    jaxpr: ClosedJaxpr, outputs: int, steps: int
) -> tuple[tuple[bool, ...], tuple[bool, ...], str]:
    """Which leaves and which steps the first outputs read, and the text of that program."""
    needed = [i < outputs for i in range(len(jaxpr.jaxpr.outvars))]
    lean, used = partial_eval.dce_jaxpr(jaxpr.jaxpr, needed)
    text = re.sub(r"0x[0-9a-f]+|at /[^ ]*|/[^ ]*\.py:\d+", "", str(lean))
    leaves = len(used) - steps
    return tuple(used[:leaves]), tuple(used[leaves:]), text


def refuse_unread(groups: Iterable[tuple[Group, Reading]], terms: Sequence[str]) -> None:
    """Raise InputError for an axis that no group's outputs read."""
    live: dict[str, bool] = {}
    for group, reading in groups:
        paths = list(reading.reads)
        for column in group.columns:
            reads = [
                read
                for slot, read in zip(group.slots, reading.steps, strict=True)
                if slot.digit == column.digit
                and (
                    f"{paths[slot.leaf]}.".startswith(f"{column.path}.")
                    or (column.path == "hardware" and paths[slot.leaf].startswith("estimator."))
                )
            ]
            derived = group.sizes[column.digit] == 1  # a single value, which adds no points
            live[column.path] = live.get(column.path, False) or not reads or any(reads) or derived
    for path, is_read in live.items():
        if not is_read:
            allowed = f"a field that {', '.join(terms)} or a constraint depends on"
            raise InputError("space", "axis", path, allowed)
