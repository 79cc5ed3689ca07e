"""What do Figures 1, 3, 6, 7, 8, 9, B.1 and C.1 look like when we draw them?

The paper's curves are pictures, lost from its text: a caption compares what the text tells.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments._partitioning import measured
from experiments._partitioning.printed import run
from experiments._report import OUT
from infer_jax.catalog.published import partitioning_model, partitioning_parameters
from infer_jax.estimators.partitioning import LAYOUTS, slice_of
from infer_jax.physics.network import sharding
from infer_jax.plots.style import line, panels, readable, save, style

SOURCE = "Model: Pope et al. 2022 (arXiv 2211.05102), coefficients of hw_profiles/tpu_v4.toml. "
MODELS = {"8B": "PaLM_8B", "62B": "PaLM_62B", "540B": "PaLM_540B"}
SLICES = (4, 8, 16, 32, 64, 128, 256)
BATCHES = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CONTEXT = 2048.0
PEAK = 275e12

Line = tuple[Sequence[float], Sequence[float]]


class Figure(NamedTuple):
    """A figure: its file, title, axes, panels of curves, and what its caption says of them."""

    file: str
    title: str
    axes: tuple[str, str]
    draw: Callable[[], tuple[Mapping[str, Mapping[str, Line]], str]]


class Point(NamedTuple):
    """One configuration: seconds of the phase, chip-seconds a token, MFU."""

    latency: float
    cost: float
    mfu: float


def _points(name: str, weights: str, batches: Sequence[float], new: float) -> list[Point]:
    """Feasible points over slices and batches; ``new`` tokens of prefill, or 1: decode."""
    arch, results = partitioning_model(name, weights=weights), []
    cached = 0.0 if new > 1 else CONTEXT + 31.5
    for chips in SLICES:
        for batch in batches:
            phase = run(arch, chips, batch, new, cached)
            if phase.feasible:
                time, tokens = float(phase.time), batch * new
                flops = 2.0 * partitioning_parameters(name) * tokens
                results.append(Point(time, chips * time / tokens, flops / (chips * PEAK * time)))
    return results


def _best(points: Sequence[Point], worth: Callable[[Point], float]) -> list[Point]:
    """The points than which no faster one is worth as much, fastest first."""
    front: list[Point] = []
    for point in sorted(points):
        if not front or worth(point) > worth(front[-1]):
            front.append(point)
    return front


def _tradeoff(value: str) -> dict[str, dict[str, Line]]:
    """Panels of decode and prefill, a curve for each model and format, at the frontier."""
    sign = -1.0 if value == "cost" else 1.0
    plots: dict[str, dict[str, Line]] = {}
    for title, new in (("generation, a token", 1.0), ("prefill of 2,048 tokens", CONTEXT)):
        curves: dict[str, Line] = {}
        for label, name in MODELS.items():
            for weights in ("bf16", "int8"):
                result = _points(name, weights, BATCHES, new)
                front = _best(result, lambda p: sign * getattr(p, value))
                curves[f"{label} {weights}"] = (
                    [1e3 * p.latency for p in front],
                    [getattr(p, value) for p in front],
                )
        plots[title] = curves
    return plots


def _cost() -> tuple[Mapping[str, Mapping[str, Line]], str]:
    plots = _tradeoff("cost")
    wide, front = (plots["generation, a token"][f"540B {w}"] for w in ("bf16", "int8"))
    dear, cheap = (np.interp(30.0, *curve) for curve in (wide, front))
    return plots, (
        "Agrees: generation is cheapest at large batches, prefill trades less. At 30 ms a token "
        f"bf16 costs {dear / cheap:.1f} times int8 (540B), the paper has just over 2 at low "
        f"latency. Does not: ours reaches {min(front[0]):.1f} ms (540B int8, 256 "
        "chips), the paper's curve ends at 28.5 ms; nothing that calibrates is beyond 64 chips."
    )


def _mfu_latency() -> tuple[Mapping[str, Mapping[str, Line]], str]:
    plots = _tradeoff("mfu")
    decode = plots["generation, a token"]
    top = {name: max(decode[f"{name} bf16"][1]) for name in MODELS}
    which = "agrees" if top["62B"] > top["540B"] else "does not agree: the paper has 62B above"
    return plots, (
        f"Most MFU of generation, bf16: 62B {top['62B']:.0%}, 540B {top['540B']:.0%} ({which}). "
        "Prefill jumps where the layout turns to weight-gathered, as in the paper."
    )


def _volume() -> tuple[Mapping[str, Mapping[str, Line]], str]:
    tokens = np.geomspace(256, 2**21, 80)
    width, hidden, chips = (jnp.asarray(x) for x in (16384.0, 65536.0, 64.0))
    cuts = {"ws_2d": (1.0, 4.0), "wg_x": (4.0, 1.0), "wg_xy": (16.0, 1.0), "wg_xyz": (64.0, 1.0)}
    curves: dict[str, Line] = {}
    for name, (gathered, rows) in cuts.items():
        cut = sharding.SlicedLayout(chips, jnp.asarray(gathered), jnp.asarray(rows))
        each = sharding.outer_elements(width, cut) + sharding.inner_elements(hidden, hidden, cut)
        fetched = sharding.gathered_elements(2.0 * width * hidden, cut)
        moved = tokens / gathered * float(each) + float(fetched)
        curves[name] = (tokens.tolist(), (2e-6 * moved).tolist())
    best = np.argmin(np.stack([y for _, y in curves.values()]), axis=0)
    turns = [f"{tokens[i]:,.0f}" for i in np.flatnonzero(np.diff(best)) + 1]
    names = [list(cuts)[i] for i in dict.fromkeys(best.tolist())]
    return {"": curves}, (
        "The model's shape is lost from the paper's text: E = 16,384, F = 4 E with one inward "
        "matrix and 4 x 4 x 4 chips are taken, 2 bytes an element. The best layout goes "
        f"{' > '.join(names)} as batch grows, as in the paper, at {', '.join(turns)} tokens."
    )


def _chips() -> tuple[Mapping[str, Mapping[str, Line]], str]:
    arch = partitioning_model("PaLM_540B")
    chips, curves = (64, 128, 256), {}
    for code, name in ((0, "1-D weight-stationary"), (1, "2-D weight-stationary")):
        plans = [slice_of(n, layout=code, attention=1.0) for n in chips]
        times = [1e3 * float(run(arch, p, 512, 1, CONTEXT + 31.5).time) for p in plans]
        curves[name] = (chips, times)
    one, two = (ys for _, ys in curves.values())
    gaps = ", ".join(f"{a / b - 1:+.0%}" for a, b in zip(one, two, strict=True))
    return {"": curves}, (
        f"PaLM 540B, batch 512, bf16. 1-D over 2-D at {', '.join(map(str, chips))} chips: {gaps}; "
        "agrees: both fall more slowly than 1/n, 2-D stays ahead and gains with chips. The "
        "paper's values are lost."
    )


def _prefill() -> tuple[Mapping[str, Mapping[str, Line]], str]:
    arch = partitioning_model("PaLM_540B")
    batches = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    curves: dict[str, Line] = {}
    for code in (1, 2, 3, 4):
        points = []
        for batch in batches:
            plan = slice_of(64, layout=code, attention=float(code == 4))
            phase = run(arch, plan, batch, CONTEXT)
            if float(phase.limits["batch"].slack) >= 0:
                flops = 2.0 * 540e9 * batch * CONTEXT
                points.append((batch * CONTEXT, flops / (64 * PEAK * float(phase.time))))
        xs, ys = zip(*points, strict=True)
        curves[LAYOUTS[code]] = (xs, ys)
    top = max(curves["wg_xyz"][1])
    two = dict(zip(*curves["ws_2d"], strict=True))
    first = min(
        (x for name in list(curves)[1:] for x, y in zip(*curves[name], strict=True) if y > two[x]),
        default=0,
    )
    return {"": curves}, (
        f"PaLM 540B on 64 chips. Gathered weights win from {first:,.0f} tokens; most MFU "
        f"{top:.0%}, the paper 76 %. Agrees: 2-D stationary is best at 2,048 tokens, gathered over "
        "x y z at a million. The paper's crossover is lost. Points need a sequence a group."
    )


def _contexts() -> tuple[Mapping[str, Mapping[str, Line]], str]:
    at = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
    arch = partitioning_model("PaLM_540B", layers=8)
    heads = partitioning_model("PaLM_540B", layers=8, multihead=True)
    curves: dict[str, Line] = {}
    for name, model, by in (
        ("multihead", heads, 0.0),
        ("multiquery over heads", arch, 0.0),
        ("multiquery over batch", arch, 1.0),
    ):
        plan = slice_of(64, layout=1.0, attention=by)
        curves[name] = (at, [1e3 * float(run(model, plan, 256, 1, float(c)).time) for c in at])
    slow = curves["multiquery over heads"][1][-1] / curves["multiquery over batch"][1][-1]
    return {"": curves}, (
        "8 layers of PaLM 540B, 64 chips, batch 256. Agrees: the three are near each other at "
        f"short contexts; at 32,768 tokens batch sharding is {slow:.0f} times faster than one "
        "shared head over heads. The paper's dotted line, where 118 layers stop fitting, is not "
        "drawn."
    )


def _faster() -> tuple[Mapping[str, Mapping[str, Line]], str]:
    from experiments._partitioning.tables import times

    rows = [c for c in measured.cells() if c.table == "D.3"]
    own = [c for c in rows if c.series in (measured.SUM, measured.OWN[2])]
    gpus = [c for c in rows if c.gpu]
    ours = {**times(own, "tpu_v4"), **times(gpus, "a100_sxm")}
    plots: dict[str, dict[str, Line]] = {"printed": {}, "ours": {}}
    for series in dict.fromkeys(c.series for c in (*gpus, *own)):
        cells = [c for c in rows if c.series == series]
        chips = float(np.prod(measured.GPUS[cells[0].gpu])) if cells[0].gpu else 64.0
        peak = 312e12 if cells[0].gpu else PEAK
        label = series.replace(" FasterTransformer", "").replace(" total", "")
        for panel, seconds in (
            ("printed", [c.seconds for c in cells]),
            ("ours", [ours[c] for c in cells]),
        ):
            mfu = [c.mfu_of(s, chips, peak) / 100 for c, s in zip(cells, seconds, strict=True)]
            plots[panel][label] = ([1e3 * s for s in seconds], mfu)
    errors = np.abs([ours[c] / c.seconds - 1 for c in (*gpus, *own)])
    return plots, (
        f"60 tokens in, 20 out (Table D.3). Median error {np.median(errors):.1%}, worst "
        f"{errors.max():.0%}: three stages of TP8 at middle batches. Both panels have PaLM fastest "
        "and the TPU curves above TP32's ceiling."
    )


def _short() -> tuple[Mapping[str, Mapping[str, Line]], str]:
    curves: dict[str, Line] = {}
    for label, name in MODELS.items():
        result = []
        for new in (32, 64, 128, 256, 512, 1024):
            result += _points(name, "int8", (1,), float(new))
        front = _best(result, lambda p: -p.cost)
        curves[label] = ([1e3 * p.latency for p in front], [p.cost for p in front])
    return {"": curves}, (
        "Batch 1, 32 to 1,024 tokens, int8. The shape of the paper's figure (cost falls as "
        "sequences grow) agrees; its values are lost, and not compared."
    )


LATENCY = "latency (ms)"
COST, MFU = "chip-seconds per token", "model FLOPS utilisation"
FIGURES: dict[str, Figure] = {
    "1": Figure("pope-figure-01.png", "Figure 1: cost and latency", (LATENCY, COST), _cost),
    "3": Figure(
        "pope-figure-03.png",
        "Figure 3: communication of a feedforward layer",
        ("tokens in the batch", "MB sent by a chip"),
        _volume,
    ),
    "6": Figure("pope-figure-06.png", "Figure 6: 1-D and 2-D", ("chips", "ms per token"), _chips),
    "7": Figure("pope-figure-07.png", "Figure 7: prefill", ("tokens in the batch", MFU), _prefill),
    "8": Figure(
        "pope-figure-08.png", "Figure 8: attention", ("context (tokens)", "ms per token"), _contexts
    ),
    "9": Figure("pope-figure-09.png", "Figure 9: MFU and latency", (LATENCY, MFU), _faster),
    "B1": Figure("pope-figure-b1.png", "Figure B.1: short prefill", (LATENCY, COST), _short),
    "C1": Figure("pope-figure-c1.png", "Figure C.1: MFU and latency", (LATENCY, MFU), _mfu_latency),
}


def draw_figure(name: str, folder: Path = OUT) -> Path:
    """Draw a figure of the paper into ``folder`` and return where it is."""
    figure = FIGURES[name]
    plots, says = figure.draw()
    with style():
        picture, axes = panels(len(plots), figure.title, SOURCE + says)
        for ax, (title, curves) in zip(axes, plots.items(), strict=True):
            for i, (label, (xs, ys)) in enumerate(curves.items()):
                few = max(1, len(xs) // 12)
                ax.plot(xs, ys, label=label, markevery=few, **{**line(i), "markersize": 4})
            ax.set_xscale("log")
            if figure.axes[1] != MFU:
                ax.set_yscale("log")
            readable(ax)
            ax.set_xlabel(figure.axes[0])
            ax.set_title(title)
            ax.legend(loc="best")
        axes[0].set_ylabel(figure.axes[1])
        return save(picture, folder / figure.file)
