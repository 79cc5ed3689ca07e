"""Kept points exactly: decoded again, evaluated in float64, and filtered again."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jax import Array

from infer_jax.compiling import host_device, quick, wide
from infer_jax.sweeps.pareto import Front, Pareto
from infer_jax.sweeps.paths import Point, numbers
from infer_jax.sweeps.preparing import Part, Prepared
from infer_jax.sweeps.program import Evaluated, Evaluation, Extent, answers, flat_index, precise
from infer_jax.sweeps.reducers import Chunk, Ranking, Reducer
from infer_jax.typed_jax import jit, trees

BLOCK = 1024  # points evaluated at a time: one program for any number of them


@dataclasses.dataclass(frozen=True)
class RefinedPoints:
    """Points in float64: their indices, and a chunk of them with every term by its path."""

    index: Sequence[int]
    chunk: Chunk

    def __len__(self) -> int:
        return len(self.index)

    @property
    def terms(self) -> dict[str, np.ndarray]:
        """Every number of the estimates by its path, and whether they are feasible."""
        return {name: np.asarray(x) for name, x in self.chunk.values.items()}

    def take(self, order: Sequence[int] | np.ndarray) -> "RefinedPoints":
        """The chosen rows, in that order."""
        rows, old = np.asarray(order, int), self.chunk
        values = {name: x[rows] for name, x in old.values.items()}  # in their order
        chunk = trees.take(old._replace(values={}, signs={}), rows)
        chunk = chunk._replace(values=values, signs=old.signs)
        numbers: list[int] = rows.tolist()
        return RefinedPoints([self.index[i] for i in numbers], chunk)


def _estimates(
    evaluation: Evaluation, extent: Extent, block: int, base: Point, steps: Sequence[Array]
) -> Evaluated:
    return jax.vmap(answers(evaluation, base, extent), axis_size=block)(steps)


@lru_cache
def _compiled(platform: str, *, few: bool) -> Callable[..., Evaluated]:
    """``few``: points that an estimator lets be evaluated at once, because one takes long."""
    return jit(static=(0, 1, 2), options=(wide if few else quick)(platform))(_estimates)


def evaluate(ready: Prepared, index: Sequence[int]) -> RefinedPoints:
    """All numbers of the estimates at these global indices, in float64."""
    columns: dict[str, Any] = {}
    fixed = {"accepted": bool, "shortfall": float, "position": np.int64}
    judged: dict[str, Any] = {name: np.zeros(len(index), kind) for name, kind in fixed.items()}
    for part, at, digits in ready.locate(index):
        values, *verdicts, estimate = estimates(part, digits, "scope")
        judged["accepted"][at], feasible, judged["shortfall"][at] = verdicts
        place = flat_index(part.program.per, digits.T, part.program.sizes)
        judged["position"][at] = part.task.positions[place]
        known = {name: column for name, column in numbers(estimate).items() if column is not None}
        for name, column in {**values, **known, "feasible": feasible}.items():
            full = columns.setdefault(name, np.full(len(index), np.nan, np.asarray(column).dtype))
            full[at] = column
    feasible = columns.get("feasible", judged["accepted"]) & judged["accepted"]
    chunk = Chunk(
        columns, judged["accepted"], feasible, judged["shortfall"], (), judged["position"],
        ready.signs,
    )  # fmt: skip
    return RefinedPoints(list(index), chunk)


def estimates(part: Part, digits: np.ndarray, extent: Extent) -> Evaluated:
    """(terms, accepted, feasible, shortfall, estimate) at rows of digits, in float64."""
    count, group, evaluation = len(digits), part.group, part.program.evaluation
    block = group.base.estimator.lanes or BLOCK
    blocks = -(-count // block)
    padded = np.concatenate([digits, np.repeat(digits[:1], blocks * block - count, 0)])
    host = host_device()
    if "." not in evaluation.feasible:
        extent = "all"  # one program for both uses
    with precise(np.float64), jax.default_device(host):
        # arrays of their own: JAX keeps one that a caller's program closed over in 32 bits so
        base = jax.tree.map(partial(np.array, dtype=np.float64), group.base)
        run = _compiled(host.platform, few=block < BLOCK)
        rows = [
            jax.device_get(run(evaluation, extent, block, base, group.steps(x.T)))
            for x in np.split(padded, blocks)
        ]
    return jax.tree.map(lambda *x: np.concatenate(x)[:count], *rows)


def select(reducer: Reducer, rows: RefinedPoints) -> RefinedPoints:
    """The points that the reducer keeps of these, exactly, in the reducer's order."""
    if isinstance(reducer, Pareto) and len(rows):
        live, keys = eligible(reducer, rows)
        group = np.asarray(rows.chunk.group)[live]
        return rows.take(live[_frontier(reducer, keys[live].T, group)])
    if not isinstance(reducer, Ranking) or not len(rows):
        return rows
    group = np.asarray(rows.chunk.group)
    with np.errstate(divide="ignore", invalid="ignore"):
        rankings = reducer.keys(rows.chunk, np)
    for name, (value, alive) in rankings.items():
        # the first of each group that take part; of equal ones the lower index
        order = np.lexsort((np.asarray(value), group))
        order = order[np.asarray(alive)[order]]
        place = np.arange(len(order)) - np.searchsorted(group[order], group[order])
        if len(chosen := order[place < reducer.sizes[name]]):
            return rows.take(chosen)
    return rows.take([])


def eligible(reducer: Pareto, rows: RefinedPoints) -> tuple[np.ndarray, np.ndarray]:
    """Which points are feasible, and the objectives to minimise of all of them."""
    keys = np.stack([np.asarray(rows.chunk.key(term)) for term in reducer.objectives], -1)
    alive = np.asarray(rows.chunk.feasible) & np.all(np.isfinite(keys), axis=1)
    return np.flatnonzero(alive), keys


def _frontier(reducer: Pareto, keys: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Positions of the frontier; the columns of ``keys`` come in the order of the index."""
    ties = np.arange(len(group))
    compared = reducer.box(keys, np) if reducer.epsilon else keys
    columns = [group.astype(np.int64), *compared, *(keys if reducer.epsilon else ()), ties]
    front = Front(tuple(columns), len(keys), 1)
    return front.take(ties[:0]).merged(front).sort_rows().columns[-1]
