"""A grid as a continuous space: the axes of a sweep as unbounded coordinates.

A numeric axis is relaxed to the interval between its ends; the coordinate is the logit of the
position in it, in logarithms where the ends are positive. Axes whose product or sum a constraint
fixes share a simplex instead. Choices, names and whole specs stay digits, one for each start.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.calibration.bounds import Parameters
from infer_jax.errors import InputError
from infer_jax.specs import leaves
from infer_jax.sweeps.constraint import Constraint, Predicate
from infer_jax.sweeps.paths import Point
from infer_jax.sweeps.space import Group

INSIDE = 0.02  # how near to an end a start may be, as a share of the span


class Simplex(NamedTuple):
    """Coordinates whose values have a fixed product (in logarithms) or sum."""

    members: tuple[int, ...]
    total: float
    logs: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Relaxation:
    """The digits of a group that move, their ends, and the simplexes among them."""

    group: Group
    moving: dict[int, np.ndarray]  # by digit: the values of its first axis, ascending
    logs: np.ndarray
    bounds: Parameters
    simplexes: tuple[Simplex, ...]

    @classmethod
    def of(cls, group: Group, where: Sequence[Predicate] = ()) -> "Relaxation":
        """The relaxation of a group of points under its constraints."""
        parts = group.base._asdict().items()
        fields = [(f"{name}.{path}", meta) for name, x in parts for path, meta, _ in leaves(x)]
        choices = {path for path, meta in fields if meta["kind"] == "choice"}
        moving, lead = dict[int, np.ndarray](), dict[str, int]()
        for digit, size in enumerate(group.sizes):
            own = [c for c in group.columns if c.digit == digit]
            slots = [i for i, s in enumerate(group.slots) if s.digit == digit and s.rule is None]
            numeric = slots and not any(c.is_spec or c.path in choices for c in own)
            if numeric and size > 1 and np.all(np.diff(group.tables[slots[0]]) > 0):
                lead |= {c.path: len(moving) for c in own}
                moving[digit] = group.tables[slots[0]]
        tables = [*moving.values()]
        ends = np.array([[t[0], t[-1]] for t in tables]).reshape(-1, 2)
        logs = ends[:, 0] > 0
        ends = np.where(logs[:, None], np.log(np.where(ends > 0, ends, 1.0)), ends)
        names = tuple(str(d) for d in moving)
        places = tuple((i,) for i in range(len(moving)))
        bounds = Parameters(names, places, ends[:, 0], ends[:, 1])
        shared = tuple(s for c in where if (s := _simplex(c, lead, tables)) is not None)
        return cls(group, moving, logs, bounds, shared)

    def values(self, free: Array) -> Array:
        """Values of the moving digits at unbounded coordinates."""
        inside = self.bounds.values(free)
        values = jnp.where(self.logs, jnp.exp(jnp.where(self.logs, inside, 0.0)), inside)
        for members, total, logs in self.simplexes:
            at = jnp.asarray(members)
            share = jax.nn.softmax(free[at])
            values = values.at[at].set(jnp.exp(share * np.log(total)) if logs else share * total)
        return values

    def free(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Coordinates of values, moved off the ends by ``INSIDE``; the inverse of ``values``."""
        inside = np.asarray(values, np.float64)
        scaled = np.where(self.logs, np.log(np.where(self.logs, inside, 1.0)), inside)
        low, high = self.bounds.low, self.bounds.high
        near = np.clip((scaled - low) / (high - low), INSIDE, 1.0 - INSIDE)
        free = np.array(self.bounds.unbounded(jnp.asarray(low + near * (high - low))))
        for members, total, logs in self.simplexes:
            own = scaled[list(members)] / (np.log(total) if logs else total)
            free[list(members)] = np.log(np.clip(own, INSIDE, 1.0))
        return free

    def free_of(self, digits: Sequence[int]) -> np.ndarray:
        """Coordinates of the moving digits at a point of the grid."""
        return self.free([float(table[digits[digit]]) for digit, table in self.moving.items()])

    def steps(self, free: Array, digits: Array) -> list[Array]:
        """The step of every slot: moving ones at their coordinate, the others at their digit."""
        values = dict(zip(self.moving, self.values(free), strict=True)) if self.moving else {}
        steps: list[Array] = []
        for slot, table in zip(self.group.slots, self.group.tables, strict=True):
            if slot.digit not in values:
                steps.append(jnp.asarray(table)[digits[slot.digit]])
            elif np.array_equal(table, lead := self.moving[slot.digit]):
                steps.append(values[slot.digit])
            else:  # advances with the first axis of its digit
                steps.append(jnp.interp(values[slot.digit], jnp.asarray(lead), jnp.asarray(table)))
        return steps

    def positions(self, values: np.ndarray) -> np.ndarray:
        """Positions among the values of their axes, as real numbers: 2.5 is between 2 and 3."""
        pairs = zip(values, self.moving.values(), strict=True)
        return np.array([np.interp(v, t, np.arange(len(t))) for v, t in pairs])

    def start_values(self, start: Mapping[str, float]) -> dict[int, float]:
        """Values of the moving digits at the start; the middle of an axis where none is given.

        Raises:
            InputError: a start outside the ends of its axis, or on no moving axis.
        """
        values: dict[int, float] = {}
        paths = [c.path for c in self.group.columns]
        for digit, table in self.moving.items():
            own = [c.path for c in self.group.columns if c.digit == digit]
            middle = float(table[len(table) // 2])
            value = float(next((start[path] for path in own if path in start), middle))
            if not table[0] <= value <= table[-1]:
                allowed = f"bounds that hold the start: {table[0]:g} to {table[-1]:g} do not"
                raise InputError("codesign", own[0], value, allowed)
            values[digit] = value
        for path in start:
            if path not in paths:
                raise InputError("codesign", f"start of {path}", start[path], ", ".join(paths))
        return values

    def start_point(self, start: Mapping[str, float]) -> Point:
        """The start as a point: its values on the moving axes, the first value of all others."""
        values, leads = self.start_values(start), self.group.leads
        steps: list[np.ndarray] = []
        for slot, table in zip(self.group.slots, self.group.tables, strict=True):
            if slot.digit in values:
                step = np.interp(values[slot.digit], self.moving[slot.digit], table)
            else:
                path = leads[slot.digit].path if slot.digit in leads else ""
                step = np.float64(start.get(path, table[0]))
            steps.append(np.asarray(step))
        with jax.enable_x64(True):
            return jax.tree.map(lambda x: np.asarray(x, np.float64), self.group.fill(steps))

    def start_digits(self, start: Mapping[str, float]) -> np.ndarray:
        """The digits of the start, each number rounded to the nearest value of its axis."""
        digits = np.zeros(len(self.group.sizes), int)
        values = self.start_values(start)
        for slot, table in zip(self.group.slots, self.group.tables, strict=True):
            at = slot.digit
            if slot.rule is None and at in self.group.leads:
                value = values.get(at, start.get(self.group.leads[at].path, table[0]))
                digits[at] = int(np.argmin(np.abs(self.moving.get(at, table) - value)))
        return digits

    def random(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(coordinates, digits) of starts spread evenly over intervals and choices."""
        share = rng.uniform(INSIDE, 1.0 - INSIDE, (count, len(self.moving)))
        free = np.log(share) - np.log1p(-share)
        digits = np.stack([rng.permutation(np.arange(count) % n) for n in self.group.sizes], axis=1)
        return free, digits.astype(np.int32)


def _simplex(
    constraint: Predicate, lead: dict[str, int], tables: Sequence[np.ndarray]
) -> Simplex | None:
    """The simplex that a constraint ``product = number`` or ``sum = number`` over axes makes."""
    if not isinstance(constraint, Constraint) or not isinstance(constraint.equals, int | float):
        return None
    names = constraint.product or constraint.sum
    members = [lead[n] for n in names if n in lead]
    floor = 1.0 if constraint.product else 0.0
    on_axes = len(members) == len(names) > 1 and len(set(members)) == len(members)
    if not on_axes or any(tables[i][0] != floor for i in members) or constraint.equals <= floor:
        return None
    return Simplex(tuple(members), float(constraint.equals), bool(constraint.product))
