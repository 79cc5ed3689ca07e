"""Kept points exactly: decoded again, evaluated in float64, and filtered again."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import groupby, islice

import jax
import numpy as np
from jax import Array, Device

from infer_jax.compiling import quick
from infer_jax.sweeps.front import Front
from infer_jax.sweeps.group import spread
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.paths import Point, numbers
from infer_jax.sweeps.point import Evaluated, Extent, Program, answers
from infer_jax.sweeps.preparing import Prepared
from infer_jax.sweeps.program import GroupTask, precise
from infer_jax.sweeps.reducers import Best, Reducer, TopK, parse
from infer_jax.typed_jax import jit

BLOCK = 1024  # points evaluated at a time: one program for any number of them


class RefinedPoints:
    """Points in float64: index, terms by path, whether they are feasible, and their excess."""

    def __init__(self, index: Sequence[int], terms: dict[str, np.ndarray], group: np.ndarray):
        self.index, self.terms, self.group = list(index), terms, group

    def __len__(self) -> int:
        return len(self.index)

    def take(self, order: Sequence[int] | np.ndarray) -> "RefinedPoints":
        """The chosen rows, in that order."""
        chosen = np.asarray(order, int)
        numbers: list[int] = chosen.tolist()
        terms = {k: v[chosen] for k, v in self.terms.items()}
        return RefinedPoints([self.index[i] for i in numbers], terms, self.group[chosen])


# columns of RefinedPoints beside the terms; no path has a space
ACCEPTED, SHORTFALL = " accepted", " shortfall"


def _estimates(program: Program, extent: Extent, base: Point, steps: Sequence[Array]) -> Evaluated:
    return jax.vmap(answers(program, base, extent), axis_size=BLOCK)(steps)


@lru_cache
def _compiled(platform: str) -> Callable[..., Evaluated]:
    return jit(static=(0, 1), options=quick(platform))(_estimates)


def evaluate(ready: Prepared, index: Sequence[int]) -> RefinedPoints:
    """All numbers of the estimates at these global indices, in float64."""
    terms: dict[str, np.ndarray] = {}
    owner = np.zeros(len(index), np.int64)  # the position on the axes of ``per``, as one number
    for number, at, digits in spread(ready.groups, index):
        part = ready.parts[number]
        for path, size in zip(ready.running.axes, ready.per_sizes, strict=True):
            column = next(c for c in part.group.columns if c.path == path)
            owner[at] = owner[at] * size + np.asarray(column.order)[digits[:, column.digit]]
        for name, values in _terms(part, digits).items():
            full = terms.setdefault(name, np.full(len(index), np.nan, values.dtype))
            full[at] = values
    return RefinedPoints(index, terms, owner)


def compile_points(part: GroupTask) -> None:
    """Compile the program that evaluates a part's points, by evaluating the first one."""
    estimates(part, np.zeros((1, len(part.group.sizes)), np.int64), "scope")


def estimates(part: GroupTask, digits: np.ndarray, extent: Extent) -> Evaluated:
    """(terms, accepted, feasible, shortfall, estimate) at rows of digits, in float64."""
    count, group = len(digits), part.group
    blocks = -(-count // BLOCK)
    padded = np.concatenate([digits, np.repeat(digits[:1], blocks * BLOCK - count, 0)])
    host = [d for d in jax.local_devices() if d.platform == "cpu"] or _cpu() or jax.local_devices()
    lean = part.program._replace(reducer=None, chunk=0, words=0, per=(), masks=())
    if "." not in lean.feasible:
        extent = "all"  # one program for both uses
    with precise(np.float64), jax.default_device(host[0]):
        # arrays of their own: JAX keeps one that a caller's program closed over in 32 bits so
        base = jax.tree.map(partial(np.array, dtype=np.float64), group.base)
        run = _compiled(host[0].platform)
        rows = [
            jax.device_get(run(lean, extent, base, group.steps(block.T)))
            for block in np.split(padded, blocks)
        ]
    return jax.tree.map(lambda *x: np.concatenate(x)[:count], *rows)


def _terms(part: GroupTask, digits: np.ndarray) -> dict[str, np.ndarray]:
    values, accepted, feasible, shortfall, estimate = estimates(part, digits, "scope")
    known = {name: column for name, column in numbers(estimate).items() if column is not None}
    columns = {**values, **known, "feasible": feasible, ACCEPTED: accepted, SHORTFALL: shortfall}
    return {name: np.asarray(column) for name, column in columns.items()}


def _cpu() -> list[Device]:
    try:
        return jax.local_devices(backend="cpu")
    except RuntimeError:  # JAX_PLATFORMS names only an accelerator
        return []


def select(reducer: Reducer, rows: RefinedPoints, signs: dict[str, float]) -> RefinedPoints:
    """The points that the reducer keeps of these, exactly, in the reducer's order."""
    if not len(rows):
        return rows
    if isinstance(reducer, Pareto):
        live, keys = eligible(reducer, rows, signs)
        return rows.take(live[_frontier(reducer, keys[live].T, rows.group[live])])
    feasible = _feasible(rows)
    if isinstance(reducer, Best):
        return _best(reducer, rows, signs, feasible)
    if isinstance(reducer, TopK):
        value = _key(rows, reducer.by, signs)
        return rows.take(_ranked(rows, value, feasible & np.isfinite(value), reducer.k))
    return rows


def eligible(
    reducer: Pareto, rows: RefinedPoints, signs: dict[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Which points are feasible, and the objectives to minimise of all of them."""
    if not len(rows):
        return np.zeros(0, int), np.zeros((0, len(reducer.objectives)))
    keys = np.stack([_key(rows, term, signs) for term in reducer.objectives], -1)
    return np.flatnonzero(_feasible(rows) & np.all(np.isfinite(keys), axis=1)), keys


def _feasible(rows: RefinedPoints) -> np.ndarray:
    return rows.terms["feasible"].astype(bool) & rows.terms[ACCEPTED].astype(bool)


def _key(rows: RefinedPoints, term: str, signs: dict[str, float]) -> np.ndarray:
    name, sign = parse(term)
    return rows.terms[name] * (signs[name] if sign is None else sign)


def _ranked(rows: RefinedPoints, value: np.ndarray, alive: np.ndarray, k: int) -> list[int]:
    order = sorted(np.flatnonzero(alive), key=lambda i: (rows.group[i], value[i], rows.index[i]))
    by_group = (islice(group, k) for _, group in groupby(order, lambda i: rows.group[i]))
    return [int(i) for group in by_group for i in group]


def _best(
    reducer: Best, rows: RefinedPoints, signs: dict[str, float], feasible: np.ndarray
) -> RefinedPoints:
    excess = np.maximum(rows.terms[SHORTFALL], 0.0)
    meets = feasible.copy()
    for name, limit in reducer.limits:
        value, larger = rows.terms[name], signs[name] < 0
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.fmax(excess, (limit / value if larger else value / limit) - 1.0)
        meets &= (value >= limit) if larger else (value <= limit)
    value = _key(rows, reducer.by, signs)
    winners = _ranked(rows, value, meets & np.isfinite(value), reducer.k)
    accepted = rows.terms[ACCEPTED].astype(bool) & np.isfinite(excess)
    return rows.take(winners or _ranked(rows, excess, accepted, reducer.misses))


def _frontier(reducer: Pareto, keys: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Positions of the frontier; the columns of ``keys`` come in the order of the index."""
    ties = np.arange(len(group))
    compared = keys
    if reducer.epsilon:
        size: np.ndarray = np.floor(np.log(np.abs(keys)) / np.log1p(reducer.epsilon))
        compared = np.where(keys < 0, -size, size)
    columns = [group.astype(np.int64), *compared, *(keys if reducer.epsilon else ()), ties]
    front = Front(tuple(columns), len(keys), 1)
    return front.take(ties[:0]).merged(front).ordered().columns[-1]
