"""The compiled program of a segment: decode points, evaluate them, reduce them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
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
from infer_jax.sweeps.group import Group
from infer_jax.sweeps.lawful import place
from infer_jax.sweeps.paths import Point, is_table
from infer_jax.sweeps.point import Program, answers
from infer_jax.sweeps.reducers import Chunk, Monoid, Rows, State, fold, parse
from infer_jax.typed_jax import all_gather, jit, pmax, pmin, psum

Carry = tuple[Array, State, Array]  # the step, the state, the counts
Segment = tuple[State, Array, Array, Array]  # states, counts, the steps done, wishes
LANES = "lanes"  # the one axis of the mesh
COUNTS = ("accepted", "feasible", "undefined")


class Task(NamedTuple):
    """The numbers of a group: its base, a table for each slot, the positions of ``per``, and
    the masks of legal points."""

    base: Point
    tables: tuple[np.ndarray, ...]
    orders: tuple[np.ndarray, ...]
    masks: tuple[np.ndarray, ...] = ()


def task_of(group: Group, per: tuple[int, ...], spans: tuple[int, ...], dtype: DTypeLike) -> Task:
    """A group's numbers in one precision; ``spans`` are the user's positions per ``per`` digit."""
    cast = partial(np.asarray, dtype=dtype)
    orders: list[np.ndarray] = []
    stride = 1
    for digit, span in reversed(list(zip(per, spans, strict=True))):
        order = next(c.order for c in group.columns if c.digit == digit)
        orders.insert(0, np.asarray(order, np.int32) * stride)
        stride *= span
    base = jax.tree.map(cast, group.base)
    return Task(base, tuple(cast(t) for t in group.tables), tuple(orders))


def chunk_of(
    program: Program, task: Task, start: Array, limbs: Array, offset: Array, count: Array
) -> tuple[Chunk, Array]:
    """The chunk of lanes that begins ``offset`` points after a segment's start; its counts."""
    lanes = offset + jnp.arange(program.chunk, dtype=jnp.int32)
    digits = radix.advance(tuple(start), program.sizes, lanes)
    steps = [t[digits[s.digit]] for s, t in zip(program.slots, task.tables, strict=True)]
    point = jax.vmap(answers(program, task.base), axis_size=program.chunk)
    values, accepted, feasible, short, _ = point(steps)
    accepted &= lanes < count
    for mask, legal in zip(program.masks, task.masks, strict=True):
        accepted &= legal[place(mask, digits, program.sizes)]
    group = jnp.zeros(program.chunk, jnp.int32)
    for digit, order in zip(program.per, task.orders, strict=True):
        group += order[digits[digit]]
    index = radix.add(tuple(limbs), lanes.astype(jnp.uint32))
    ok = accepted & feasible
    undefined = jnp.asarray(False)
    for term in program.reducer.terms:
        undefined |= jnp.isnan(values[parse(term)[0]])
    sums = [jnp.sum(m, dtype=jnp.int32) for m in (accepted, ok, accepted & undefined)]
    chunk = Chunk(values, accepted, ok, short, index, group, dict(program.signs))
    return chunk, jnp.stack(sums)


def precise(dtype: DTypeLike) -> AbstractContextManager[object]:
    """A context in which arrays of this precision exist: float64 needs JAX's 64-bit mode.

    For compiled calls, their arguments and results; float32 needs nothing.
    """
    on = np.dtype(dtype) == np.float64 and not jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    return jax.enable_x64(True) if on else nullcontext()


@lru_cache
def _compiled(platform: str) -> Callable[..., Segment]:
    return jit(static=(0, 1), donate=(2,), options=wide(platform))(_segment)


def segment(
    program: Program,
    mesh: Mesh,
    state: State,
    task: Task,
    start: ArrayLike,
    limbs: ArrayLike,
    count: ArrayLike,
    wishes: ArrayLike,
) -> Segment:
    """Absorb ``count`` points (at most 2^30) after a start on all devices.

    Returns the states, the counts of all devices, the steps that every device had room for (fewer
    than asked where one overflowed and the segment ended early), and the least and the largest
    wish (go on, save or stop), through which processes agree.
    """
    run = _compiled(mesh.devices.flat[0].platform)
    return run(program, mesh, state, task, start, limbs, count, wishes)


def _segment(
    program: Program,
    mesh: Mesh,
    state: State,
    task: Task,
    start: Array,
    limbs: Array,
    count: Array,
    wishes: Array,
) -> Segment:
    def share(
        state: State, task: Task, start: Array, limbs: Array, count: Array, wishes: Array
    ) -> Segment:
        mine = lax.axis_index(LANES).astype(jnp.int32) * program.chunk
        stride = mesh.size * program.chunk

        def step(carry: Carry) -> Carry:
            i, state, sums = carry
            chunk, new = chunk_of(program, task, start, limbs, mine + i * stride, count)
            state = program.reducer.absorb(state, chunk)
            # a step that overflows is discarded
            return i + 1 - jnp.asarray(_full(state), jnp.int32), state, sums + new

        held = jax.tree.map(itemgetter(0), state)
        steps = (count + stride - 1) // stride
        begin = (jnp.asarray(0, jnp.int32), held, jnp.zeros(len(COUNTS), jnp.int32))
        reached, held, sums = lax.while_loop(
            lambda carry: (carry[0] < steps) & ~jnp.asarray(_full(carry[1])), step, begin
        )
        sums = psum(sums, LANES)
        reached = pmin(reached, LANES)
        agreed = jnp.stack([pmin(wishes[0, 0], LANES), pmax(wishes[0, 1], LANES)])
        return jax.tree.map(itemgetter(None), held), sums, reached, agreed

    split, whole = PartitionSpec(LANES), PartitionSpec()
    return jax.shard_map(
        share,
        mesh=mesh,
        in_specs=(split, whole, whole, whole, whole, split),
        out_specs=(split, whole, whole, whole),
        check_vma=False,
    )(state, task, start, limbs, count, wishes)


def _full(state: State) -> ArrayLike:
    return state["overflow"] if is_table(state) and "overflow" in state else False


@jit(static=(0, 1))
def gather(mesh: Mesh, size: int, rows: Rows) -> Rows:
    """The first ``size`` rows of all devices, the same on all of them."""

    def share(rows: Rows) -> Rows:
        def first(x: Array) -> Array:
            return x[0, :size] if x.ndim > 1 else x[0]

        return jax.tree.map(partial(all_gather, axis=LANES), jax.tree.map(first, rows))

    split, whole = PartitionSpec(LANES), PartitionSpec()
    return jax.shard_map(share, mesh=mesh, in_specs=(split,), out_specs=whole, check_vma=False)(
        rows
    )


@jit(static=(0, 1))
def collect(reducer: Monoid, mesh: Mesh, state: State) -> State:
    """One state out of the states of all devices, the same on all of them."""

    def share(state: State) -> State:
        def stacked(x: Array) -> Array:
            return all_gather(x[0], LANES)

        return fold(reducer, jax.tree.map(stacked, state), mesh.size)

    split, whole = PartitionSpec(LANES), PartitionSpec()
    return jax.shard_map(share, mesh=mesh, in_specs=(split,), out_specs=whole, check_vma=False)(
        state
    )
