"""Numbers from texts: plain ones, tokens with a spread, seconds of a time."""

import math
import re
from collections.abc import Sequence

MAX_NUMBER = 1e12  # tokens, requests, GPUs: beyond any system, within the integers of a float
# vLLM's own spellings of counts: k is 1,000 and K is 1,024 (vllm/engine/arg_utils.py, 0.19)
COUNTS = {"k": 1e3, "K": 2.0**10, "m": 1e6, "M": 2.0**20}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
TIME = re.compile(r"([^a-zA-Zµ]+(?:[eE][+-]?\d+)?)\s*(us|ms|s|)")


class MissingUnitError(ValueError):
    """A time that may be meant in two units, both of which the sentence spells."""


def number(text: str) -> float:
    """The finite number a text spells in plain ASCII, else NaN.

    >>> number("4000"), number("4k"), number("4K"), number("k")
    (4000.0, 4000.0, 4096.0, nan)
    """
    times = COUNTS.get(text[-1:], 1.0)
    try:
        value = float(text if times == 1.0 else text[:-1])
    except ValueError:
        return math.nan
    plain = text.isascii() and "_" not in text and math.isfinite(value)
    return times * value if plain else math.nan


def seconds(text: str, bare: float = math.nan) -> float:
    """Seconds of ``"300ms"``, ``"0.3s"`` or ``"80us"``, NaN of anything else.

    ``bare``: seconds of the unit of a number alone.

    >>> seconds("0.3s"), seconds("2e2 ms"), seconds("300"), seconds("300", bare=1e-3)
    (0.3, 0.2, nan, 0.3)
    """
    match = TIME.fullmatch(text.strip())
    return number(match[1]) * SECONDS.get(match[2], bare) if match else math.nan


def short(text: object) -> str:
    """A value as a sentence can quote it: on one line, 60 characters at most."""
    shown = "".join(c if c.isprintable() else "?" for c in str(text))
    return repr(shown if len(shown) <= 60 else shown[:57] + "...")


class Tokens(float):
    """Tokens of a request, and by how many (one standard deviation) requests differ from it."""

    deviation: float = 0.0


def tokens(length: float | str, low: int) -> Tokens:
    """Tokens of a request, at least ``low`` of them, with their spread where a text says it.

    Raises:
        ValueError: a sentence that says what is wrong.

    >>> [(float(x), x.deviation) for x in (tokens(4096, 0), tokens("2200±600", 0))]
    [(4096.0, 0.0), (2200.0, 600.0)]
    """
    if isinstance(length, Tokens):
        return length
    mean, sign, spread = str(length).replace("+-", "±").partition("±")
    value = Tokens(number(mean))
    if not (low <= value <= MAX_NUMBER and value == math.floor(value)):
        raise ValueError(
            f"{short(mean.strip())} is not a whole number from {low} to {MAX_NUMBER:.12g}."
        )
    if sign:
        deviation = number(spread)
        if not 0.0 <= deviation <= 10.0 * value:
            meant = "tokens and their spread, such as 2200±600 or 2200+-600"
            raise ValueError(f"{short(length)} is not {meant} (of at most ten times as many).")
        value.deviation = deviation
    return value


def unique_texts(value: str | Sequence[str] | None) -> list[str]:
    """One text or several, each once; none where nothing is given.

    >>> unique_texts("fp8"), unique_texts(["fp8", "bf16", "fp8"]), unique_texts(None)
    (['fp8'], ['fp8', 'bf16'], [])
    """
    return list(dict.fromkeys((value,) if isinstance(value, str) else value or ()))
