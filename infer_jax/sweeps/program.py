"""The programs of a sweep: of one point, traced once for every use, and of a segment of points.

A point is traced once per structure and precision. From the trace follow the axes that its outputs
depend on, and what of an estimate needs no other phase. A segment decodes points, evaluates them by
that trace and reduces them, on all devices.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import partial_eval
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import PyTreeDef
from jax.typing import DTypeLike

from infer_jax.compiling import wide
from infer_jax.estimators.estimate import Estimate, Phase
from infer_jax.estimators.search import independent, only
from infer_jax.specs.declared_outputs import Output
from infer_jax.sweeps import digits as radix
from infer_jax.sweeps.constraint import Predicate, holds
from infer_jax.sweeps.paths import Point, by_path, declared, estimate_at, look, numbers
from infer_jax.sweeps.reducers import Chunk, Reducer, State, parse
from infer_jax.sweeps.space import Slot, fill
from infer_jax.typed_jax import jit, pmax, pmin, psum

Shapes = tuple[tuple[int, ...], ...]
Judged = tuple[dict[str, Array], Array, Array, Array]  # terms, accepted, feasible, shortfall
Evaluated = tuple[dict[str, Array], Array, Array, Array, Estimate]  # the same, and the estimate
Extent = Literal["none", "scope", "all"]  # of an estimate: the numbers that are returned
Carry = tuple[Array, State, Array]  # the step, the state, the counts
Segment = tuple[State, Array, Array, Array]  # states, counts, the steps done, votes
LANES = "lanes"  # the one axis of the mesh
SPLIT, REPLICATED = PartitionSpec(LANES), PartitionSpec()
COUNTS = ("accepted", "feasible", "undefined")


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


@dataclasses.dataclass(frozen=True, eq=False)
class PointProgram:
    """One point's program, of the leaves of its base and its steps.

    ``shapes`` is what it returns flat, shapes and types in place of arrays; ``scope`` says of each
    output whether it needs nothing of a phase not asked about, and ``declared`` what the fields of
    the terms and of every number of the estimate declare.
    """

    evaluation: Evaluation
    jaxpr: ClosedJaxpr
    shapes: Evaluated
    scope: tuple[bool, ...]
    declared: dict[str, Output]

    @property
    def signs(self) -> dict[str, float]:
        """By term: -1 where more of it is better."""
        terms = self.evaluation.terms
        return {n: -1.0 if self.declared[n].more_is_better else 1.0 for n in terms}

    @cached_property
    def _judged(self) -> tuple[str, list[bool]]:
        """The program of terms, constraints and limits alone, and which inputs it reads."""
        wanted = len(self.evaluation.terms) + 2
        needed = [i < wanted for i in range(len(self.scope))]
        lean, used = partial_eval.dce_jaxpr(self.jaxpr.jaxpr, needed)
        return re.sub(r"0x[0-9a-f]+|at /[^ ]*|/[^ ]*\.py:\d+", "", str(lean)), used

    @property
    def text(self) -> str:
        """The program in words, without what differs from run to run."""
        return self._judged[0]

    @property
    def steps_read(self) -> list[bool]:
        """By slot: whether terms, constraints and limits depend on its step."""
        used = self._judged[1]
        return used[len(used) - len(self.evaluation.slots) :]


def one_point(
    evaluation: Evaluation, base: Point, steps: Sequence[Array]
) -> tuple[Judged, Point, Estimate]:
    """Terms, whether the constraints and the limits hold, the excess over them; point, estimate."""
    point = fill(base, evaluation.slots, steps)
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


def trace_point(evaluation: Evaluation, base: Point, dtype: DTypeLike) -> PointProgram:
    """The trace of an evaluation, the same for all numbers, chunk sizes and reducers.

    Raises:
        InputError: a name that is no input and no term.
    """
    leaves, tree = jax.tree.flatten(base)
    return _trace(evaluation, tree, tuple(jnp.shape(x) for x in leaves), np.dtype(dtype))


@lru_cache(maxsize=256)
def _trace(
    evaluation: Evaluation, tree: PyTreeDef, shapes: Shapes, dtype: np.dtype
) -> PointProgram:
    fields: dict[str, Output] = {}

    def evaluate(base: Point, steps: Sequence[Array]) -> Evaluated:
        judged, point, estimate = one_point(evaluation, base, steps)
        names = (*evaluation.terms, *numbers(estimate))
        fields.update({n: declared(n, point, estimate) for n in names})
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
    return PointProgram(evaluation, jaxpr, returned, scope, fields)


def answers(
    evaluation: Evaluation, base: Point, extent: Extent = "none"
) -> Callable[[Sequence[Array]], Evaluated]:
    """steps -> (terms, accepted, feasible, shortfall, estimate).

    Only the part of the trace that the answers need is evaluated. Of the estimate the function
    returns nothing (None at each leaf), the numbers in scope, or all.
    """
    leaves = jax.tree.leaves(base)
    trace = trace_point(evaluation, base, jnp.result_type(*leaves))
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


class Program(NamedTuple):
    """The structure of a segment without its numbers; hashable, as the key of compiled programs."""

    evaluation: Evaluation
    sizes: tuple[int, ...]
    per: tuple[int, ...]  # digits for whose positions answers are kept separately
    reducer: Reducer
    chunk: int
    words: int  # of 32 bits, of a global index
    masks: tuple[tuple[int, ...], ...]  # the digits of each table of legal points


class Task(NamedTuple):
    """The numbers of a group: its base, a table for each slot, and tables over some digits.

    Those are flat, the last digit fastest: positions on the axes of ``per``, and legal points.
    """

    base: Point
    tables: tuple[np.ndarray, ...]
    positions: np.ndarray
    masks: tuple[np.ndarray, ...]


def flat_index(
    some: Sequence[int], digits: Sequence[Array] | np.ndarray, sizes: Sequence[int]
) -> Array | np.ndarray | int:
    """The places of points with these digits in a flat table over some of them."""
    at: Array | np.ndarray | int = 0
    for digit in some:
        at = at * sizes[digit] + digits[digit]
    return at


def chunk_of(
    program: Program, task: Task, start: Array, words: Array, offset: Array, count: Array
) -> tuple[Chunk, Array]:
    """The chunk of lanes that begins ``offset`` points after a segment's start; its counts."""
    evaluation = program.evaluation
    lanes = offset + jnp.arange(program.chunk, dtype=jnp.int32)
    digits = radix.advance(tuple(start), program.sizes, lanes)
    steps = [t[digits[s.digit]] for s, t in zip(evaluation.slots, task.tables, strict=True)]
    point = jax.vmap(answers(evaluation, task.base), axis_size=program.chunk)
    values, accepted, feasible, shortfall, _ = point(steps)
    accepted &= lanes < count
    for some, legal in zip(program.masks, task.masks, strict=True):
        accepted &= legal[flat_index(some, digits, program.sizes)]
    group = jnp.zeros(program.chunk, jnp.int32)
    if program.per:
        group = jnp.asarray(task.positions)[flat_index(program.per, digits, program.sizes)]
    index = radix.add(tuple(words), lanes.astype(jnp.uint32))
    feasible &= accepted
    undefined = jnp.asarray(False)
    for term in program.reducer.terms:
        undefined |= jnp.isnan(values[parse(term)[0]])
    sums = [jnp.sum(m, dtype=jnp.int32) for m in (accepted, feasible, accepted & undefined)]
    dtype = jnp.result_type(*jax.tree.leaves(task.base))
    signs = trace_point(evaluation, task.base, dtype).signs
    return Chunk(values, accepted, feasible, shortfall, index, group, signs), jnp.stack(sums)


def precise(dtype: DTypeLike) -> AbstractContextManager[object]:
    """A context in which arrays of this precision exist: float64 needs JAX's 64-bit mode.

    For compiled calls, their arguments and results; float32 needs nothing.
    """
    on = np.dtype(dtype) == np.float64 and not jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    return jax.enable_x64(True) if on else nullcontext()


@lru_cache
def _compiled(platform: str) -> Callable[..., Segment]:
    return jit(static=(0, 1), donate=(2,), options=wide(platform))(_segment)


def segment(program: Program, mesh: Mesh, *arrays: object) -> Segment:
    """Absorb ``count`` points (at most 2^30) after a start on all devices.

    ``arrays``: the states, the task, digits and words of the start, ``count`` and votes. Returns
    the states, the counts of all devices, the steps for which every device had space (fewer
    than needed where one overflowed and the segment ended early), and the least and the largest
    vote (go on, save or stop), through which processes agree.
    """
    return _compiled(mesh.devices.flat[0].platform)(program, mesh, *arrays)


def _segment(program: Program, mesh: Mesh, *arrays: object) -> Segment:
    def share(
        state: State, task: Task, start: Array, words: Array, count: Array, votes: Array
    ) -> Segment:
        first = lax.axis_index(LANES).astype(jnp.int32) * program.chunk
        stride = mesh.size * program.chunk

        def overflows(state: State) -> Array:
            return state.get("overflow", jnp.asarray(False))

        def step(carry: Carry) -> Carry:
            i, state, sums = carry
            chunk, new = chunk_of(program, task, start, words, first + i * stride, count)
            state = program.reducer.absorb(state, chunk)
            # a step that overflows is discarded
            return i + 1 - overflows(state).astype(jnp.int32), state, sums + new

        steps = (count + stride - 1) // stride
        begin = jax.tree.map(itemgetter(0), state)
        reached, end, sums = lax.while_loop(
            lambda carry: (carry[0] < steps) & ~overflows(carry[1]),
            step,
            (jnp.asarray(0, jnp.int32), begin, jnp.zeros(len(COUNTS), jnp.int32)),
        )
        agreed = jnp.stack([pmin(votes[0, 0], LANES), pmax(votes[0, 1], LANES)])
        states = jax.tree.map(itemgetter(None), end)
        return states, psum(sums, LANES), pmin(reached, LANES), agreed

    return jax.shard_map(
        share,
        mesh=mesh,
        in_specs=(SPLIT, REPLICATED, REPLICATED, REPLICATED, REPLICATED, SPLIT),
        out_specs=(SPLIT, REPLICATED, REPLICATED, REPLICATED),
        check_vma=False,
    )(*arrays)  # pyright: ignore[reportArgumentType]


@jit(static=(0, 1))
def gather_rows(mesh: Mesh, size: int | None, state: State) -> State:
    """The first rows of every device (all without ``size``), the same on each of them."""

    def first(x: Array) -> Array:
        return x[:, :size] if x.ndim > 1 else x

    rows = jax.tree.map(first, state)
    return lax.with_sharding_constraint(rows, NamedSharding(mesh, REPLICATED))  # pyright: ignore[reportUnknownMemberType]
