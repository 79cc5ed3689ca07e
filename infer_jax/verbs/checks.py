"""Checks of option values for callers in Python; commands check their own texts."""

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TypeVar

import jax
import numpy as np

from infer_jax.verbs.problems import refuse
from infer_jax.verbs.texts import MOST as MOST, Tokens, seconds as spelt, tokens as counted

MOST_GPUS = 1e6  # five times the largest cluster of 2025 (xAI's Colossus, 200,000)
T = TypeVar("T")
Time = float | str  # seconds, or a text such as "300ms"


def whole(option: str, value: object, low: float = 1.0, high: float = MOST) -> None:
    """Raise InputError unless ``value`` is None or a whole number from ``low`` to ``high``."""
    if value is None:
        return
    number = _number(value)
    if not (low <= number <= high and number == math.floor(number)):
        raise refuse(option, value, f"a whole number from {low:g} to {high:.12g}")


def above(option: str, value: object, low: float = 0.0, high: float = MOST) -> None:
    """Raise InputError unless ``value`` is None or a number above ``low``, ``high`` at most."""
    if value is not None and not low < _number(value) <= high:
        raise refuse(option, value, f"a number above {low:g}, of {high:.12g} at most")


def between(option: str, value: object, low: float, high: float, what: str = "a number") -> None:
    """Raise InputError unless ``value`` is None or a number from ``low`` to ``high``."""
    if value is not None and not low <= _number(value) <= high:
        raise refuse(option, value, f"{what} from {low:g} to {high:.12g}")


def seconds(option: str, value: object, *, none: bool = False) -> float:
    """Seconds of a limit: a number of them, or a text such as "300ms" or "0.3s".

    ``none``: infinity, and the word "none", are no limit.
    """
    if none and isinstance(value, str) and value.strip().casefold() == "none":
        return math.inf
    number = spelt(value) if isinstance(value, str) else _number(value)
    if none and number == math.inf:
        return number
    if not 0.0 < number <= MOST:
        more = '; "none" for no limit' if none else ""
        allowed = f'a number above 0, in seconds, or a time such as "300ms"{more}'
        raise refuse(option, value, allowed)
    return number


def read(limit: Time | None) -> float | None:
    """Seconds of a limit, whose text ``@verb`` has already parsed."""
    assert not isinstance(limit, str)
    return limit


def tokens(option: str, value: object, low: int) -> Tokens:
    """Tokens of a request, at least ``low``, with their spread where a text says it."""
    try:
        plain = isinstance(value, str | Tokens)
        return counted(value if plain else _number(value), low)  # pyright: ignore
    except ValueError:
        allowed = f"a whole number of at least {low}, or one with a spread such as '2200±600'"
        raise refuse(option, value, allowed) from None


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


def either(value: T | None, otherwise: T) -> T:
    """``value``, also where it is 0; ``otherwise`` where it is None."""
    return otherwise if value is None else value


def _number(value: object) -> float:
    """A number as a float; NaN for anything else, such as a text or a bool."""
    single = isinstance(value, np.ndarray | np.generic | jax.Array) and value.ndim == 0
    if isinstance(value, bool | np.bool_) or not (isinstance(value, Real) or single):
        return math.nan
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]
    except (OverflowError, TypeError, ValueError):
        return math.nan
    return number
