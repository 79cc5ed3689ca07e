"""Reads a SPEC.toml: a sweep's space with free names, an objective and limits.

The tables of a sweep's file mean the same here; ``[free]`` adds axes by the names designers use,
``[objective]`` and ``[limits]`` stand where a sweep keeps rows, ``[quality]`` predicts a loss.
"""

import dataclasses
import re
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from infer_jax.catalog import System
from infer_jax.catalog.foreign import read_toml
from infer_jax.design.design import MAX_RESTARTS, MAX_STEPS, SearchOptions
from infer_jax.design.draws import DrawSpec, read_draws
from infer_jax.design.names import (
    OF_THE_PLAN,
    dependent_axes,
    free_axis,
    hardware_constraints,
    leaves_named,
)
from infer_jax.design.quality import law
from infer_jax.design.quality_wrapper import QualityWrapper
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator, Trust, trust
from infer_jax.silicon.chips import SiliconSystem
from infer_jax.specs import Architecture, value_of
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.legality import cases_are_legal
from infer_jax.sweeps.paths import Point, by_path, is_list, is_names, is_table
from infer_jax.sweeps.reading import (
    NUMBER,
    POSITIVE,
    Body,
    Requirement,
    Table,
    axis_of,
    divide_cases,
    is_number,
    is_text,
    read_table,
    table_of,
    whole_number,
)
from infer_jax.sweeps.reducers import Best
from infer_jax.sweeps.space import Space
from infer_jax.sweeps.toml import SHARED, read_space

DEFAULT = "economics.planned"  # the estimator where a file names none
PAIR = ("cost", "input_cost", "tpot", "ttft", "chips")
KEYS = {
    **SHARED,
    "second": Requirement(is_text, "a name"),
    **table_of("free", "objective", "limits", "quality", "start", "search", "draws"),
}
SEARCH = {
    "restarts": whole_number(1, MAX_RESTARTS),
    "steps": whole_number(1, MAX_STEPS),
    "seed": whole_number(0, 2**63 - 1),
    "method": Requirement(is_text, "adam or lbfgs"),
}
OBJECTIVE = {
    "best": Requirement(is_text, "a term, such as cost or speed"),
    "pair": Requirement(
        lambda x: is_names(x) and len(x) == 2 and {*x} <= {*PAIR}, f"two of {', '.join(PAIR)}"
    ),
    "weight": NUMBER,
    "along": Requirement(lambda x: is_table(x) and len(x) < 2, "one limit and its values"),
}
ALONG = Requirement(
    lambda x: is_list(x) and bool(x) and all(map(POSITIVE.fits, x)), "a list of numbers above 0"
)
QUALITY = ("tokens", "served", "utilisation")
OF_CASES = ("batch", "tp", "pp", "ep", "dp")  # free in each case
OF_QUALITY = ("loss", "lifetime", "lifetime_cost", "training")
One = TypeVar("One")


@dataclasses.dataclass(frozen=True)
class DesignSpec:
    """A design problem read from a file: the arguments of ``optimise``, and names for printing.

    ``keeps`` has one member, or one for each value of a limit along a frontier.
    """

    estimator: QualityWrapper
    second: Estimator | None
    space: Space
    keeps: tuple[Best, ...]
    start: dict[str, float]
    search: SearchOptions
    feasible: str
    model: str
    formats: dict[str, str]
    names: tuple[str, ...] = ()  # of the estimators, as the file names them
    trusted: tuple[Trust, ...] = ()
    system: str = ""  # as the file names it
    base: System | None = None  # what the numbers of the hardware start from
    draws: DrawSpec | None = None

    @property
    def along(self) -> str:
        """The limit that varies along a frontier; "" of one design."""
        first, *others = (dict(keep.under) for keep in self.keeps)
        return next((name for name in first if any(x[name] != first[name] for x in others)), "")


def load_spec(path: str | Path) -> DesignSpec:
    """The design problem of a file.

    Raises:
        InputError: as a sweep's file; a name the model has not, an unknown term or law, a
            constant of a law that is missing.
    """
    return spec_of(str(path), read_toml(path))


def spec_of(where: str, table: Table) -> DesignSpec:
    """The design problem of the tables of a file."""
    table = _with_free_cases(where, read_table(where, "", table, KEYS))
    table, cases = divide_cases(where, table)
    estimators, space, feasible = read_space(where, table, DEFAULT)
    own = {"estimator": _single(where, "estimator", estimators)}
    _single(where, "arch", space.arch)
    system = _single(where, "hardware", space.hardware)
    if "second" in table:
        named, *_ = read_space(where, {**table, "estimator": table["second"], "coefficients": {}})
        own["second"] = _single(where, "second", named)
    fitted = {key: estimator.fitted_to(system.coefficients) for key, estimator in own.items()}
    wrapper = _with_quality(where, table, fitted["estimator"])
    space, start = _space(where, table, wrapper, space)
    if len(cases) > 1:
        space = dataclasses.replace(space, where=(*space.where, cases_are_legal))
    name = str(table["arch"].get("model", ""))
    names = (str(table.get("estimator", DEFAULT)), *([table["second"]] if "second" in own else []))
    asked = system, f"designs from {name}", isinstance(system, SiliconSystem)
    pairs = zip(names, fitted.values(), strict=True)
    trusted = [trust(of, estimator.innermost, *asked) for of, estimator in pairs]
    return DesignSpec(
        estimator=wrapper,
        second=fitted.get("second"),
        space=space,
        keeps=_keeps(where, table, wrapper),
        start=start,
        search=cast(SearchOptions, read_table(where, "search", table.get("search", {}), SEARCH)),
        feasible=feasible,
        model=name,
        formats={k: table["arch"][k] for k in ("quant", "kv_dtype") if k in table["arch"]},
        names=names,
        trusted=tuple(trusted),
        system=system.name,
        base=system,
        draws=read_draws(where, table["draws"]) if "draws" in table else None,
    )


def _with_free_cases(where: str, table: Table) -> Table:
    """The table with bounds in [[case]], and the [free] batch and degrees, as axes of each case."""
    if not table.get("case"):
        return table
    free = dict(table.get("free", {}))
    shared = {name: free.pop(name) for name in OF_CASES if name in free}
    cases: list[object] = []
    for i, case in enumerate(table["case"], 1):
        own = {**shared, **case} if is_table(case) else case
        for name in {*own} & {*OF_CASES} if is_table(own) else ():
            if is_list(own[name]):
                axis = _free_axis(where, f"case.{i}.{name}", name, own[name])
                own[name] = {"values": list(axis.steps)}
        cases.append(own)
    return {**table, "free": free, "case": cases}


def _space(
    where: str, table: Table, wrapper: QualityWrapper, space: Space
) -> tuple[Space, dict[str, float]]:
    """The space with the free names as axes, and the start on each of them."""
    # the wrapper already has the coefficients of the system
    arch, hardware = space.arch.architecture, space.hardware.tree
    zips, free = [list(z) for z in space.zips], table.get("free", {})
    axes = {re.sub(r"^estimator\.", "estimator.target.", k): x for k, x in space.axes.items()}
    named = {name: leaves_named(where, name, arch) for name in free}
    for name, leaves in named.items():
        axis = _free_axis(where, f"free.{name}", name, free[name])
        for leaf in leaves:
            if leaf in axes:
                raise InputError(where, f"free.{name}", leaf, "each leaf on one axis")
            axes[leaf] = axis
        if len(leaves) > 1:
            zips.append(list(leaves))
    if not axes:
        raise InputError(where, "free", "missing", "one name or more, such as width = [4096, 8192]")
    numbers = by_path(Point(wrapper, arch, hardware, space.workload, space.plan))
    for path in axes:
        if path not in numbers:
            raise InputError(where, "axis", path, f"a number of {path.split('.')[0]}")
    start = {path: float(numbers[path]) for path in axes}
    if table.get("case"):  # whose batch and degrees have no other start
        own = tuple(OF_THE_PLAN[name] for name in OF_CASES)
        start |= {
            k: float(np.clip(x, *_ends(axes[k]))) for k, x in start.items() if k.endswith(own)
        }
    start |= _start(where, table, arch, axes)
    for name, leaves in named.items():
        value, (low, high) = start[leaves[0]], _ends(axes[leaves[0]])
        if not low <= value <= high:
            ends = f"{low:g} to {high:g}"
            allowed = f"bounds that hold the start, {value:g}: {ends} do not (or another [start])"
            raise InputError(where, f"free.{name}", free[name], allowed)
    limits = (*space.where, *hardware_constraints(arch, tuple(axes)))
    if any(path.startswith("arch.") for path in axes):
        axes = {**dependent_axes(arch), **axes}
    return dataclasses.replace(
        space, arch=arch, hardware=hardware, axes=axes, zips=zips, where=limits
    ), start


def _single(where: str, field: str, loaded: One | list[One]) -> One:
    """The one estimator, model or system that is named.

    Raises:
        InputError: there are several.
    """
    if isinstance(loaded, list):
        raise InputError(where, field, f"{len(loaded)} of them", "one: a design has one start")
    return loaded


def _ends(axis: Axis) -> tuple[float, float]:
    return min(axis.steps), max(axis.steps)


def _free_axis(where: str, field: str, name: str, bounds: object) -> Axis:
    if is_table(bounds) and bounds:
        axis = axis_of(where, field, bounds)
        if not all(is_number(x) for x in axis.steps):
            raise InputError(where, field, bounds, "numbers")
        return axis
    numbers = bounds if is_list(bounds) and all(map(is_number, bounds)) else []
    if len(numbers) != 2 or not numbers[0] < numbers[1]:
        allowed = "[low, high], or an axis such as { values = [1, 2, 4] }"
        raise InputError(where, field, bounds, allowed)
    low, high = numbers
    try:
        return Axis.log(low, high, 65) if name == "tokens" else free_axis(name, low, high)
    except InputError as error:
        raise InputError(where, field, bounds, error.allowed) from None


def _with_quality(where: str, table: Table, inner: Estimator) -> QualityWrapper:
    quality: Body = table.get("quality", {})
    objective = read_table(where, "objective", table.get("objective", {}), OBJECTIVE)
    fields: dict[str, object] = {}
    if quality:
        name = quality.get("law")
        if not isinstance(name, str):
            raise InputError(where, "quality.law", name or "missing", "the name of a law")
        constants = {k: v for k, v in quality.items() if k not in ("law", *QUALITY)}
        fields["law"] = law(name, where, **constants)
        for key in QUALITY:
            if key in quality:
                fields[key] = value_of(QualityWrapper, key, quality[key], f"{where}: quality")
        if "tokens" not in quality and "tokens" not in table.get("free", {}):
            raise InputError(where, "quality.tokens", "missing", "training tokens, or free.tokens")
    if "pair" in objective:
        weight = objective.get("weight", 0.5)
        fields["pair"] = tuple(objective["pair"])
        fields["weight"] = value_of(QualityWrapper, "weight", weight, f"{where}: objective")
    return QualityWrapper.of(target=inner, **fields)


def _keeps(where: str, table: Table, wrapper: QualityWrapper) -> tuple[Best, ...]:
    objective, limits = table.get("objective", {}), table.get("limits", {})
    by = "score" if "pair" in objective else objective.get("best")
    if by is None:
        raise InputError(where, "objective.best", "missing", "a term, such as cost or speed")
    limits = read_table(where, "limits", limits, {}, POSITIVE)
    foreign = {"prefill": "tpot", "decode": "ttft"}.get(table.get("pool", ""))
    limits = {name: x for name, x in limits.items() if name != foreign}  # of the other pool
    along = read_table(where, "objective.along", objective.get("along", {}), {}, ALONG)
    if wrapper.law is None and {by, *limits, *along} & {*OF_QUALITY}:
        raise InputError(where, "quality", "missing", "a table [quality] with a law and tokens")
    for name, values in along.items():
        return tuple(Best(by, under={**limits, name: float(x)}) for x in values)
    return (Best(by, under=limits),)


def _start(where: str, table: Table, arch: Architecture, axes: dict[str, Axis]) -> dict[str, float]:
    """The values of ``[start]`` by leaf; names and paths are both understood."""
    values: dict[str, float] = {}
    for name, value in read_table(where, "start", table.get("start", {}), {}, NUMBER).items():
        named = (name,) if "." in name else leaves_named(where, name, arch)
        if name in OF_CASES:  # of every case
            named = tuple(leaf for leaf in axes if leaf.endswith(named)) or named
        for leaf in named:
            if leaf not in axes:
                raise InputError(where, f"start.{name}", value, f"a free leaf: {', '.join(axes)}")
            values[leaf] = float(value)
    return values
