"""The space of a sweep: axes over five pytrees, as groups of points on mixed-radix grids."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from infer_jax.catalog import Model, System
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.specs import Spec, value_of
from infer_jax.specs.fields import fresh
from infer_jax.sweeps.axis import Axis, Rule
from infer_jax.sweeps.constraint import Predicate
from infer_jax.sweeps.paths import Point, Tree, by_path, children, is_sequence, look


class Slot(NamedTuple):
    """A leaf that varies: with a digit, or by a rule of the step and of the leaves before."""

    leaf: int
    digit: int
    rule: Rule | None = None


@dataclasses.dataclass(frozen=True)
class AxisColumn:
    """An axis as it is printed: its path, its digit, and for each value a label and a position."""

    path: str
    digit: int
    labels: tuple[object, ...]
    order: tuple[int, ...]
    is_spec: bool = False


@dataclasses.dataclass(frozen=True)
class Group:
    """Points of one tree structure: a base, and a table of values for each varying leaf."""

    base: Point
    sizes: tuple[int, ...]
    slots: tuple[Slot, ...]
    tables: tuple[np.ndarray, ...]
    columns: tuple[AxisColumn, ...]
    offset: int

    @property
    def size(self) -> int:
        """Points of the group."""
        return prod(self.sizes)

    @property
    def leads(self) -> dict[int, AxisColumn]:
        """The first axis of each digit, by which it is named."""
        return {c.digit: c for c in reversed(self.columns)}

    def fill(self, steps: Sequence[ArrayLike]) -> Point:
        """The point at which each slot has this step."""
        return fill(self.base, self.slots, steps)

    def steps(self, digits: Sequence[int] | np.ndarray) -> list[np.ndarray]:
        """The step of each slot at these digits (numbers, or arrays of one shape)."""
        return [t[digits[s.digit]] for s, t in zip(self.slots, self.tables, strict=True)]


def fill(base: Point, slots: Sequence[Slot], steps: Sequence[ArrayLike]) -> Point:
    """The point at which each slot has this step; dependent leaves follow their rules."""
    flat, tree = jax.tree.flatten(base)
    for slot, step in zip(slots, steps, strict=True):
        if slot.rule is not None:
            step = slot.rule(step, jax.tree.unflatten(tree, flat))
        flat[slot.leaf] = step
    return jax.tree.unflatten(tree, flat)


MAX_GROUPS = 64  # groups, each of which is a program of its own

Picks = tuple[tuple[int, ...], ...]  # by digit: the positions of one structure


@dataclasses.dataclass(frozen=True, repr=False)
class Space:
    """A grid: any leaf of the four specs may be an ``Axis``, any spec a list of specs.

    A system of the catalog stands for its hardware and, in the estimator, its coefficients; a
    model for its architecture. ``axes`` sets an axis by path on top of lists of specs,
    ``zips`` names axes that advance together, ``where`` are the constraints a point keeps:
    ``Constraint``, ``f(point)`` or ``f(point, estimate)``. Points are counted structure by
    structure, then in the order estimator, arch, hardware, workload, plan, the last fastest.
    """

    arch: Tree
    hardware: Tree
    workload: Tree
    plan: Tree
    axes: Mapping[str, Axis] = dataclasses.field(default_factory=dict[str, Axis])
    zips: Sequence[Sequence[str]] = ()
    where: Sequence[Predicate] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Values of each axis by path; axes that advance together stand as one."""
        grouping = _Grouping(self, None)
        return {" and ".join(x): len(grouping.axes[x[0]]) for x in grouping.digits}

    @property
    def size(self) -> int:
        """Points of the grid, estimators counted once; constraints may leave fewer."""
        return prod(self.sizes.values())

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        sizes = ", ".join(f"{path} {count:,}" for path, count in self.sizes.items())
        limits = f"; {len(self.where)} constraints" if self.where else ""
        return f"Space({self.size:,} points: {sizes or 'one'}{limits})"

    def groups(self, estimator: Estimator | Sequence[Estimator]) -> tuple[Group, ...]:
        """The groups of equal structure, in order of first appearance.

        Raises:
            InputError: an unknown or doubled path, a value out of its field's bounds, a zip of
                unequal lengths, a static field as an axis.
        """
        return _Grouping(self, estimator).groups()

    def entries(self) -> dict[str, System | Model]:
        """The systems and models from the catalog, by name; bare specs have no name."""
        entries: dict[str, System | Model] = {}
        for part in (self.arch, self.hardware, *self.axes.values()):
            axis = _as_axis(part)
            for item in axis.steps if isinstance(axis, Axis) else (axis,):
                if isinstance(item, System | Model):
                    entries[item.name] = item
        return entries


class _Grouping:
    """Divides a space into groups of equal structure."""

    def __init__(self, space: Space, estimator: Estimator | Sequence[Estimator] | None):
        parts = (estimator, space.arch, space.hardware, space.workload, space.plan)
        self.raw = fresh(Point(*(_as_axis(x) for x in parts)))
        for name, part in zip(Point._fields, self.raw, strict=True):
            _refuse_static(part, name)
        self.flat = by_path(self.raw, _stands_for_leaves)
        self.tree = jax.tree.structure(self.raw, _stands_for_leaves)
        inner = {path: x for path, x in self.flat.items() if isinstance(x, Axis)}
        for step in (step for axis in inner.values() if axis.is_spec for step in axis.steps):
            if any(isinstance(x, Axis) for x in jax.tree.leaves(step, is_leaf=_stands_for_leaves)):
                allowed = "Space(axes={path: axis})"
                raise InputError("space", "axis", "inside a list of specs", allowed)
        self.axes = {**inner, **space.axes}
        self.digits = self._digits(space.zips)

    def _digits(self, zips: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """Which axes share a digit, in the order of the fields."""
        partner: dict[str, tuple[str, ...]] = {}
        for zipped in zips:
            for path in zipped:
                if path not in self.axes:
                    raise InputError("space", "zips", path, f"axes: {', '.join(self.axes)}")
                if path in partner:
                    raise InputError("space", "zips", path, "each axis in one zip")
                partner[path] = tuple(zipped)
            lengths = {path: len(self.axes[path]) for path in zipped}
            if len(set(lengths.values())) > 1:
                raise InputError("space", "zips", lengths, "axes of one length")
        parts: dict[str, list[str]] = {name: [] for name in Point._fields}
        for path in self.axes:
            if path.split(".")[0] not in parts:
                allowed = f"a path that begins {', '.join(parts)}"
                raise InputError("space", "axis", path, allowed)
            parts[path.split(".")[0]].append(path)
        paths = (path for part in parts.values() for path in part)
        return list(dict.fromkeys(partner.get(path, (path,)) for path in paths))

    def groups(self) -> tuple[Group, ...]:
        structures = [self._structures(digit) for digit in self.digits]
        count = prod(len(positions) for positions in structures)
        if count > MAX_GROUPS:
            allowed = f"at most {MAX_GROUPS}: each is compiled; sweep models of other blocks apart"
            raise InputError("space", "specs", f"{count:,} structures", allowed)
        groups: list[Group] = []
        for picks in product(*structures):
            offset = groups[-1].offset + groups[-1].size if groups else 0
            groups.append(self._group(picks, offset))
        return tuple(groups)

    def _structures(self, digit: tuple[str, ...]) -> list[tuple[int, ...]]:
        """Positions of a digit whose specs have the same structure."""
        alike: dict[tuple[object, ...], list[int]] = {}
        for i in range(len(self.axes[digit[0]])):
            kinds = [
                i if path == "estimator" else jax.tree.structure(_spec(self.axes[path].steps[i]))
                for path in digit
                if self.axes[path].is_spec
            ]
            alike.setdefault(tuple(kinds), []).append(i)
        return [tuple(positions) for positions in alike.values()]

    def _group(self, picks: Picks, offset: int) -> Group:
        base = self._base(picks)
        number = {path: i for i, path in enumerate(by_path(base))}
        values = [np.asarray(x, np.float64) for x in jax.tree.leaves(base)]
        varied: dict[int, tuple[Slot, np.ndarray]] = {}

        def choose(leaf: int, row: Sequence[Tree], digit: int) -> None:
            """Let a digit choose a leaf, which is constant where all have one value."""
            table = np.asarray(row, np.float64)  # a leaf may be a look-up table
            values[leaf] = table[0]
            if np.any(table != table[0]):
                varied[leaf] = Slot(leaf, digit), table

        columns = [
            _column(self.axes[path], path, digit, pick)
            for digit, (paths, pick) in enumerate(zip(self.digits, picks, strict=True))
            for path in paths
        ]
        for c in sorted(columns, key=lambda c: not c.is_spec):  # numbers replace those of specs
            axis = self.axes[c.path]
            if c.is_spec:
                specs = [_spec(axis.steps[i]) for i in c.order]
                for path, row in zip(by_path(specs[0]), _rows(specs), strict=True):
                    choose(number[f"{c.path}.{path}" if path else c.path], row, c.digit)
            else:
                table = self._numbers(c.path, base, number)[np.array(c.order)]
                leaf = number[c.path]
                varied[leaf], values[leaf] = (Slot(leaf, c.digit, axis.rule), table), table[0]
        fitted, digit = self._fitted(base, picks)
        own = jax.tree.leaves(base.estimator)
        for leaf, row in enumerate(_rows(fitted)):
            if leaf not in varied:
                choose(leaf, row, digit)
            elif any(np.any(x != own[leaf]) for x in row):
                raise InputError(
                    "space", "estimator", "an axis over a coefficient that the systems set",
                    "hardware without that coefficient: system.hardware",
                )  # fmt: skip
        base = jax.tree.unflatten(jax.tree.structure(base), values)
        ordered = sorted(varied.values(), key=lambda s: (s[0].rule is not None, s[0].leaf))
        slots, tables = tuple(s for s, _ in ordered), tuple(t for _, t in ordered)
        return Group(base, tuple(len(p) for p in picks), slots, tables, tuple(columns), offset)

    def _base(self, picks: Picks) -> Point:
        """The point of the first specs picked, with 0 where a number varies."""
        first = {p: pick[0] for digit, pick in zip(self.digits, picks, strict=True) for p in digit}
        flat: list[Tree] = []
        for path, item in self.flat.items():
            if isinstance(item, Axis):
                item = item.steps[first[path]] if self.axes[path].is_spec else np.float64(0.0)
            flat.append(_spec(item))
        return Point(*jax.tree.unflatten(self.tree, flat))

    def _numbers(self, path: str, base: Point, leaf: Mapping[str, int]) -> np.ndarray:
        """The checked values of a numeric axis."""
        axis, (above, _, name) = self.axes[path], path.rpartition(".")
        owner: Spec = look(above, base, None)
        if name not in children(owner):
            raise InputError("space", "axis", path, f"here one of {', '.join(children(owner))}")
        if path not in leaf:
            raise InputError("space", "axis", path, "a leaf, not a part; specs for a whole part")
        if axis.rule is not None:
            return np.asarray(axis.steps, np.float64)
        try:
            return np.asarray(value_of(type(owner), name, np.asarray(axis.steps, float), "space"))
        except (InputError, TypeError, ValueError, OverflowError):
            steps = [value_of(type(owner), name, step, f"space: {path}") for step in axis.steps]
            return np.asarray(steps, np.float64)

    def _fitted(self, base: Point, picks: Picks) -> tuple[list[Estimator], int]:
        """The estimator with the coefficients of each system, and the digit that picks these."""
        systems, digit = [self.raw.hardware], -1
        for i, (paths, pick) in enumerate(zip(self.digits, picks, strict=True)):
            if "hardware" in paths:
                systems, digit = [self.axes["hardware"].steps[j] for j in pick], i
        return [
            base.estimator.fitted_to(s.coefficients) if isinstance(s, System) else base.estimator
            for s in systems
        ], digit


def _as_axis(part: Tree) -> Tree:
    return Axis.specs(*part) if is_sequence(part) else part


def _stands_for_leaves(part: object) -> bool:
    """Whether it stands for leaves that are laid out later."""
    return isinstance(part, Axis | System | Model)


def _spec(item: Tree) -> Tree:
    if isinstance(item, System):
        return item.tree
    return item.architecture if isinstance(item, Model) else item


def _rows(specs: Sequence[Tree]) -> list[tuple[Tree, ...]]:
    """By leaf: its value in each spec."""
    return list(zip(*(jax.tree.leaves(spec) for spec in specs), strict=True))


def _column(axis: Axis, path: str, digit: int, pick: tuple[int, ...]) -> AxisColumn:
    """An axis with the values picked: numbers, and specs by name or else by position."""
    steps = [axis.steps[i] for i in pick]
    if axis.is_spec:
        steps = [getattr(x, "name", None) or i for i, x in zip(pick, steps, strict=True)]
    return AxisColumn(path, digit, tuple(steps), pick, axis.is_spec)


def _refuse_static(tree: object, path: str) -> None:
    """Raise InputError where an axis sits in a field that is structure."""
    if isinstance(tree, Axis):
        return
    for f in dataclasses.fields(tree) if dataclasses.is_dataclass(tree) else ():
        value, here = getattr(tree, f.name), f"{path}.{f.name}"
        if f.metadata.get("kind") == "static" and isinstance(value, Axis):
            raise InputError(
                "space", "axis", here, "a number; structure is swept as a list of specs"
            )
        for i, item in enumerate(value if is_sequence(value) else [value]):
            _refuse_static(item, f"{here}.{i}" if is_sequence(value) else here)
