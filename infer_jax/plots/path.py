"""Draws a co-design search: objective by step for each restart, and the path of each number."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from infer_jax.plots.style import DASHES, INK, QUIET, TONES, line, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAINT = 60  # restarts drawn at most beside the winner


class Track(NamedTuple):
    """By step and restart: the objective and whether limits hold; of the winner, each number."""

    objective: np.ndarray
    kept: np.ndarray
    winner: int
    values: np.ndarray  # steps x numbers
    names: Sequence[str]
    start: float | None  # exact objective of the start, where it keeps the limits
    final: float  # exact objective of the rounded design
    label: str


def plot_path(
    track: Track,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of the restarts and of the winner's numbers, relative to where it began.

    Steps at which a limit is broken are drawn thin; the diamond is the rounded design under the
    exact model. Written to ``path`` if given, in the format of its suffix.

    Raises:
        InputError: matplotlib is missing, or the path cannot be written.
    """
    import textwrap

    with style():
        from infer_jax.plots.picture import Picture

        lines = textwrap.wrap(caption, 150)
        low = 0.17 * len(lines) + 0.12
        figure = Picture(figsize=(12.4, 4.6 + low), layout="constrained")
        layout: Any = figure.get_layout_engine()
        layout.set(rect=(0, low / (4.6 + low), 1, 1 - low / (4.6 + low)))
        left, right = figure.subplots(1, 2)
        _objectives(left, track)
        _numbers(right, track)
        if title:
            figure.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold")
        figure.text(0.012, 0.015, "\n".join(lines), color=QUIET, fontsize=8.5, va="bottom")
        if path is not None:
            save(figure, path)
    return figure


def _objectives(left: "Axes", track: Track) -> None:
    """Every restart's objective by step, the winner's thick where the limits hold."""
    steps = np.arange(len(track.objective))
    for i in range(min(track.objective.shape[1], FAINT)):
        left.plot(steps, track.objective[:, i], color="#c9c9c9", linewidth=0.6)
    best = track.objective[:, track.winner]
    left.plot(steps, best, color=TONES[0], linewidth=0.9, label="best restart, a limit broken")
    kept = np.where(track.kept[:, track.winner], best, np.nan)
    left.plot(steps, kept, color=TONES[0], linewidth=2.6, label="best restart, limits kept")
    if track.start is not None:
        left.axhline(track.start, color=QUIET, linestyle=(0, (4, 2)), linewidth=1.2)
        left.annotate("start", (steps[0], track.start), color=QUIET, va="bottom", fontsize=9)
    left.plot(
        [steps[-1]], [track.final], "D", color=TONES[2], markeredgecolor="white", markersize=9,
        label="rounded, exact model", zorder=4,
    )  # fmt: skip
    left.set_yscale("log")
    left.set_xlabel("step")
    left.set_ylabel(track.label, color=INK)
    shown = [x for x in (track.start, track.final, *best) if x is not None]
    left.set_ylim(0.8 * min(shown), 1.3 * max(shown))
    left.legend(loc="upper right")


def _numbers(right: "Axes", track: Track) -> None:
    """The winner's numbers by step, relative to where it began."""
    steps = np.arange(len(track.objective))
    for i, name in enumerate(track.names):
        look: dict[str, Any] = line(i) | {"linestyle": DASHES[(i + i // len(TONES)) % len(DASHES)]}
        look.pop("marker")
        moved = track.values[:, i] / track.values[0, i]
        right.plot(steps, moved, **look, label=name)
    right.set_yscale("log")
    right.set_xlabel("step")
    right.set_ylabel("of where the best restart began")
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
