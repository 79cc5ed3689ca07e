"""Checks of option values for callers in Python; commands check their own texts."""

import math
from collections.abc import Iterable, Sequence
from numbers import Real

import numpy as np

from infer_jax.verbs.asking import refuse

MOST = 1e12  # tokens, requests, GPUs: beyond any system, within the integers of a float


def whole(option: str, value: float | None, low: float = 1.0, high: float = MOST) -> None:
    """Raise InputError unless ``value`` is None or a whole number from ``low`` to ``high``."""
    if value is None:
        return
    if not (_real(value) and low <= value <= high and value == math.floor(value)):
        raise refuse(option, value, f"a whole number from {low:g} to {high:.12g}")


def above(option: str, value: float | None, low: float = 0.0) -> None:
    """Raise InputError unless ``value`` is None or a number above ``low``."""
    if value is not None and not (_real(value) and value > low):
        raise refuse(option, value, f"a number above {low:g}")


def one_of(option: str, value: str | None, names: Iterable[str]) -> None:
    """Raise InputError unless ``value`` is None or one of ``names``."""
    names = tuple(names)
    if value is not None and value not in names:
        raise refuse(option, value, f"one of {', '.join(names)}")


def texts(value: str | Sequence[str] | None) -> list[str]:
    """One text or several, each once; none where nothing is given.

    >>> texts("fp8"), texts(["fp8", "bf16", "fp8"]), texts(None)
    (['fp8'], ['fp8', 'bf16'], [])
    """
    return list(dict.fromkeys((value,) if isinstance(value, str) else value or ()))


def _real(value: object) -> bool:
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.ndim == 0)
