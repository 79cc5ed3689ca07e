"""The figure of a design: what changed, what it brings, the search; or a frontier of designs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from infer_jax.design.ascent import TOLERANCE
from infer_jax.design.design import Design
from infer_jax.design.sensitivity import known_outputs
from infer_jax.design.toml import DesignSpec
from infer_jax.errors import InputError
from infer_jax.plots.rendering import dated, rent
from infer_jax.plots.style import name_of
from infer_jax.sweeps.constraint import Constraint
from infer_jax.sweeps.paths import unit_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infer_jax.plots.path import Change, SearchTrack
    from infer_jax.verbs.codesign_result import DesignResult

# what is drawn of start and design: its words, unit, what of the SI unit that is, and whether
# more (1) or less (-1) is better
OUTPUTS = {
    "cost": ("price of output tokens", "$/Mtok", 1.0, -1),
    "tpot": ("time per output token", "ms", 1e3, -1),
    "ttft": ("time to first token", "ms", 1e3, -1),
    "throughput": ("throughput per GPU", "tokens/s", 1.0, 1),
    "parameters": ("parameters", "billion", 1e-9, 0),
    "active": ("active parameters", "billion", 1e-9, 0),
    "kv_bytes": ("KV cache of a token", "kB", 1e-3, 0),
    "loss": ("predicted loss", "nats", 1.0, -1),
    "lifetime": ("training and serving", "million $", 1e-6, -1),
}
GAINS = {  # of the title
    "cost": "output tokens {} times cheaper",
    "input_cost": "input tokens {} times cheaper",
    "tpot": "TPOT {} times shorter",
    "ttft": "TTFT {} times shorter",
    "throughput": "{} times the throughput",
}
CONSTRAINTS = {  # in words: of what, what of the SI unit is printed, and in which unit
    "parameters": ("parameters", 1e-9, " billion"),
    "active": ("active parameters", 1e-9, " billion"),
    "aspect": ("hidden size over layers", 1.0, ""),
}
BOUND = "Bold: on a bound of the search; a wider one may change it further."
CAPTION = (
    "Search: the objective of every restart by step, of numbers that are not whole yet; the "
    "design is rounded and priced exactly. The quality of answers is not predicted."
)


def draw_design(one: "DesignResult") -> "Figure":
    """The start and the design in bars, and all restarts by step.

    Raises:
        InputError: nothing moved along gradients; see ``Result.plot``.
    """
    if not one.design.paths:
        raise InputError("plot", "paths", "none", "a design with numbers that move")
    from infer_jax.plots.path import plot_path
    from infer_jax.sweeps.chart import limit_in_words

    better = GAINS.get(one.keep.by, f"{one.keep.by} {{}} times better")
    changed, work, known = _changed(one), one.design.point.workload, known_outputs()
    limits = ", ".join(limit_in_words(*x, known) for x in dict(one.keep.under).items())
    facts = [
        f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out",
        ", ".join(dict.fromkeys(one.asked.formats.values())),
        f"{one.asked.system}, {rent({'': float(one.design.point.hardware.price)})}",
        f"limits: {limits}" if limits else "no limits",
        _constraints(one.asked),
        f"estimator {one.asked.names[0]}",
    ]
    bound = f" {BOUND}" * any(change.bound for change in changed)
    return plot_path(
        search_of(one.design),
        {"what changed": changed, "what it brings": _outputs(one.design)},
        title=f"{one.asked.model} redesigned: {better.format(f'{one.design.gain:.3g}')}",
        caption=dated(f"{'; '.join(filter(None, facts))}.{bound} {CAPTION}"),
    )


def search_of(design: Design) -> "SearchTrack":
    """The last of a design's searches as it is drawn."""
    from infer_jax.plots.path import SearchTrack

    path = design.paths[-1]
    best, objective = int(path.ends[0]), np.exp(path.objective * design.sign)
    return SearchTrack(
        restarts=objective,
        best=objective[:, best],
        holds=path.excess[:, best] <= TOLERANCE,
        start=design.start_objective if design.start_met else None,
        design=design.objective,
        objective=_objective(design),
    )


def draw_frontier(results: "Sequence[DesignResult]") -> "Figure":
    """The objective of every design and of the start, over the limit that varies."""
    from infer_jax.plots.points import plot_points

    first, under = results[0], [dict(one.keep.under) for one in results]
    name = next(k for k in under[0] if len({limits[k] for limits in under}) > 1)
    known = known_outputs().get(name)
    at = np.array([(known.factor if known else 1.0) * limits[name] for limits in under])
    series = {"design": (at, np.array([one.design.objective for one in results]))}
    met = np.array([one.design.start_met for one in results])
    if met.any():
        series["start"] = at[met], np.array([x.design.start_objective for x in results])[met]
    title = known.short or known.title if known else name
    unit = f", {known.printed_unit}" if known and known.printed_unit != "1" else ""
    facts = [first.asked.system, _constraints(first.asked), f"estimator {first.asked.names[0]}"]
    return plot_points(
        series,
        labels=(f"limit of {title}{unit}", _objective(first.design)),
        title=f"{first.asked.model} redesigned for limits of {title}",
        caption=dated(f"{'; '.join(filter(None, facts))}."),
    )


def _constraints(spec: DesignSpec) -> str:
    """What constraints hold the design to, in words."""
    texts: list[str] = []
    for one in (one for one in spec.space.where if isinstance(one, Constraint)):
        of, factor, unit = " over ".join(map(name_of, one.ratio)), 1.0, ""
        if not one.ratio and one.value in CONSTRAINTS:
            of, factor, unit = CONSTRAINTS[one.value]
        ends = [
            f"{word} {factor * x:.3g}"
            for word, x in (("at least", one.at_least), ("at most", one.at_most))
            if isinstance(x, int | float)
        ]
        if of and ends:
            texts.append(f"{of} {' and '.join(ends)}{unit}")
    return f"held: {', '.join(texts)}" if texts else ""


def _changed(one: "DesignResult") -> "list[Change]":
    """The numbers that were free, beside those of the start, and the bounds that they lie on."""
    from infer_jax.plots.path import Change

    changes: list[Change] = []
    for path, x in one.values.items():
        if not isinstance(x, int | float | np.number) or path not in one.asked.start:
            continue
        axis = one.asked.space.axes.get(path)
        steps = () if axis is None or axis.rule is not None else axis.steps
        steps = [float(step) for step in steps if isinstance(step, int | float)]
        bounds: dict[float, str] = {}
        if steps and min(steps) < max(steps):
            bounds = {min(steps): "least allowed", max(steps): "most allowed"}
        start, bound = one.asked.start[path], bounds.get(float(x), "")
        changes.append(Change(name_of(path), start, float(x), bound=bound))
    return changes


def _outputs(design: Design) -> "list[Change]":
    """The outputs of a design beside those of the start."""
    from infer_jax.plots.path import Change

    before, after = design.start_terms, design.terms
    dense = after.get("active") == after.get("parameters")
    return [
        Change(title, factor * before[name], factor * after[name], unit, sense)
        for name, (title, unit, factor, sense) in OUTPUTS.items()
        if name in after and not (name == "active" and dense)
    ]


def _objective(design: Design) -> str:
    """The sought term and its unit."""
    unit = unit_of(design.by, design.point, design.estimate)
    return design.by if unit in ("", "1") else f"{design.by} ({unit})"
