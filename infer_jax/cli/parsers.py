"""Parsers of option texts: a checked number, or an error in one sentence."""

import math
from collections.abc import Callable, Sequence

import typer

from infer_jax.verbs.checks import MOST
from infer_jax.verbs.texts import Tokens, number, seconds, short as short, tokens as tokens_of


def count(low: int, high: float = MOST, why: str = "") -> Callable[[str], float]:
    """A parser of whole numbers from ``low`` to ``high``; ``why`` it ends there."""

    def parse(text: str) -> float:
        value = _number(text)
        if value is None or value != math.floor(value) or not low <= value <= high:
            said = f"{short(text)} is not a whole number from {low} to {high:.12g}{why}."
            raise typer.BadParameter(said)
        return value

    return parse


def tokens(low: int) -> Callable[[str], Tokens]:
    """A parser of whole numbers of tokens, with their spread where it is given.

    >>> [(float(x), x.deviation) for x in map(tokens(0), ("4096", "2200±600", "2200+-600"))]
    [(4096.0, 0.0), (2200.0, 600.0), (2200.0, 600.0)]
    """

    def parse(text: str) -> Tokens:
        try:
            return tokens_of(str(text), low)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


def real(allowed: str, low: float, high: float = MOST) -> Callable[[str], float]:
    """A parser of numbers above ``low`` and of at most ``high``; ``allowed`` says which."""

    def parse(text: str) -> float:
        value = _number(text)
        if value is None or not low < value <= high:
            raise typer.BadParameter(f"{short(text)} is not {allowed}.")
        return value

    return parse


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """A parser of one of ``names``."""

    def parse(text: str) -> str:
        if text not in names:
            raise typer.BadParameter(f"{short(text)} is not one of {', '.join(names)}.")
        return text

    return parse


def duration(text: str) -> float:
    """Seconds of ``"300ms"``, ``"0.3s"`` or ``"80us"``; a bare number is milliseconds.

    >>> duration("0.3s"), duration("300"), duration("2e2 ms")
    (0.3, 0.3, 0.2)
    """
    value = seconds(str(text), bare=1e-3)
    if not 0.0 < value <= MOST:
        raise typer.BadParameter(f"{short(text)} is not a time such as 300ms, 0.3s or 300 (ms).")
    return value


def duration_or_none(text: str) -> float:
    """Seconds of a time; infinity of ``none``."""
    return math.inf if str(text).strip().casefold() == "none" else duration(text)


def _number(text: str | float) -> float | None:
    """The finite number of a text, else None.

    Some releases of typer send defaults, which are numbers, through parsers, others do not.
    """
    value = number(str(text))
    return None if math.isnan(value) else value


probability = real("a probability from 0 to 1", -1e-300, 1.0)
