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
    from infer_jax.catalog.traces import Trace

DAY = 86400.0


def plot_traffic(
    rates: np.ndarray,
    errors: np.ndarray,
    period: float,
    start: float,
    traces: "Sequence[Trace]",
    **words: Unpack[Words],
) -> Figure:
    """Requests per second by period; shares of requests by prompt and output tokens.

    ``start``: seconds since 1970, or 0; ``traces``: the real one, if any, and the drawn one;
    ``words``: title and caption.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        figure, axes = subplots(2, 1, height=6.0, **words)
        over_time, lengths = axes
        _draw_rates(over_time, rates, errors, period, start)
        names = ("drawn",) if len(traces) == 1 else ("trace", "drawn from it")
        for name, trace, dash in zip(names, traces, (DASHES[0], DASHES[2]), strict=False):
            for what, values, tone in (
                ("prompts", trace.isl, WEIGHTS),
                ("outputs", trace.osl, CACHE),
            ):
                ordered = np.sort(values)
                share = 100.0 * np.arange(1, len(ordered) + 1) / len(ordered)
                keep = np.linspace(0, len(ordered) - 1, min(len(ordered), 2000)).astype(int)
                look: Options = {"color": tone, "linestyle": dash, "linewidth": 1.6}
                lengths.plot(ordered[keep], share[keep], label=f"{what}, {name}", **look)
        lengths.set(xscale="log", xlabel="tokens", ylabel="requests with at most, %", ylim=(0, 100))
        lengths.legend(loc="lower right")
    return figure


def _draw_rates(
    axes: Axes, rates: np.ndarray, errors: np.ndarray, period: float, start: float
) -> None:
    """Steps of rates, the errors of which are a band, over hours or days."""
    total = len(rates) * period
    unit, name = (DAY, "days") if total > 3 * DAY else (3600.0, "hours")
    if total < 2 * 3600.0:
        unit, name = 60.0, "minutes"
    at = np.arange(len(rates) + 1) * period / unit
    axes.stairs(rates, at, baseline=None, color=SERIES[0], linewidth=1.6)
    low, high = np.maximum(rates - 1.96 * errors, 0.0), rates + 1.96 * errors
    axes.fill_between(
        at, np.append(low, low[-1]), np.append(high, high[-1]), step="post", color=SERIES[0],
        alpha=0.25, linewidth=0,
    )  # fmt: skip
    axes.set(ylabel="requests/s", ylim=(0.0, None), xlim=(0.0, at[-1]))
    since = f", from {datetime.fromtimestamp(start, UTC):%a %Y-%m-%d %H:%M} UTC" if start else ""
    axes.set_xlabel(f"{name}{since}", color=INK)
