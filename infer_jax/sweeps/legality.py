"""Masks of the grid points that an engine runs, from ``infer_jax.legal``, computed on the host.

A rule reads few axes, so it becomes one table over their digits; a table that is true everywhere
is dropped. A value that breaks a rule at every point is refused before anything is computed; a
combination that breaks one is left out, as by a constraint.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from infer_jax import legal
from infer_jax.errors import InputError
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.silicon.mixture import mixture_of
from infer_jax.specs import Plan
from infer_jax.sweeps.constraint import divides
from infer_jax.sweeps.paths import Point, by_path
from infer_jax.sweeps.space import Group

WORKLOAD = ("prefix", "isl", "batch")  # fields whose rules hold for any plan
MAX_ENTRIES = 2**22  # of a table; larger ones are evaluated point by point on the device
# axes that one rule reads together, by the beginnings of their paths
JOINT = (
    ("workload.isl", "workload.prefix"),
    ("workload.isl", "workload.osl", "arch.max_positions"),
    ("workload.batch", "plan.attention_dp"),
)
JOINT_OF_PLAN = (("arch.", "plan.tp", "plan.ep", "plan.attention_dp"), ("arch.", "plan.pp"))
Tables = list[tuple[legal.Rule, np.ndarray]]  # by rule: where it holds, a dimension for each digit
# by digits: which of their combinations are legal, flat, the last digit fastest
Masks = dict[tuple[int, ...], np.ndarray]


def validity_masks(groups: Sequence[Group]) -> tuple[list[Masks], bool]:
    """The masks of each group, and whether some rules have to be evaluated at each point.

    Raises:
        InputError: a value that is illegal at every point.
    """
    tables = [_tables(group) for group in groups]
    # a fixed number that breaks a rule in every group
    fixed = [[r for r, holds in t or [] if holds.size == 1 and not holds] for t in tables]
    if fixed and all(fixed):
        rule = fixed[0][0]
        part = "workload" if rule.field in WORKLOAD else "plan"
        value = f"{float(np.ravel(rule.value)[0]):.12g}"
        raise InputError("space", f"{part}.{rule.field}", value, rule.allowed())
    legal_somewhere = set[tuple[str, int]]()
    broken: dict[tuple[str, int], tuple[object, legal.Rule]] = {}
    for group, table in zip(groups, tables, strict=True):
        for column in group.columns:
            for digit, position in enumerate(column.order):
                rule = _broken_rule(group, table or [], column.digit, digit)
                if rule is None:
                    legal_somewhere.add((column.path, position))
                else:
                    broken[column.path, position] = column.labels[digit], rule
    for value, (label, rule) in broken.items():
        if value not in legal_somewhere:
            path = value[0]
            field = path if path.endswith(rule.field) else f"{path} (for {rule.field})"
            raise InputError("space", field, label, rule.allowed())
    return [_masks(table or []) for table in tables], any(table is None for table in tables)


def is_legal(point: Point) -> legal.Truth:
    """Whether an engine runs one point, and all cases of its mixture."""
    return _all_hold(_rules(point))


def cases_are_legal(point: Point) -> legal.Truth:
    """Whether an engine runs all cases of a mixture but the first."""
    return _all_hold(_rules(point, first=False))


def _all_hold(rules: Iterable[legal.Rule]) -> legal.Truth:
    truth: legal.Truth = True
    for rule in rules:
        truth = truth & rule.holds
    return truth


def _rules(point: Point, *, first: bool = True) -> list[legal.Rule]:
    """The rules for a point and the other cases of its mixture.

    Those of the workload alone where the estimator splits the chips.
    """
    split, mixture = _has_layout(point), mixture_of(point.estimator)
    cases = () if mixture is None else mixture.cases
    every = [(point.arch if c.arch is None else c.arch, c.plan, c.workload) for c in cases]
    if first:
        every.insert(0, (point.arch, point.plan if split else Plan.of(), point.workload))
    rules = (rule for parts in every for rule in legal.rules(*parts))
    return [rule for rule in rules if split or rule.field in WORKLOAD]


def _has_layout(point: Point) -> bool:
    """Whether the plan gives the layout, and the estimator does not search it."""
    return not point.estimator.searches and isinstance(point.plan, Plan)


def dies_are_whole(point: Point) -> ArrayLike:
    """Whether each die of a package has a whole number of cores and of ends of memory."""
    chip = cast(Accelerator, point.hardware)
    own = (chip.active, chip.die.cores, chip.die.memories)
    return jnp.all(jnp.stack([divides(chip.dies, jnp.asarray(x)) for x in own]))


def _tables(group: Group) -> Tables | None:
    """Where each rule holds; None where the tables are too large, or a dependent axis has none."""
    if any(slot.rule is not None for slot in group.slots):
        return None
    flat, tree = jax.tree.flatten(group.base)
    for slot, table in zip(group.slots, group.tables, strict=True):
        if table.ndim == 1:
            shape = [-1 if digit == slot.digit else 1 for digit in range(len(group.sizes))]
            flat[slot.leaf] = table.reshape(shape)
    point = jax.tree.unflatten(tree, flat)
    paths = list(by_path(group.base))
    joint = (*JOINT, *(JOINT_OF_PLAN if _has_layout(point) else ()))
    digits = [{s.digit for s in group.slots if paths[s.leaf].startswith(axes)} for axes in joint]
    if max(prod(group.sizes[i] for i in some) for some in digits) > MAX_ENTRIES:
        return None
    return [(rule, np.asarray(rule.holds)) for rule in _rules(point)]


def _broken_rule(group: Group, tables: Tables, axis: int, digit: int) -> legal.Rule | None:
    """The rule that a value breaks at every point, at one point whose numbers its error names."""
    for number, (_, holds) in enumerate(tables):
        reads = holds.size > 1 and holds.shape[axis] > 1 and not holds.all()
        if reads and not holds.take(digit, axis).any():
            digits = [digit if i == axis else 0 for i in range(len(group.sizes))]
            return _rules(group.fill(group.steps(digits)))[number]
    return None


def _masks(tables: Tables) -> Masks:
    """One table for all rules over the same digits."""
    masks: Masks = {}
    for _, holds in tables:
        if not holds.all():
            digits = tuple(i for i, n in enumerate(holds.shape) if n > 1)
            masks[digits] = masks.get(digits, np.asarray(True)) & holds.ravel()
    return masks
