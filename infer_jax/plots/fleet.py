"""Draws a fleet over days: what arrives, replicas of policies, their TTFT and dollars."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, SupportsFloat, Unpack

import numpy as np
from numpy.typing import ArrayLike

from infer_jax.plots.style import (
    DASHES,
    INK,
    QUIET,
    REST,
    SERIES,
    Axes,
    Figure,
    Options,
    Words,
    is_slide,
    readable,
    style,
    subplots,
    write,
)
from infer_jax.plots.traffic import HOUR, draw_periods

if TYPE_CHECKING:
    from infer_jax.arrivals import Traffic

# of a policy: mean replicas, [periods, pools], TTFT of periods, s, and USD a day
Curves = Mapping[str, tuple[np.ndarray, ArrayLike, SupportsFloat]]


def plot_fleet(
    traffic: "Traffic",
    policies: Curves,
    prices: Mapping[str, float],
    best: str,
    band: np.ndarray,
    *,
    limit: float,
    limited: str,
    **words: Unpack[Words],
) -> Figure:
    """Requests/s, replicas, TTFT and dollars so far, by period.

    ``policies``: the bound first, which is a grey area; ``prices``: USD an hour of a replica of
    each pool; of several the replicas of the bound and of the best policy are drawn one by one;
    ``best``: the policy that is drawn strongest, with the ``band`` [2, periods] of its TTFT;
    ``limit`` (s) of what is ``limited``, in words; ``words``: title and caption.

    Raises:
        InputError: matplotlib is missing.
    """
    looks, bound = _looks([*policies], best), next(iter(policies))
    each, several, period = np.array([*prices.values()]), len(prices) > 1, float(traffic.period)
    pools = [*prices] * several
    with style():
        ratios = [0.7, 1.3] if is_slide() else [0.7, 1.4, *[0.6] * len(pools), 1.0, 0.9]
        look: Options = {"sharex": True, "height_ratios": ratios}
        figure, axes = subplots(len(ratios), 1, height=8.4 + 1.3 * len(pools), **look, **words)
        arriving, replicas, *others = axes
        at = draw_periods(axes[-1], len(traffic.rates), period, float(traffic.start))
        arriving.stairs(np.asarray(traffic.rates), at, fill=True, color=SERIES[0], alpha=0.4)
        arriving.set(ylabel="requests/s", ylim=(0.0, None))
        for i, (pool, axis) in enumerate(zip(pools, others, strict=False)):
            for name in (bound, best):
                axis.stairs(policies[name][0][:, i], at, fill=name == bound, **looks[name])
            axis.set(ylabel=pool, ylim=(0.0, None))
        others = others[len(pools) :]
        for name, (wanted, _, daily) in policies.items():
            rent = wanted @ each
            usd = np.r_[0.0, np.cumsum(rent * period / HOUR)]
            label = f"{name}, ${float(daily):,.0f} a day"
            fill, look = name == bound, looks[name]
            replicas.stairs(rent if several else wanted[:, 0], at, label=label, fill=fill,
                            baseline=0.0 if fill else None, **look)  # fmt: skip
            if others and fill:
                others[1].fill_between(at, usd, linewidth=0, **look)
            elif others:
                others[1].plot(at, usd, **look)
        replicas.set(ylabel="$ per hour" if several else "replicas", ylim=(0.0, None))
        if not several:
            scales = partial(np.multiply, each[0]), partial(np.multiply, 1.0 / each[0])
            replicas.secondary_yaxis("right", functions=scales).set_ylabel("$ per hour")
        if others:
            ttft = {x: 1e3 * np.asarray(y) for x, (_, y, _) in policies.items() if x != bound}
            _draw_ttft(others[0], at, ttft, looks, best, 1e3 * band, 1e3 * limit)
            others[0].set_ylabel(limited)
            others[1].set(ylabel="$ so far", ylim=(0.0, None))
            others[1].yaxis.set_major_formatter("{x:,.0f}")
        replicas.figure.legend(loc="outside upper left", ncols=2)
    return figure


def _looks(names: list[str], best: str) -> dict[str, Options]:
    """The bound in grey; every other policy in a colour and dash, the best one thick and on top."""
    looks: dict[str, Options] = {names[0]: {"color": REST[0], "alpha": 0.7, "zorder": 1}}
    tones = (INK, *SERIES[2:], *SERIES[:2])
    for i, name in enumerate(names[1:]):
        strong = name == best
        looks[name] = {
            "color": tones[i % len(tones)],
            "linestyle": "-" if strong else DASHES[(i + 1) % len(DASHES)],
            "linewidth": 2.4 if strong else 1.3,
            "zorder": 4 if strong else 2,
        }
    return looks


def _draw_ttft(
    axes: Axes, at: np.ndarray, ttft: Mapping[str, np.ndarray], looks: Mapping[str, Options],
    best: str, band: np.ndarray, limit: float,
) -> None:  # fmt: skip
    """TTFT of each policy, the band of the best one, and the limit, in ms."""
    words, color = f"{best}, band of its TTFT", looks[best]["color"]
    axes.stairs(band[1], at, baseline=band[0], fill=True, color=color, alpha=0.15, linewidth=0,
                label=words)  # fmt: skip
    for name, each in ttft.items():
        axes.stairs(each, at, baseline=None, **looks[name])
    values = np.concatenate([*ttft.values()])
    low, high = values[values > 0].min(), max(values.max(), limit)
    axes.set(yscale="log", ylim=(0.7 * low, 2.0 * high))
    readable(axes)
    axes.axhspan(limit, 2.0 * high, color=SERIES[1], alpha=0.07, linewidth=0)
    axes.axhline(limit, color=QUIET, linewidth=1.3, linestyle=(0, (4, 2)))
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}
    look: Options = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
    write(axes, f"limit, {limit:,.4g} ms", (1.0, limit), (-3, 2), bbox=box, zorder=6, **look)
