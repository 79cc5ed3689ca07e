"""Draws plans: speed of a request against dollars per million tokens.

Speed is to the right and dollars are up, so that the better plan lies below and to the right.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from infer_jax.estimators import Estimate
from infer_jax.plots.style import (
    DIAMOND,
    INK,
    QUIET,
    WIDE,
    beside,
    blank,
    line,
    readable,
    save,
    style,
)
from infer_jax.specs import output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPEED = output(Estimate, "speed").doc
ONE_POOL, TWO_POOLS = "one pool", "pools that prefill and decode"
BAND, PLAN, MEASURED = "80 % of measured servers", "the plan to take", "measured run"
KEYS = 0.62  # inches of the keys above the axes

Place = tuple[float, float]  # tokens/s of a request, money per million tokens


class Dot(NamedTuple):
    """A plan: tokens/s of a request, money per million tokens, whether it has two pools.

    ``band``: where the plan is on a server at the fast and at the slow end of what 80 % of measured
    ones are in, where that is known.
    """

    speed: float
    cost: float
    pools: bool = False
    band: tuple[Place, Place] | None = None


def plot_plans(
    series: Mapping[str, Sequence[Dot]],
    path: str | os.PathLike[str] | None = None,
    *,
    chosen: tuple[Dot, str] | None = None,
    least: tuple[float, str] | None = None,
    measured: Sequence[Place] = (),
    tones: Mapping[str, int] | None = None,
    cost: str = "USD per million tokens",
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of plans, one series a system or format, with the plan to take and the limit.

    ``chosen``: the plan and what it is, in words; ``least``: the speed that a limit asks for, and
    the limit in words; plans that break it are on grey. Hollow marks have two pools, diamonds are
    ``measured`` runs. ``tones``: by series the number of its system, whose tone it has. With a path
    the format is that of its suffix (png, svg, pdf).

    Raises:
        InputError: matplotlib is missing, or the path cannot be written.
    """
    with style():
        figure, _ = blank(WIDE, 4.6 + KEYS, title, caption)
        axes = figure.subplots()
        looks = {label: line(i) for i, label in enumerate(series)}
        for label, i in (tones or {}).items():
            looks[label]["color"] = line(i)["color"]
        for label, dots in series.items():
            _draw(axes, dots, **looks[label])
        axes.set_yscale("log")
        axes.set_xlim(left=0)
        if least is not None:
            axes.axvspan(0, least[0], color="#eeeeee", zorder=0, linewidth=0)
            axes.axvline(least[0], color=QUIET, linewidth=1.2, linestyle=(0, (4, 2)))
        if measured:
            axes.plot(*zip(*measured, strict=True), zorder=4, **DIAMOND)
        if chosen is not None:
            dot, said = chosen
            axes.plot(dot.speed, dot.cost, zorder=4, **_ring())
            low, high = axes.get_ylim()
            axes.set_ylim(low / 2.2, high)  # room for the words below it
            beside(axes, (dot.speed, dot.cost), said, left=dot.speed > 0.5 * axes.get_xlim()[1])
        axes.set_xlabel(SPEED)
        axes.set_ylabel(cost)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        readable(axes, 200.0)
        every = [dot for dots in series.values() for dot in dots]
        keys = [*_systems(looks), *_kinds(every)]
        keys += _marks(least, measured=bool(measured), chosen=chosen is not None)
        place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
        axes.legend(handles=keys, ncols=3, handlelength=2.4, columnspacing=1.4, **place)
        if path is not None:
            save(figure, path)
    return figure


def _draw(axes: "Axes", dots: Sequence[Dot], marker: str, **look: Any) -> None:
    """The plans of a series: filled marks of one pool with their band, hollow ones of two."""
    tone = look["color"]
    for pools, face in ((False, tone), (True, "white")):
        mine = sorted(dot for dot in dots if dot.pools == pools)
        where = [d.speed for d in mine], [d.cost for d in mine]
        axes.plot(*where, **{**look, "linewidth": 1.2})
        axes.plot(*where, marker, color=tone, markerfacecolor=face, markersize=5)
        known = [dot.band for dot in mine if dot.band is not None]
        if known:
            around = [fast for fast, _ in known] + [slow for _, slow in reversed(known)]
            axes.fill(*zip(*around, strict=True), color=tone, alpha=0.14, linewidth=0, zorder=1)


def _systems(looks: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """The key of each series."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], label=label, markersize=6, **look) for label, look in looks.items()]


def _kinds(dots: Sequence[Dot]) -> list[Any]:
    """The keys of one pool and of two, where there are both, and of the band."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    look: dict[str, Any] = {"marker": "o", "color": INK, "linestyle": "none", "markersize": 6}
    kinds = {dot.pools for dot in dots}
    faces = {False: (ONE_POOL, INK), True: (TWO_POOLS, "white")}
    keys: list[Any] = [
        Line2D([], [], label=words, markerfacecolor=face, **look)
        for pools, (words, face) in faces.items()
        if pools in kinds and len(kinds) > 1
    ]
    banded = any(dot.band is not None for dot in dots)
    return [*keys, *([Patch(label=BAND, color=QUIET, alpha=0.3, linewidth=0)] if banded else [])]


def _marks(least: tuple[float, str] | None, *, measured: bool, chosen: bool) -> list[Any]:
    """The keys of the limit, of measured runs and of the plan."""
    from matplotlib.lines import Line2D

    limit = [] if least is None else [(least[1], {"color": QUIET, "linestyle": (0, (4, 2))})]
    runs = [(MEASURED, DIAMOND)] if measured else []
    plan = [(PLAN, {**_ring(), "markersize": 11})] if chosen else []
    return [Line2D([], [], label=words, **look) for words, look in (*limit, *runs, *plan)]


def _ring() -> dict[str, Any]:
    return {"marker": "o", "color": INK, "linestyle": "none", "markersize": 15,
            "markerfacecolor": "none", "markeredgewidth": 1.6}  # fmt: skip
