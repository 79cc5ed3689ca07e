"""A group of points: a base point, a table for each leaf that varies, mixed-radix digits."""

import dataclasses
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from infer_jax.sweeps.axis import Rule
from infer_jax.sweeps.paths import Point


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

    def fill(self, steps: Sequence[ArrayLike]) -> Point:
        """The point at which each slot has this step; dependent leaves follow their rules."""
        flat, tree = jax.tree.flatten(self.base)
        for slot, step in zip(self.slots, steps, strict=True):
            flat[slot.leaf] = (
                step if slot.rule is None else slot.rule(step, jax.tree.unflatten(tree, flat))
            )
        return jax.tree.unflatten(tree, flat)

    def steps(self, digits: Sequence[int] | np.ndarray) -> list[np.ndarray]:
        """The step of each slot at these digits (numbers, or arrays of one shape)."""
        return [t[digits[s.digit]] for s, t in zip(self.slots, self.tables, strict=True)]


def spread(
    groups: Sequence[Group], index: Sequence[int]
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """For each group with some of these global indices: its number, their positions and digits."""
    total = groups[-1].offset + groups[-1].size
    flat = np.asarray(index, np.int64 if total < 2**63 else object)
    for number, group in enumerate(groups):
        at = np.flatnonzero((flat >= group.offset) & (flat < group.offset + group.size))
        rest = flat[at] - group.offset
        digits: list[np.ndarray] = []
        for size in reversed(group.sizes):
            digits.append((rest % size).astype(np.int64))
            rest = rest // size
        if len(at):
            yield number, at, np.stack(digits[::-1], -1) if digits else np.zeros((len(at), 0), int)
