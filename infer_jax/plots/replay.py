"""Draws a replay: the server over time, and how the times of requests are spread."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from infer_jax.plots.style import DASHES, INK, QUIET, WIDE, blank, save, style
from infer_jax.plots.tones import CACHE, HOST, SERIES, WAITING, WEIGHTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class SeriesLike(Protocol):
    """One copy of the server at the ends of its passes: seconds, and its state from then on.

    ``cache``: share of the cache blocks in use; ``power``: watts of a chip up to then, empty where
    not known; ``kept``: share of those that no request uses and prompts are found in, or empty.
    """

    @property
    def time(self) -> np.ndarray: ...
    @property
    def queue(self) -> np.ndarray: ...
    @property
    def running(self) -> np.ndarray: ...
    @property
    def cache(self) -> np.ndarray: ...
    @property
    def power(self) -> np.ndarray: ...
    @property
    def kept(self) -> np.ndarray: ...


def plot_replay(
    series: Sequence[SeriesLike],
    times: Mapping[str, Sequence[np.ndarray]],
    path: str | os.PathLike[str] | None = None,
    *,
    limits: Mapping[str, float] | None = None,
    title: str = "",
    caption: str = "",
) -> "Figure":
    """Requests that run and wait, cache and power over time; shares of requests by their times.

    ``times``: by name those of all requests, s, as replayed and, if known, as measured; ``limits``:
    by the same names, s. Written to ``path`` if given.

    Raises:
        InputError: matplotlib is missing, or the path cannot be written.
    """
    with style():
        figure, _ = blank(WIDE, 7.6, title, caption)
        axes = figure.subplots(3, 2)
        _over_time(axes[:, 0], series)
        for axis, (name, each) in zip(axes[:, 1], times.items(), strict=True):
            _spread(axis, name, each, (limits or {}).get(name))
        axes[0, 0].set_title("the server over time")
        axes[0, 1].set_title("requests within a time, %")
        if path is not None:
            save(figure, path)
    return figure


def _over_time(axes: "Sequence[Axes]", series: Sequence[SeriesLike]) -> None:
    """Running and waiting requests of all copies; cache of each; power of a GPU of each."""
    ends = np.unique(np.concatenate([s.time for s in series]))
    looks = ("running", "running", WEIGHTS, "-"), ("queue", "waiting", WAITING, (0, (2, 0.8)))
    for name, label, tone, dash in looks:
        total = sum(_at(s, getattr(s, name), ends) for s in series)
        look: dict[str, Any] = {"color": tone, "linestyle": dash, "linewidth": 1.4}
        axes[0].plot(ends, total, drawstyle="steps-post", label=label, **look)
    axes[0].set_ylabel("requests")
    axes[0].set_ylim(0.0, 1.2 * axes[0].get_ylim()[1])
    axes[0].legend(loc="upper left", ncols=2)
    for i, each in enumerate(series):
        own = len(series) > 1  # copies differ in tone; of one server the tone is that of the thing
        for at, tone, curve in (
            (axes[1], CACHE, (each.time, 100.0 * each.cache)),
            (axes[2], HOST, _smooth(each.time, each.power) if len(each.power) else None),
        ):
            look: dict[str, Any] = {"color": SERIES[i % len(SERIES)] if own else tone}
            look |= {"drawstyle": "steps-post"} if at is axes[1] else {}
            if curve is not None:
                at.plot(*curve, linewidth=1.2, **look)
            if at is axes[1] and len(each.kept):
                both, label = 100.0 * (each.cache + each.kept), "" if i else "used or kept"
                at.plot(each.time, both, linewidth=1.2, alpha=0.45, label=label or None, **look)
    axes[1].set_ylabel("KV cache taken, %")
    axes[1].set_ylim(0.0, None)
    if len(series[0].kept):
        axes[1].set_ylim(0.0, 1.25 * axes[1].get_ylim()[1])
        axes[1].legend(loc="upper left")
    axes[2].set_ylabel("power of a GPU, W")
    axes[2].set_ylim(0.0, None)
    if not len(series[0].power):
        axes[2].text(0.5, 0.5, "power not known", transform=axes[2].transAxes, ha="center")
    axes[2].set_xlabel("time, s")


def _at(series: SeriesLike, values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Values at these times: each holds from the end of its pass on."""
    at = np.searchsorted(series.time, times, side="right") - 1
    return np.where(at >= 0, values[np.maximum(at, 0)], 0)


def _smooth(time: np.ndarray, watts: np.ndarray, bins: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """Mean power over equal parts of the run: passes alternate faster than a line can show."""
    energy = np.concatenate([[0.0], np.cumsum(watts * np.diff(time, prepend=0.0))])
    edges = np.linspace(0.0, time[-1], bins + 1)
    spent = np.diff(np.interp(edges, np.concatenate([[0.0], time]), energy))
    return (edges[1:] + edges[:-1]) / 2.0, spent / np.diff(edges)


def _spread(axis: "Axes", name: str, times: Sequence[np.ndarray], limit: float | None) -> None:
    """The share of requests that take at most a time, replayed and measured, and its limit."""
    looks = (("replayed", WEIGHTS, "-"), ("measured", INK, (0, (4, 2))))
    for each, (said, tone, dash) in zip(times, looks, strict=False):
        share = 100.0 * np.arange(1, len(each) + 1) / max(len(each), 1)
        look: dict[str, Any] = {"color": tone, "linestyle": dash, "linewidth": 1.8}
        axis.plot(1e3 * np.sort(each), share, **look, label=said)
    axis.set_xlabel(f"{name}, ms")
    axis.set_ylim(0.0, 100.0)
    if limit is not None:
        look = {"color": QUIET, "linestyle": DASHES[2], "linewidth": 1.4}
        axis.axvline(1e3 * limit, **look, label=f"limit, {1e3 * limit:.4g} ms")
    if len(times) > 1 or limit is not None:
        axis.legend(loc="best")
