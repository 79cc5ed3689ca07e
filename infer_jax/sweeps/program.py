"""The compiled program of a segment: decode points, evaluate them, reduce them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec
from jax.typing import ArrayLike, DTypeLike

from infer_jax.compiling import wide
from infer_jax.sweeps import digits as radix
from infer_jax.sweeps.legality import flat_index
from infer_jax.sweeps.paths import Point, is_table
from infer_jax.sweeps.point import Evaluation, answers, trace_evaluation
from infer_jax.sweeps.reducers import Chunk, Monoid, Reducer, Rows, State, parse
from infer_jax.typed_jax import all_gather, fori_loop, jit, pmax, pmin, psum

Carry = tuple[Array, State, Array]  # the step, the state, the counts
Segment = tuple[State, Array, Array, Array]  # states, counts, the steps done, votes
LANES = "lanes"  # the one axis of the mesh
SPLIT, REPLICATED = PartitionSpec(LANES), PartitionSpec()
COUNTS = ("accepted", "feasible", "undefined")


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
    """The numbers of a group: its base, a table for each slot, the position of each value on the
    axes of ``per``, and the tables of legal points."""

    base: Point
    tables: tuple[np.ndarray, ...]
    positions: tuple[np.ndarray, ...]
    masks: tuple[np.ndarray, ...]


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
    for mask, legal in zip(program.masks, task.masks, strict=True):
        accepted &= legal[flat_index(mask, digits, program.sizes)]
    group = jnp.zeros(program.chunk, jnp.int32)
    for digit, positions in zip(program.per, task.positions, strict=True):
        group += positions[digits[digit]]
    index = radix.add(tuple(words), lanes.astype(jnp.uint32))
    feasible &= accepted
    undefined = jnp.asarray(False)
    for term in program.reducer.terms:
        undefined |= jnp.isnan(values[parse(term)[0]])
    sums = [jnp.sum(m, dtype=jnp.int32) for m in (accepted, feasible, accepted & undefined)]
    dtype = jnp.result_type(*jax.tree.leaves(task.base))
    signs = trace_evaluation(evaluation, task.base, dtype).declared.signs
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

        def step(carry: Carry) -> Carry:
            i, state, sums = carry
            chunk, new = chunk_of(program, task, start, words, first + i * stride, count)
            state = program.reducer.absorb(state, chunk)
            # a step that overflows is discarded
            return i + 1 - jnp.asarray(_overflows(state), jnp.int32), state, sums + new

        steps = (count + stride - 1) // stride
        begin = jax.tree.map(itemgetter(0), state)
        reached, end, sums = lax.while_loop(
            lambda carry: (carry[0] < steps) & ~jnp.asarray(_overflows(carry[1])),
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


def _overflows(state: State) -> ArrayLike:
    return state["overflow"] if is_table(state) and "overflow" in state else False


@jit(static=(0, 1))
def gather_rows(mesh: Mesh, size: int, rows: Rows) -> Rows:
    """The first ``size`` rows of all devices, the same on all of them."""

    def gather(x: Array) -> Array:
        return all_gather(x[0, :size] if x.ndim > 1 else x[0], LANES)

    return _on_all(mesh, lambda rows: jax.tree.map(gather, rows))(rows)


@jit(static=(0, 1))
def merge_devices(reducer: Monoid, mesh: Mesh, state: State) -> State:
    """One state out of the states of all devices, the same on all of them."""

    def gather(x: Array) -> Array:
        return all_gather(x[0], LANES)

    def merge(state: State) -> State:
        states = jax.tree.map(gather, state)
        rest = jax.tree.map(itemgetter(0), states)
        return fori_loop(
            1, mesh.size, lambda i, x: reducer.merge(x, jax.tree.map(itemgetter(i), states)), rest
        )

    return _on_all(mesh, merge)(state)


def _on_all(mesh: Mesh, function: Callable[[State], State]) -> Callable[[State], State]:
    """A function of the arrays over all devices whose answer is the same on each of them."""
    return jax.shard_map(
        function, mesh=mesh, in_specs=(SPLIT,), out_specs=REPLICATED, check_vma=False
    )
