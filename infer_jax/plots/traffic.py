"""Draws traffic: rates over time with their errors, and how lengths are spread."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Unpack

import numpy as np

from infer_jax.plots.style import (
    CACHE,
    DASHES,
    INK,
    SERIES,
    WEIGHTS,
    Axes,
    Figure,
    Options,
    Words,
    style,
    subplots,
)

if TYPE_CHECKING:
    from infer_jax.arrivals import Traffic
    from infer_jax.catalog.traces import Trace

DAY, HOUR = 86400.0, 3600.0
SHARES = np.linspace(0.0, 100.0, 2001)  # of requests, %


def plot_traffic(
    traffic: "Traffic", errors: np.ndarray, traces: "Sequence[Trace]", **words: Unpack[Words]
) -> Figure:
    """Requests per second by period; shares of requests by prompt and output tokens.

    ``errors``: of each rate; ``traces``: the real one, if any, and the drawn one; ``words``: title
    and caption.

    Raises:
        InputError: matplotlib is missing.
    """
    rates = np.asarray(traffic.rates)
    with style():
        figure, (over_time, lengths) = subplots(2, 1, height=6.0, **words)
        at = draw_periods(over_time, len(rates), float(traffic.period), float(traffic.start))
        over_time.stairs(rates, at, baseline=None, color=SERIES[0], linewidth=1.6)
        look: Options = {"color": SERIES[0], "alpha": 0.25, "linewidth": 0}
        low, high = np.maximum(rates - 1.96 * errors, 0.0), rates + 1.96 * errors
        over_time.stairs(high, at, baseline=low, fill=True, **look)
        over_time.set(ylabel="requests/s", ylim=(0.0, None))
        names = ("drawn",) if len(traces) == 1 else ("trace", "drawn from it")
        for name, trace, dash in zip(names, traces, (DASHES[0], DASHES[2]), strict=False):
            for what, x, tone in (("prompts", trace.isl, WEIGHTS), ("outputs", trace.osl, CACHE)):
                look = {"color": tone, "linestyle": dash, "linewidth": 1.6}
                tokens = np.quantile(x, SHARES / 100.0)
                lengths.plot(tokens, SHARES, label=f"{what}, {name}", **look)
        lengths.set(xscale="log", xlabel="tokens", ylabel="requests with at most, %", ylim=(0, 100))
        lengths.legend(loc="lower right")
    return figure


def draw_periods(axes: Axes, count: int, period: float, start: float) -> np.ndarray:
    """Edges of ``count`` periods (s) on the axis: days by name with lines at midnight, or hours.

    ``start``: seconds since 1970, or 0.
    """
    total = count * period
    units = ((DAY, "days"), (HOUR, "hours"), (60.0, "minutes"))
    unit, name = next((x for x in units if total > 2 * x[0]), units[-1])
    at = np.arange(count + 1) * period / unit
    axes.set_xlim(0.0, at[-1])
    if unit < DAY or not start:
        since = (
            f"{datetime.fromtimestamp(start, UTC):, from %a %Y-%m-%d %H:%M UTC}" if start else ""
        )
        axes.set_xlabel(f"{name}{since}", color=INK)
        return at
    offset = start % DAY / DAY
    midnights = np.arange(np.ceil(offset), offset + at[-1] + 1e-9) - offset
    axes.set_xticks(midnights, [""] * len(midnights))
    noons = np.arange(np.floor(offset), offset + at[-1]) + 0.5 - offset
    inside = [x for x in noons if 0.0 <= x <= at[-1]]
    names = [f"{datetime.fromtimestamp(start + x * DAY, UTC):%a %-d}" for x in inside]
    axes.set_xticks(inside, names, minor=True)
    axes.tick_params(axis="x", which="minor", length=0)
    return at
