"""Draws plans: speed of a request against dollars per million tokens.

Speed is to the right and dollars are up, so that the better plan lies below and to the right.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from infer_jax.estimators import Estimate
from infer_jax.plots.style import INK, QUIET, beside, line, panels, readable, save, style
from infer_jax.specs import output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPEED = output(Estimate, "speed").doc


class Dot(NamedTuple):
    """A plan: tokens/s of a request, money per million tokens, whether it has two pools.

    ``band``: the speeds between which 80 % of measured runs are, where that is known.
    """

    speed: float
    cost: float
    pools: bool = False
    band: tuple[float, float] | None = None


def plot_plans(
    series: Mapping[str, Sequence[Dot]],
    path: str | os.PathLike[str] | None = None,
    *,
    chosen: tuple[Dot, str] | None = None,
    least: tuple[float, str] | None = None,
    cost: str = "USD per million tokens",
    title: str = "",
    caption: str = "",
) -> "Figure":
    """A picture of plans, one series a system or format, with the plan to take and the limit.

    ``chosen``: the plan and what it is, in words; ``least``: the speed that a limit asks for, and
    the limit in words; plans that break it are on grey. Hollow marks have two pools. With a path
    the format is that of its suffix (png, svg, pdf).

    Raises:
        InputError: matplotlib is missing, or the path cannot be written.
    """
    with style():
        figure, (axes, *_) = panels(1, title, caption)
        for i, (label, dots) in enumerate(series.items()):
            look: dict[str, Any] = line(i)
            marker, tone = look.pop("marker"), look["color"]
            for pools, face in ((False, tone), (True, "white")):
                mine = sorted(d for d in dots if d.pools == pools)
                where = [d.speed for d in mine], [d.cost for d in mine]
                axes.plot(*where, **{**look, "linewidth": 1.2})
                axes.plot(*where, marker, color=tone, markerfacecolor=face, markersize=5)
                known = [(*d.band, d.cost) for d in mine if d.band is not None]
                if known:
                    slow, fast, cost_of = zip(*known, strict=True)
                    axes.fill_betweenx(cost_of, slow, fast, color=tone, alpha=0.13, linewidth=0)
            axes.plot([], [], marker=marker, label=label, **look)
        axes.set_yscale("log")
        axes.set_xlim(left=0)
        if least is not None:
            axes.axvspan(0, least[0], color="#eeeeee", zorder=0, linewidth=0)
            axes.axvline(
                least[0], color=QUIET, linewidth=1.2, linestyle=(0, (4, 2)), label=least[1]
            )
        if chosen is not None:
            dot, said = chosen
            ring = {"markersize": 15, "markerfacecolor": "none", "markeredgewidth": 1.6}
            axes.plot(dot.speed, dot.cost, "o", color=INK, zorder=4, label="the plan", **ring)
            low, high = axes.get_ylim()
            axes.set_ylim(low / 1.8, high)  # room for the words below it
            beside(axes, (dot.speed, dot.cost), said, left=dot.speed > 0.5 * axes.get_xlim()[1])
        axes.set_xlabel(SPEED)
        axes.set_ylabel(cost)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        readable(axes, 200.0)
        axes.legend(loc="best", handlelength=3.0)
        if path is not None:
            save(figure, path)
    return figure
