"""Numbers from texts: plain ones, tokens with a spread, seconds of a time."""

import math
import re

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


class Tokens(float):
    """Tokens of a request, and by how many (one standard deviation) requests differ from it."""

    deviation: float = 0.0


def tokens(length: float | str, low: int) -> Tokens:
    """Tokens of a request, at least ``low`` of them, with their spread where a text says it.

    Raises:
        ValueError: no such number of tokens, or a spread of more than ten times as many.

    >>> [(float(x), x.deviation) for x in (tokens(4096, 0), tokens("2200±600", 0))]
    [(4096.0, 0.0), (2200.0, 600.0)]
    """
    if isinstance(length, Tokens):
        return length
    mean, sign, spread = str(length).replace("+-", "±").partition("±")
    value, deviation = Tokens(number(mean)), number(spread) if sign else 0.0
    whole = low <= value <= MAX_NUMBER and value == math.floor(value)
    if not (whole and 0.0 <= deviation <= 10.0 * value):
        raise ValueError(length)
    value.deviation = deviation
    return value
