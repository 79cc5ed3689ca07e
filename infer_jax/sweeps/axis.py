"""The values that one leaf, or one whole spec, takes in a sweep."""

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
from jax.typing import ArrayLike

from infer_jax.errors import InputError
from infer_jax.sweeps.paths import Point, Tree

MAX_VALUES = 2**22  # values of one axis: its table lives on every device
Rule = Callable[[Tree, Point], ArrayLike]  # (step, the point as decoded so far) -> the leaf


@dataclasses.dataclass(frozen=True, eq=False)
class Axis:
    """The values of one leaf, or the specs of one part, in the order of the digits 0, 1, 2 …

    Put it where the number would be: ``Plan(tp=Axis.values(1, 2, 4, 8))``. ``rule`` makes the
    axis dependent: the leaf is then ``rule(step, point)``, with the step from ``steps`` and
    the point as decoded so far.
    """

    steps: tuple[Tree, ...]
    is_spec: bool = False
    rule: Rule | None = None

    def __len__(self) -> int:
        return len(self.steps)

    @classmethod
    def values(cls, *values: object) -> "Axis":
        """These values, in this order; a choice may be given by name.

        >>> len(Axis.values(1, 2, 4, 8))
        4
        """
        return _axis(values)

    @classmethod
    def linear(cls, low: float, high: float, count: int) -> "Axis":
        """``count`` values evenly spaced from ``low`` to ``high``, both included.

        >>> Axis.linear(0, 1, 3).steps
        (0.0, 0.5, 1.0)
        """
        _check_ends("linear", low, high, count)
        return _axis(np.linspace(low, high, int(count)).tolist())

    @classmethod
    def log(cls, low: float, high: float, count: int) -> "Axis":
        """``count`` values evenly spaced in logarithm from ``low`` to ``high``, both included."""
        _check_ends("log", low, high, count, positive=True)
        return _axis(np.geomspace(low, high, int(count)).tolist())

    @classmethod
    def log2(cls, low: float, high: float, count: int) -> "Axis":
        """As ``log``, computed in base 2, so that powers of two come out exactly.

        >>> Axis.log2(1, 8, 4).steps
        (1.0, 2.0, 4.0, 8.0)
        """
        _check_ends("log2", low, high, count, positive=True)
        steps = np.logspace(float(np.log2(low)), float(np.log2(high)), int(count), base=2.0)
        steps[-1], steps[0] = high, low
        return _axis(steps.tolist())

    @classmethod
    def integers(cls, low: int, high: int, step: int = 1) -> "Axis":
        """Whole numbers from ``low`` to ``high``, both included where ``step`` reaches them.

        >>> Axis.integers(2, 8, 3).steps
        (2.0, 5.0, 8.0)
        """
        numbers = (low, high, step)
        whole = all(_is_finite(x) and float(x).is_integer() for x in numbers)
        if not whole or step < 1 or low > high:
            raise InputError("Axis.integers", "", numbers, "whole low <= high, step of 1 or more")
        if (high - low) // step >= MAX_VALUES:
            raise InputError("Axis.integers", "", numbers, f"at most {MAX_VALUES} values")
        return _axis([float(x) for x in range(int(low), int(high) + 1, int(step))])

    @classmethod
    def specs(cls, *specs: object) -> "Axis":
        """Whole specs, of one structure or of several: models, systems, formats, estimators."""
        return _axis(specs, is_spec=True)

    @classmethod
    def dependent(cls, rule: Rule, steps: "Axis | Iterable[float]" = (0.0,)) -> "Axis":
        """A leaf that depends on others: ``rule(step, point)``, written with ``jax.numpy``.

        ``point`` has ``estimator, arch, hardware, workload, plan``; dependent leaves are set in
        the order of the fields, so a rule may read those before it. Without ``steps`` it adds
        no points: ``Axis.dependent(lambda _, point: 64 / point.plan.tp)``.
        """
        base = steps if isinstance(steps, Axis) else _axis(tuple(steps))
        return dataclasses.replace(base, rule=rule)


def _axis(values: Iterable[object], *, is_spec: bool = False) -> Axis:
    steps = tuple(values)
    if not steps:
        raise InputError("Axis", "values", "empty", "one value or more")
    if len(steps) > MAX_VALUES:
        raise InputError("Axis", "values", f"{len(steps)} values", f"at most {MAX_VALUES}")
    return Axis(steps, is_spec)


def _is_finite(x: float) -> bool:
    try:
        return bool(np.isfinite(float(x)))
    except (TypeError, ValueError, OverflowError):
        return False


def _check_ends(kind: str, low: float, high: float, count: int, *, positive: bool = False) -> None:
    if not (_is_finite(low) and _is_finite(high)) or low > high or (positive and low <= 0):
        order = "0 < low <= high" if positive else "low <= high"
        raise InputError(f"Axis.{kind}", "ends", (low, high), f"finite numbers, {order}")
    if not _is_finite(count) or not float(count).is_integer() or not 1 <= count <= MAX_VALUES:
        raise InputError(f"Axis.{kind}", "count", count, f"a whole number from 1 to {MAX_VALUES}")
    if count == 1 and low != high:
        raise InputError(f"Axis.{kind}", "count", count, "2 or more between two ends")
