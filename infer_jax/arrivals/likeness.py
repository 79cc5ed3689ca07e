"""How well one trace looks like another: rates, bursts, lengths and what prompts share."""

from typing import NamedTuple

import numpy as np

from infer_jax.arrivals.description import dependence, dispersions, rates_of
from infer_jax.catalog.traces import Trace

WINDOWS = (1.0, 10.0, 60.0)  # seconds at which bursts are compared


class Likeness(NamedTuple):
    """A figure of a real trace, and of one that was drawn."""

    figure: str
    unit: str
    real: float
    drawn: float


def figures(trace: Trace, period: float) -> dict[tuple[str, str], float]:
    """What two traces are compared by: values by name and unit."""
    known = rates_of(trace, period)
    windows, spread, _ = dispersions(trace, known, period)
    found = {
        ("requests", ""): float(len(trace)),
        ("mean rate", "1/s"): float(len(trace) / trace.arrivals[-1]),
        ("busiest period", "1/s"): float(known.rates.max()),
    }
    for window in WINDOWS:
        if len(windows) and windows[0] <= window <= windows[-1]:
            value = float(np.interp(np.log(window), np.log(windows), spread))
            found[f"variance over mean, {window:g} s", ""] = value
    for name, values in (("prompt", trace.isl), ("output", trace.osl)):
        found[f"{name}, mean", "tokens"] = float(values.mean())
        for level in (0.5, 0.9, 0.99):
            found[f"{name}, {100 * level:g} %", "tokens"] = float(np.quantile(values, level))
    found["dependence of the two", ""] = dependence(trace.isl, trace.osl)
    if trace.hashes or not len(trace.sessions):  # of sessions without hashes nobody knows
        found["prompt tokens seen before", "%"] = 100.0 * trace.hit_ratio()
    return found


def compare_traces(real: Trace, drawn: Trace, period: float) -> list[Likeness]:
    """Figures of two traces side by side, those that both have.

    The last are the largest difference of two distributions of lengths (Kolmogorov and Smirnov).

    Raises:
        InputError: a trace without times.
    """
    from scipy.stats import ks_2samp  # of jax's own requirements

    first, second = figures(real, period), figures(drawn, period)
    found = [Likeness(*key, x, second[key]) for key, x in first.items() if key in second]
    for name, pair in (("prompts", (real.isl, drawn.isl)), ("outputs", (real.osl, drawn.osl))):
        apart = 100.0 * float(ks_2samp(*pair, method="asymp")[0])  # pyright: ignore
        found.append(Likeness(f"{name}, largest difference of shares", "%", 0.0, apart))
    return found
