"""Limits for JSON, and sentences on exceeded ones and on ones whose unit may be wrong."""

import math
from collections.abc import Mapping

from infer_jax.estimators import Limit
from infer_jax.results import option
from infer_jax.results.numbers import digits, quantity, size

# seconds from which a limit is probably a number of milliseconds, and below which one of seconds
SHORT: Mapping[str, float] = dict.fromkeys(("ttft", "p95_ttft", "p99_ttft"), 0.01)
LONG = {"ttft": 100.0, "p95_ttft": 100.0, "p99_ttft": 100.0, "tpot": 1.0}


def unlikely_times(limits: Mapping[str, float | None]) -> list[str]:
    """A sentence for each limit in seconds, by output, that no user of a server would set.

    >>> unlikely_times({"tpot": 30.0, "ttft": 2.0})
    ['The limit of TPOT is 30 s; tpot="30ms", with a unit, is 30 milliseconds.']
    >>> unlikely_times({"tpot": 0.03, "ttft": 0.002})
    ['The limit of TTFT is 2 ms; ttft="2s", with a unit, is 2 seconds.']
    """
    notes = list[str]()
    for name, limit in limits.items():
        long = limit is not None and LONG.get(name, math.inf) <= limit < math.inf
        short = limit is not None and limit < SHORT.get(name, 0.0)
        if limit is None or not (long or short):
            continue
        number, unit, other = limit, "s", "millisecond"
        if short:
            number, unit, other = 1e3 * limit, "ms", "second"
        title = name.replace("_", " ").replace("ttft", "TTFT").replace("tpot", "TPOT")
        given = option(name, f"{number:.6g}{'s' if short else 'ms'}")
        meant = f"{given}, with a unit, is {quantity(number, other)}"
        notes.append(f"The limit of {title} is {number:.6g} {unit}; {meant}.")
    return notes


def broken(name: str, limit: Limit) -> str:
    """By how much a limit is exceeded, in words."""
    if name == "arrivals":
        rate, capacity = (digits(x) for x in (limit.need, limit.capacity))
        return f"{rate} requests/s arrive and at most {capacity} are completed"
    if name.endswith("requests"):
        places = f"{math.floor(float(limit.capacity)):,.0f}"
        return f"{digits(limit.need)} requests are to run at once and {places} fit"
    text = size if name.endswith("memory") else digits
    short = float(limit.need - limit.capacity)
    return (
        f"{name} needs {text(limit.need)} of {text(limit.capacity)}: {text(short)} short"
        f" ({short / max(float(limit.capacity), 1e-300):.1%})"
    )
