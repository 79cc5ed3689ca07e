"""The picture of a design: what changed, what it brings, the search; or a frontier of designs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from infer_jax.design.ascent import TOLERANCE
from infer_jax.design.design import Design
from infer_jax.design.sensitivity import known_outputs
from infer_jax.design.toml import DesignSpec
from infer_jax.errors import InputError
from infer_jax.plots.pictured import dated, rent
from infer_jax.sweeps.constraint import Constraint
from infer_jax.sweeps.paths import unit_of
from infer_jax.sweeps.pictures import limit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infer_jax.plots.path import Change, Track
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
CONSTRAINTS = {  # constraints in words: of what, what of the SI unit is printed, and in which unit
    "parameters": ("parameters", 1e-9, " billion"),
    "active": ("active parameters", 1e-9, " billion"),
    "aspect": ("hidden size over layers", 1.0, ""),
}
CHANGED, BRINGS = "what changed", "what it brings"
BOUND = "Bold: on a bound of the search; a wider one may change it further."
CAPTION = (
    "Search: the objective of every restart by step, of numbers that are not whole yet; the "
    "design is rounded and priced exactly. The quality of answers is not predicted."
)


def of_design(one: "DesignResult") -> "Figure":
    """The start and the design in bars, and all restarts by step.

    Raises:
        InputError: nothing moved along gradients; see ``Result.plot``.
    """
    if not one.design.paths:
        raise InputError("plot", "paths", "none", "a design with numbers that move")
    from infer_jax.plots.path import plot_path
    from infer_jax.plots.style import words

    better = GAINS.get(one.keep.by, f"{one.keep.by} {{}} times better")
    title = words(f"{one.asked.model} redesigned: {better.format(f'{one.design.gain:.3g}')}")
    changes = {CHANGED: _changed(one), BRINGS: _brings(one.design)}
    bound = [BOUND] if any(change.bound for change in changes[CHANGED]) else []
    said = dated(" ".join([_load_and_limits(one), *bound, CAPTION]))
    return plot_path(track_of(one.design), changes=changes, title=title, caption=words(said))


def _load_and_limits(one: "DesignResult") -> str:
    """Lengths, format, price, limits, what is held, and the estimator."""
    work, known = one.design.point.workload, known_outputs()
    under = ", ".join(limit(name, x, known) for name, x in dict(one.keep.under).items())
    formats = ", ".join(dict.fromkeys(one.asked.formats.values()))
    parts = [
        f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out",
        formats,
        f"{one.asked.system}, {rent({'': float(one.design.point.hardware.price)})}",
        f"limits: {under}" if under else "no limits",
        _constraints(one.asked),
        f"estimator {one.asked.names[0]}",
    ]
    return f"{'; '.join(part for part in parts if part)}."


def _constraints(asked: DesignSpec) -> str:
    """What constraints hold the design to, in words."""
    from infer_jax.plots.names import named

    held: list[str] = []
    for one in (one for one in asked.space.where if isinstance(one, Constraint)):
        said, factor, unit = " over ".join(map(named, one.ratio)), 1.0, ""
        if not one.ratio and one.value in CONSTRAINTS:
            said, factor, unit = CONSTRAINTS[one.value]
        ends = [(word, x) for word, x in (("at least", one.at_least), ("at most", one.at_most))
                if isinstance(x, int | float)]  # fmt: skip
        if said and ends:
            limits = (f"{word} {factor * x:.3g}" for word, x in ends)
            held.append(f"{said} {' and '.join(limits)}{unit}")
    return f"held: {', '.join(held)}" if held else ""


def _bound(asked: DesignSpec, path: str, value: float) -> str:
    """The bound of the search that a number lies on, in words; "" within."""
    axis = asked.space.axes.get(path)
    given = () if axis is None or axis.rule is not None else axis.steps
    steps = [float(x) for x in given if isinstance(x, int | float)]
    if not steps or min(steps) == max(steps):
        return ""
    return {min(steps): "least allowed", max(steps): "most allowed"}.get(value, "")


def _changed(one: "DesignResult") -> "list[Change]":
    """The numbers that were free, beside those of the start."""
    from infer_jax.plots.names import named
    from infer_jax.plots.path import Change

    start = one.asked.start
    return [
        Change(named(path), start[path], float(x), bound=_bound(one.asked, path, float(x)))
        for path, x in one.values.items()
        if isinstance(x, int | float | np.number) and path in start
    ]


def _brings(design: Design) -> "list[Change]":
    """The outputs of a design beside those of the start."""
    from infer_jax.plots.path import Change

    before, after = design.start_terms, design.terms
    dense = after.get("active") == after.get("parameters")
    return [
        Change(said, factor * before[name], factor * after[name], unit, sense)
        for name, (said, unit, factor, sense) in OUTPUTS.items()
        if name in after and not (name == "active" and dense)
    ]


def track_of(design: Design) -> "Track":
    """The last of a design's paths as ``plots.path`` draws it."""
    from infer_jax.plots.path import Track

    path = design.paths[-1]
    winner = int(path.ends[0])
    return Track(
        objective=np.exp(path.objective * design.sign),
        kept=path.excess <= TOLERANCE,
        winner=winner,
        values=path.values[:, winner],
        names=design.moving,
        start=design.start_objective if design.start_met else None,
        final=design.objective,
        label=_objective(design),
    )


def _objective(design: Design) -> str:
    """The sought term and its unit."""
    unit = unit_of(design.by, design.point, design.estimate)
    return design.by if unit in ("", "1") else f"{design.by} ({unit})"


def of_frontier(every: "Sequence[DesignResult]") -> "Figure":
    """The objective of every design and of the start, over the limit that varies."""
    from infer_jax.plots.kept import plot_points
    from infer_jax.plots.style import words

    first, under = every[0], [dict(one.keep.under) for one in every]
    name = next(k for k in under[0] if len({limits[k] for limits in under}) > 1)
    known = known_outputs().get(name)
    at = np.array([(known.factor if known else 1.0) * limits[name] for limits in under])
    series = {"design": (at, np.array([one.design.objective for one in every]))}
    kept = np.array([one.design.start_met for one in every])
    if kept.any():
        series["start"] = at[kept], np.array([x.design.start_objective for x in every])[kept]
    said = known.short or known.title if known else name
    unit = f", {known.printed_unit}" if known and known.printed_unit != "1" else ""
    labels = (f"limit of {said}{unit}", _objective(first.design))
    title = words(f"{first.asked.model} redesigned for limits of {said}")
    held = _constraints(first.asked)
    caption = (
        f"{first.asked.system}; {held + '; ' if held else ''}estimator {first.asked.names[0]}."
    )
    return plot_points(series, labels=labels, title=title, caption=words(dated(caption)))
