"""Draws a replay: the server over time, and how the times of requests are spread."""

from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np

from infer_jax.plots.style import (
    CACHE,
    DASHES,
    HOST,
    INK,
    QUIET,
    SERIES,
    WAITING,
    WEIGHTS,
    Axes,
    Figure,
    Options,
    Words,
    is_slide,
    style,
    subplots,
)

BINS = 240  # of the power over time


Series = Mapping[str, np.ndarray]  # what there is from the end of each pass on, by name


def plot_replay(
    series: Sequence[Series],
    times: Mapping[str, Sequence[np.ndarray]],
    *,
    limits: Mapping[str, float],
    **words: Unpack[Words],
) -> Figure:
    """Requests that run and wait, cache and power over time; shares of requests by their times.

    ``series``: of every copy of the server the ``time`` at which its passes end, s, the requests
    ``running`` and in the ``queue``, the shares of the ``cache`` in use and ``kept`` for later
    prompts, the ``power`` of a chip, W; the last two are empty where they are not known.
    ``times``: by name those of all requests, s, as replayed and, if known, as measured; ``limits``:
    by the same names, s; ``words``: title and caption.

    Raises:
        InputError: matplotlib is missing.
    """
    with style():
        rows = 2 if is_slide() else 3  # a slide has no power and no latency
        figure, axes = subplots(rows, 2, height=7.6, **words)
        requests, cache, *others = axes[::2]
        requests.set_title("the server over time")
        _draw_requests(requests, series)
        for i, one in enumerate(series):
            # copies differ in tone; of one server the tone is that of the thing
            own = SERIES[i % len(SERIES)] if len(series) > 1 else None
            _draw_cache(cache, one, own or CACHE, "" if i else "used or kept")
            for power in others if len(one["power"]) else ():
                power.plot(*_mean_power(one), color=own or HOST, linewidth=1.2)
        cache.set_ylabel("KV cache taken, %")
        cache.set_ylim(0.0, None)
        if len(series[0]["kept"]):
            cache.set_ylim(0.0, 1.25 * cache.get_ylim()[1])
            cache.legend(loc="upper left")
        for power in others:
            power.set(ylabel="power of a GPU, W", ylim=(0.0, None))
            if not len(series[0]["power"]):
                power.text(0.5, 0.5, "power not known", transform=power.transAxes, ha="center")
        axes[-2].set_xlabel("time, s")
        axes[1].set_title("requests within a time, %")
        for ax, (name, curves) in zip(axes[1::2], times.items(), strict=False):
            _draw_shares(ax, curves, limits.get(name))
            ax.set_xlabel(f"{name}, ms")
    return figure


def _draw_requests(axes: Axes, series: Sequence[Series]) -> None:
    """Running and waiting requests of all copies; a state holds from the end of its pass on."""
    ends = np.unique(np.concatenate([s["time"] for s in series]))
    looks = ("running", "running", WEIGHTS, "-"), ("queue", "waiting", WAITING, (0, (2, 0.8)))
    for name, label, tone, dash in looks:
        total = np.zeros(len(ends))
        for s in series:
            total += np.r_[0, s[name]][np.searchsorted(s["time"], ends, side="right")]
        look: Options = {"color": tone, "linestyle": dash, "linewidth": 1.4}
        axes.step(ends, total, where="post", label=label, **look)
    axes.set_ylabel("requests")
    axes.set_ylim(0.0, 1.2 * axes.get_ylim()[1])
    axes.legend(loc="upper left", ncols=2)


def _draw_cache(axes: Axes, series: Series, tone: str, label: str) -> None:
    """Blocks of the cache that requests use, and those with what is kept for later prompts."""
    look: Options = {"where": "post", "color": tone, "linewidth": 1.2}
    axes.step(series["time"], 100.0 * series["cache"], **look)
    if len(series["kept"]):
        both = 100.0 * (series["cache"] + series["kept"])
        axes.step(series["time"], both, alpha=0.45, label=label or None, **look)


def _mean_power(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Mean power over equal parts of the run: passes alternate faster than a line can show."""
    time = series["time"]
    energy = np.concatenate([[0.0], np.cumsum(series["power"] * np.diff(time, prepend=0.0))])
    edges = np.linspace(0.0, time[-1], BINS + 1)
    used = np.diff(np.interp(edges, np.concatenate([[0.0], time]), energy))
    return (edges[1:] + edges[:-1]) / 2.0, used / np.diff(edges)


def _draw_shares(axes: Axes, times: Sequence[np.ndarray], limit: float | None) -> None:
    """The share of requests that take at most a time, replayed and measured, and its limit."""
    looks = (("replayed", WEIGHTS, "-"), ("measured", INK, (0, (4, 2))))
    for values, (label, tone, dash) in zip(times, looks, strict=False):
        share = 100.0 * np.arange(1, len(values) + 1) / max(len(values), 1)
        look: Options = {"color": tone, "linestyle": dash, "linewidth": 1.8}
        axes.plot(1e3 * np.sort(values), share, **look, label=label)
    axes.set_ylim(0.0, 100.0)
    if limit is not None:
        look = {"color": QUIET, "linestyle": DASHES[2], "linewidth": 1.4}
        axes.axvline(1e3 * limit, **look, label=f"limit, {1e3 * limit:.4g} ms")
    if len(times) > 1 or limit is not None:
        axes.legend(loc="best")
