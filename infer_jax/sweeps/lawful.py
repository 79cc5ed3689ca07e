"""Masks of the grid points that an engine runs, from ``infer_jax.legal``, computed on the host.

A rule reads few axes, so it becomes one table over their digits; a table that is true everywhere
is dropped. A value that breaks a rule at every point is refused before anything is computed; a
combination that breaks one is left out, as by a constraint.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from infer_jax import legal
from infer_jax.errors import InputError
from infer_jax.specs import Plan
from infer_jax.sweeps.group import Group, Slot
from infer_jax.sweeps.paths import Point, by_path

Grids = Sequence[tuple[legal.Rule, np.ndarray]]  # each rule, with where it holds
WORK = ("prefix", "isl", "batch")  # the rules of a workload
LARGEST = 2**22  # entries of a table; larger ones are evaluated point by point on the device


class Mask(NamedTuple):
    """Which combinations of some digits are legal: flat, the last of them fastest."""

    digits: tuple[int, ...]
    table: np.ndarray


def masks(groups: Sequence[Group]) -> tuple[list[list[Mask]], bool]:
    """The masks of each group, and whether some rules have to be evaluated at each point.

    Raises:
        InputError: a value that is illegal at every point.
    """
    left = False
    kept: list[list[Mask]] = []
    all_grids: list[Grids] = []
    broken: dict[tuple[str, int], tuple[object, legal.Rule] | None] = {}
    for group in groups:
        grids, large = _tables(group)
        left |= large
        all_grids.append(grids)
        for column in group.columns:
            for digit, position in enumerate(column.order):
                number = _always_broken(grids, column.digit, digit)
                rule = None if number is None else _rule_at(group, column.digit, digit, number)
                at = (column.path, position)
                before = broken.get(at, ())
                label = column.labels[digit]
                broken[at] = None if rule is None or before is None else (label, rule)
        kept.append(_combined(group, grids))
    _refuse_numbers(all_grids)
    for (path, _), named in broken.items():
        if named is not None:
            value, rule = named
            raise InputError("space", _shown(path, rule), value, rule.allowed())
    return kept, left


def lawful(point: Point) -> legal.Truth:
    """Whether an engine runs one point."""
    held: legal.Truth = True
    for rule in _rules(point):
        held = held & rule.holds
    return held


def _rules(point: Point) -> list[legal.Rule]:
    """The rules for a point; those of the workload alone where the estimator splits the chips."""
    split = _splits(point)
    asked = legal.rules(point.arch, point.plan if split else Plan.of(), point.workload)
    return [r for r in asked if split or r.field in WORK]


def _splits(point: Point) -> bool:
    """Whether the plan gives the layout, and the estimator does not search it."""
    return not point.estimator.searches and isinstance(point.plan, Plan)


def _entries(group: Group, split: bool) -> int:
    """A bound on the entries of the largest table: the product of the axes that one rule reads."""
    paths = list(by_path(group.base))
    together = [
        ("workload.isl", "workload.prefix"),
        ("workload.isl", "workload.osl", "arch.max_positions"),
        ("workload.batch", "plan.attention_dp"),
    ]
    if split:
        together += [("arch.", "plan.tp", "plan.ep", "plan.attention_dp"), ("arch.", "plan.pp")]
    digits = [{s.digit for s in group.slots if paths[s.leaf].startswith(t)} for t in together]
    return max(prod(group.sizes[i] for i in some) for some in digits)


def _refuse_numbers(grids: Sequence[Grids]) -> None:
    """Raise InputError where a fixed number breaks a rule in every group."""
    wrong = [[r for r, held in one if held.size == 1 and not held] for one in grids]
    if wrong and all(wrong):
        rule = wrong[0][0]
        part = "workload" if rule.field in WORK else "plan"
        value = f"{float(np.ravel(rule.value)[0]):.12g}"
        raise InputError("space", f"{part}.{rule.field}", value, rule.allowed())


def _shown(path: str, rule: legal.Rule) -> str:
    return path if path.endswith(rule.field) else f"{path} (for {rule.field})"


def _tables(group: Group) -> tuple[list[tuple[legal.Rule, np.ndarray]], bool]:
    """Each rule with an array of where it holds, one dimension for each digit of the group."""
    if any(slot.rule is not None for slot in group.slots):
        return [], True  # a dependent axis: no table of digits
    count = len(group.sizes)

    def spread(slot: Slot, table: np.ndarray) -> np.ndarray:
        shape = [1] * count
        shape[slot.digit] = len(table)
        return np.asarray(table, np.float64).reshape(*shape, *np.shape(table)[1:])

    flat, tree = jax.tree.flatten(group.base)
    for slot, table in zip(group.slots, group.tables, strict=True):
        if np.ndim(table) == 1:
            flat[slot.leaf] = spread(slot, table)
    point = jax.tree.unflatten(tree, flat)
    if _entries(group, _splits(point)) > LARGEST:
        return [], True
    return [(rule, np.asarray(rule.holds)) for rule in _rules(point)], False


def _always_broken(grids: Grids, axis: int, digit: int) -> int | None:
    """The number of a rule that a value breaks at every point."""
    for number, (_, held) in enumerate(grids):
        reads = held.size > 1 and held.shape[axis] > 1 and not held.all()
        if reads and not held.take(digit, axis).any():
            return number
    return None


def _rule_at(group: Group, axis: int, digit: int, number: int) -> legal.Rule:
    """The rule evaluated at one point that breaks it, whose numbers the error message names."""
    digits = [digit if i == axis else 0 for i in range(len(group.sizes))]
    return _rules(group.fill(group.steps(digits)))[number]


def _combined(group: Group, grids: Grids) -> list[Mask]:
    """One table for all rules over the same digits."""
    tables: dict[tuple[int, ...], np.ndarray] = {}
    for _, held in grids:
        if not held.all():
            digits = tuple(i for i, n in enumerate(held.shape) if n > 1)
            flat = held.ravel()
            tables[digits] = tables.get(digits, np.asarray(True)) & flat
    return [Mask(digits, table) for digits, table in tables.items()]


def place(mask: Sequence[int], digits: Sequence[Array], sizes: Sequence[int]) -> Array | int:
    """The position in a mask's table of points with these digits."""
    at: Array | int = 0
    for digit in mask:
        at = at * sizes[digit] + digits[digit]
    return at
