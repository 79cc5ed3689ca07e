"""Elasticities of an estimate with respect to each number, and how local they are.

An elasticity is d log(output) / d log(number): 0.4 means that 1 % more of the number gives 0.4 %
more of the output. Beside the derivative there are the slopes just below and just above the point,
which differ at a maximum or a ceiling, and the evaluated changes at +10 % and at twice the number.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.compiling import once
from infer_jax.errors import InputError
from infer_jax.estimators import Estimate
from infer_jax.estimators.estimate import DECLARING
from infer_jax.physics.cost import joules_per_million_tokens
from infer_jax.specs import Hardware, Output, Workload, leaves, outputs as declared
from infer_jax.sweeps.paths import Point, by_path, estimate_at
from infer_jax.typed_jax import trees

Tree = TypeVar("Tree")  # a Point, or another tuple of pytrees whose parts have names
Outputs = Callable[[Tree], dict[str, Array]]
Meta = Mapping[str, Any]  # the declaration of a field: unit, kind, bounds
Change = Mapping[str, float | Callable[[float], float]]  # new values, or functions of the old ones
Rows = Float[np.ndarray, "rows leaves outputs"]
Leaves = Float[np.ndarray, "leaves outputs"]

STEP = 1e-6  # relative, in float64: slopes at a side are taken between one and two steps away
KINK = 1e-3  # difference of the two sides above which both are shown
MIN_JUMP = 1e-9  # relative step of an output from which it is one
FACTORS = (1.1, 2.0)
BLENDED = "blended_cost"  # of tokens in and out alike, which a server's estimate has
FIRST = ("tpot",)  # outputs shown first; the others follow as declared


@dataclasses.dataclass(frozen=True)
class Elasticity:
    """The elasticity of one output with respect to one number, or one field of all blocks.

    ``slope`` is the derivative, ``below`` and ``above`` the slopes at the two sides, ``jump``
    the relative step of the output just above the number (a ceiling). ``tenth`` and
    ``double`` are relative changes of the output at +10 % and x2, NaN beyond declared bounds.
    """

    path: str
    unit: str
    value: float
    output: str
    slope: float
    below: float
    above: float
    jump: float
    tenth: float
    double: float

    @property
    def is_kinked(self) -> bool:
        """Whether the two sides differ."""
        return abs(self.above - self.below) > KINK or abs(self.jump) > KINK

    @property
    def weight(self) -> float:
        """The larger size of the two sides' slopes: what a table is sorted by."""
        return max(abs(self.slope), abs(self.below), abs(self.above))


class Leaf(NamedTuple):
    """A named set of leaves that are scaled together."""

    path: str
    places: tuple[int, ...]
    meta: Meta


def energy(estimate: Estimate, hardware: Hardware, workload: Workload) -> Array:
    """Energy per million output tokens, J: the estimate's own, or that of full board power.

    An estimate without one is taken to draw the full board power all the time: an upper
    bound, as chips that wait for memory draw less. 0 where the profile has no power.
    """
    own = getattr(estimate, "energy", None)
    if own is not None:
        return own
    return joules_per_million_tokens(estimate.chips, hardware.power, estimate.tpot, workload.batch)


def outputs(point: Point) -> dict[str, Array]:
    """The outputs of an estimate whose elasticities are shown: TTFT, TPOT (s), cost (USD/Mtok).

    With them energy (J/Mtok), the estimator's own or an upper bound (``energy``);
    0 where the profile has no power.
    """
    return _outputs_of(estimate_at(point), point)


def outputs_and_fit(point: Point) -> tuple[dict[str, Array], Array]:
    """The ``outputs``, ``blended_cost`` (USD/Mtok in or out) where an estimate tells it, and
    whether all limits are met."""
    estimate = estimate_at(point)
    shown, blended = _outputs_of(estimate, point), getattr(estimate, BLENDED, None)
    return shown if blended is None else {**shown, BLENDED: blended}, estimate.feasible


def _outputs_of(estimate: Estimate, point: Point) -> dict[str, Array]:
    shown = {
        x.name: getattr(estimate, x.name) for x in declared(type(estimate), view="sensitivity")
    }
    return {**shown, "energy": energy(estimate, point.hardware, point.workload)}


def outputs_without_power(point: Point) -> dict[str, Array]:
    """The ``outputs`` that do not need the power of a chip: TTFT, TPOT and cost."""
    estimate = estimate_at(point)
    shown = (x for x in declared(type(estimate), view="sensitivity") if not x.drawn)
    return {x.name: getattr(estimate, x.name) for x in shown}


def known_outputs() -> dict[str, Output]:
    """The outputs that estimates declare, by name, in the order shown: TPOT first."""
    outputs = {x.name: x for x in declared(Estimate, *DECLARING)}
    return {name: outputs[name] for name in dict.fromkeys((*FIRST, *outputs))}


def analyser(
    function: Outputs[Tree], tree: Tree, besides: str = "", *, exact: bool = True
) -> Callable[[Tree], list[Elasticity]]:
    """A function of trees like ``tree`` that returns all elasticities, compiled once.

    ``besides``: the part of the tree whose numbers are held, such as the estimator; its program is
    that much smaller. ``exact``: slopes by forward differentiation; else between the two sides, to
    1e-5 at a kink and 1e-8 elsewhere, by a program that is compiled in a third of the time.

    One field of all blocks is one number: ``arch.blocks.*.attention.kv_heads``. Choices, zeros and
    numbers that no output reads are left out; of degrees of the plan of which only the product is
    read, the first stands for all.
    """
    numbers = [x for x in leaves_of(tree) if not besides or not x.path.startswith(f"{besides}.")]
    structure = jax.tree.structure(tree)
    fixed = (function, tuple(leaf.places for leaf in numbers))

    # the point itself with slopes along every direction, then one leaf moved at a time
    factors = (1.0, 1 - 2 * STEP, 1 - STEP, 1 + STEP, 1 + 2 * STEP, *FACTORS)
    unit = np.eye(len(numbers))
    scales = np.concatenate([1.0 + (f - 1.0) * unit for f in factors])

    def analyse(point: Tree) -> list[Elasticity]:
        with jax.enable_x64(True):
            flat = [np.asarray(x, np.float64) for x in jax.tree.leaves(point)]
            along = np.tile(unit, (len(factors), 1))
            wide = jax.tree.unflatten(structure, flat)
            values, slope_of = once(_moved, wide, scales, along if exact else None, fixed=fixed)
        names = sorted(values, key=list({**known_outputs(), **values}).index)
        logs = np.stack([values[n] for n in names], -1).reshape(len(factors), len(numbers), -1)
        sides = _sides(logs)
        if slope_of is None:
            slopes = np.where(sides.step == 0.0, (sides.below + sides.above) / 2.0, sides.smooth)
        else:
            slopes = np.stack([slope_of[name] for name in names], -1)
        twins = _twins(numbers, logs, slopes, 1e-9 if exact else STEP)
        found: list[Elasticity] = []
        for j, name in enumerate(names):
            if not np.isfinite(logs[0, 0, j]):
                continue  # an output that is 0: energy where no power is known
            for i, leaf in enumerate(numbers):
                row, slope = logs[:, i, j], slopes[i, j]
                if i not in twins and (slope != 0 or np.any(row != row[0])):
                    value = float(flat[leaf.places[0]])
                    local = [float(x[i, j]) for x in (slopes, *sides[:3])]
                    found.append(_elasticity(leaf, value, name, local, row[5:] - row[0]))
        return sorted(found, key=lambda e: -e.weight)

    return analyse


def _elasticity(
    leaf: Leaf, value: float, name: str, local: Sequence[float], gains: np.ndarray
) -> Elasticity:
    """An elasticity from its slopes and its step; ``gains``: logarithms at each of ``FACTORS``."""
    low, high = leaf.meta.get("low", -np.inf), leaf.meta.get("high", np.inf)
    changes = [
        float(np.expm1(gain)) if low <= value * factor <= high else np.nan
        for gain, factor in zip(gains, FACTORS, strict=True)
    ]
    return Elasticity(leaf.path, leaf.meta.get("unit", "1"), value, name, *local, *changes)


def _moved(
    function: Outputs[Tree],
    places: tuple[tuple[int, ...], ...],
    tree: Tree,
    scales: Float[Array, "rows leaves"],
    along: Float[Array, "rows leaves"] | None,
) -> tuple[dict[str, Float[Array, " rows"]], dict[str, Float[Array, " rows"]] | None]:
    """Logarithms of the outputs with leaves scaled, and their slopes along a direction, by row.

    Without directions row after row, which is the smallest program.
    """

    def logs(scale: Array) -> dict[str, Array]:
        return {k: log_or_nothing(x) for k, x in function(scaled(tree, places, scale)).items()}

    if along is None:
        return trees.one_by_one(logs, scales), None
    return jax.vmap(lambda s, d: jax.jvp(logs, (s,), (d,)))(scales, along)


def scaled(tree: Tree, places: Sequence[Sequence[int]], factors: Array) -> Tree:
    """A tree with the leaves at each of some places multiplied by a factor."""
    flat, structure = jax.tree.flatten(tree)
    for at, by in zip(places, factors, strict=True):
        for i in at:
            flat[i] = flat[i] * by
    return jax.tree.unflatten(structure, flat)


class Sides(NamedTuple):
    """Slopes below and above a number, and the relative step of the output just above it.

    ``smooth``: the slope of the side without a step.
    """

    below: Leaves
    above: Leaves
    step: Leaves
    smooth: Leaves


def _sides(logs: Rows) -> Sides:
    """The two sides of each number, from one and two steps away, less the slope over them."""
    here, low, lower, high, higher = logs[[0, 2, 1, 3, 4]]
    with np.errstate(invalid="ignore"):  # an output that is 0, whose logarithm is infinite
        below = (low - lower) / np.log((1 - STEP) / (1 - 2 * STEP))
        above = (higher - high) / np.log((1 + 2 * STEP) / (1 + STEP))
        jump = np.expm1(high - here - above * np.log1p(STEP))
        drop = np.expm1(here - low + below * np.log1p(-STEP))
    is_above = abs(jump) >= abs(drop)
    step = np.where(is_above, jump, drop)
    step = np.where(abs(step) > MIN_JUMP, step, 0.0)
    return Sides(below, above, step, np.where(is_above, below, above))


def _twins(numbers: Sequence[Leaf], logs: Rows, slopes: Leaves, near: float) -> set[int]:
    """Degrees of the plan with the same effect on all outputs as an earlier one."""
    plan = [i for i, leaf in enumerate(numbers) if leaf.path.startswith("plan.")]
    return {
        j
        for n, j in enumerate(plan)
        for i in plan[:n]
        if np.allclose(logs[:, i], logs[:, j], rtol=0, atol=1e-12)
        and np.allclose(slopes[i], slopes[j], rtol=0, atol=near)
    }


def elasticities(function: Outputs[Tree], tree: Tree) -> list[Elasticity]:
    """All elasticities at one point, the largest first; see ``analyser``."""
    return analyser(function, tree)(tree)


def _metas(tree: object) -> dict[str, Meta]:
    """The declarations of all numbers of a tuple or a dictionary of specs, by their paths."""
    names = getattr(tree, "_fields", ())
    parts = tree if isinstance(tree, dict) else {name: getattr(tree, name) for name in names}
    return {
        f"{name}.{path}": meta for name, part in parts.items() for path, meta, _ in leaves(part)
    }


def leaves_of(tree: object) -> list[Leaf]:
    """Numbers that can be scaled, those of all blocks together."""
    metas = _metas(tree)
    groups: dict[str, list[int]] = {}
    for i, (path, value) in enumerate(by_path(tree).items()):
        meta = metas.get(path, {})
        if meta.get("kind") != "choice" and np.isfinite(value) and value != 0:
            groups.setdefault(re.sub(r"\.\d+(?=\.)", ".*", path), []).append(i)
    first = {re.sub(r"\.\d+(?=\.)", ".*", path): meta for path, meta in reversed(metas.items())}
    return [Leaf(path, tuple(at), first.get(path, {})) for path, at in groups.items()]


def log_or_nothing(x: Array) -> Array:
    positive = x > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, x, 1.0)), -jnp.inf)


def changed(tree: Tree, change: Change, where: str = "what if") -> Tree:
    """A tree with leaves set: by path (``*`` for any block) to a number, or by a function of it.

    Raises:
        InputError: a path that no leaf has, or a value out of the bounds of its field.
    """
    flat, metas = by_path(tree), _metas(tree)
    paths, values = list(flat), [np.asarray(x) for x in flat.values()]
    for path, new in change.items():
        pattern = re.compile(re.escape(path).replace(r"\*", r"[^.]+"))
        at = [i for i, p in enumerate(paths) if pattern.fullmatch(p)]
        if not at:
            near = [p for p in paths if p.rpartition(".")[2] == path.rpartition(".")[2]]
            raise InputError(where, path, "no number of this", ", ".join(near or paths))
        for i in at:
            value = new(float(values[i])) if callable(new) else float(new)
            meta = metas.get(paths[i], {})
            low, high = meta.get("low", -np.inf), meta.get("high", np.inf)
            if not (np.isfinite(value) and low <= value <= high):
                raise InputError(where, paths[i], value, f"a number from {low:g} to {high:g}")
            values[i] = np.asarray(value, np.float64)
    return jax.tree.unflatten(jax.tree.structure(tree), values)


def what_if(
    function: Outputs[Tree], point: Tree, changes: Mapping[str, Change]
) -> dict[str, dict[str, float]]:
    """Relative changes of all outputs under each named change, evaluated, not extrapolated.

    Raises:
        InputError: as ``changed``.
    """
    with jax.enable_x64(True):
        base = once(function, changed(point, {}))
        after = {x: once(function, changed(point, change, x)) for x, change in changes.items()}
    return {label: relative_changes(base, one) for label, one in after.items()}


def relative_changes(before: Mapping[str, Array], after: Mapping[str, Array]) -> dict[str, float]:
    """Relative changes of the outputs, but of those that are not known: energy without a power."""
    known = [name for name in before if before[name] > 0 and after[name] > 0]
    return {name: float(after[name]) / float(before[name]) - 1.0 for name in known}
