"""Reads a SPEC.toml: a sweep's space with free names, an objective and limits.

The tables of a sweep's file mean the same here; ``[free]`` adds axes by the names designers use,
``[objective]`` and ``[limits]`` stand where a sweep keeps rows, ``[quality]`` predicts a loss.
"""

import dataclasses
from pathlib import Path
from typing import TypeVar, cast

from infer_jax.catalog.foreign import read_toml
from infer_jax.design.design import MAX_RESTARTS, MAX_STEPS, SearchOptions
from infer_jax.design.names import dependent_axes, free_axis, hardware_constraints, leaves_named
from infer_jax.design.quality import law
from infer_jax.design.quality_wrapper import QualityWrapper
from infer_jax.design.violations import start_of
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator, Trust, trust
from infer_jax.specs import Architecture, value_of
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.paths import Point
from infer_jax.sweeps.reducers import Best
from infer_jax.sweeps.space import Space
from infer_jax.sweeps.toml import Body, Table, axis_of, check_keys, read_space

KEYS = ("estimator", "second", "feasible", "arch", "hardware", "workload", "plan", "coefficients",
        "zip", "where", "free", "objective", "limits", "quality", "start", "search")  # fmt: skip
DEFAULT = "economics.planned"  # the estimator where a file names none
# type and largest value: a restart takes seconds, a step milliseconds
SEARCH: dict[str, tuple[type, int]] = {
    "restarts": (int, MAX_RESTARTS), "steps": (int, MAX_STEPS), "seed": (int, 2**63 - 1),
    "method": (str, 0),
}  # fmt: skip
QUALITY = ("law", "tokens", "served", "utilisation")
MAX_NUMBER = 1e300  # no quantity is larger, and every float below it is finite
OF_QUALITY = ("loss", "lifetime", "training")
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


def load_spec(path: str | Path) -> DesignSpec:
    """The design problem of a file.

    Raises:
        InputError: as a sweep's file; a name the model has not, an unknown term or law, a
            constant of a law that is missing.
    """
    return spec_of(str(path), read_toml(path))


def spec_of(where: str, table: Table) -> DesignSpec:
    """The design problem of the tables of a file."""
    check_keys(where, "", table, KEYS)
    estimators, space, feasible = read_space(where, table, DEFAULT)
    inner = _single(where, "estimator", estimators)
    for field, given in (("arch", space.arch), ("hardware", space.hardware)):
        _single(where, field, given)
    arch = space.arch.architecture
    system = space.hardware
    wrapper = _with_quality(where, table, inner.fitted_to(system.coefficients))
    axes = dict(space.axes)
    zips = [list(z) for z in space.zips]
    free = _table(where, table, "free")
    for name, given in free.items():
        leaves = leaves_named(where, name, arch)
        axis = _free(where, name, given)
        for leaf in leaves:
            if leaf in axes:
                raise InputError(where, f"free.{name}", leaf, "each leaf on one axis")
            axes[leaf] = axis
        if len(leaves) > 1:
            zips.append(list(leaves))
    if not axes:
        raise InputError(where, "free", "missing", "one name or more, such as width = [4096, 8192]")
    wanted = tuple(axes)
    if any(path.startswith("arch.") for path in wanted):
        axes |= {k: v for k, v in dependent_axes(arch).items() if k not in axes}
    where_all = (*space.where, *hardware_constraints(arch, wanted))
    base = Point(wrapper, arch, system.hardware, space.workload, space.plan)
    given = _start(where, table, arch, wanted)
    plain = dataclasses.replace(space, axes={k: v for k, v in axes.items() if k in wanted})
    start = start_of(base, plain) | given
    for name, bounds in free.items():
        leaf = leaves_named(where, name, arch)[0]
        value, steps = start[leaf], axes[leaf].steps
        if not min(steps) <= value <= max(steps):
            ends = f"{min(steps):g} to {max(steps):g}"
            allowed = f"bounds that hold the start, {value:g}: {ends} do not (or another [start])"
            raise InputError(where, f"free.{name}", bounds, allowed)
    # the estimator already has the system's coefficients
    full = dataclasses.replace(
        space, arch=arch, hardware=system.hardware, axes=axes, zips=zips, where=where_all
    )
    keeps = _keeps(where, table, wrapper)
    second = table.get("second")
    other: Estimator | None = None
    if second is not None:
        named, *_ = read_space(where, {**table, "estimator": second, "coefficients": {}})
        other = _single(where, "second", named).fitted_to(system.coefficients)
    formats = {k: table["arch"][k] for k in ("quant", "kv_dtype") if k in table["arch"]}
    name = str(table["arch"].get("model", ""))
    search = _search(where, table)
    names = (str(table.get("estimator", DEFAULT)), *([] if second is None else [str(second)]))
    both = [inner.fitted_to(system.coefficients), *([] if other is None else [other])]
    own = f"designs from {name}"
    trusted = tuple(trust(n, one, system, own) for n, one in zip(names, both, strict=True))
    fields = (wrapper, other, full, keeps, start, search, feasible, name, formats, names, trusted)
    return DesignSpec(*fields, system.name)


def _single(where: str, field: str, given: One | list[One]) -> One:
    """The one estimator, model or system that is named.

    Raises:
        InputError: there are several.
    """
    if isinstance(given, list):
        raise InputError(where, field, f"{len(given)} of them", "one: a design has one start")
    return given


def _table(where: str, table: Table, name: str) -> Body:
    given = table.get(name, {})
    if not isinstance(given, dict):
        raise InputError(where, name, given, f"a table [{name}]")
    return dict(given)


def _free(where: str, name: str, given: object) -> Axis:
    if isinstance(given, dict) and given:
        axis = axis_of(where, f"free.{name}", given)
        if not all(_number(x) for x in axis.steps):
            raise InputError(where, f"free.{name}", given, "numbers")
        return axis
    pair = isinstance(given, list) and len(given) == 2 and all(_number(x) for x in given)
    ends = given if isinstance(given, list) and pair else []
    if not ends or not ends[0] < ends[1]:
        allowed = "[low, high], or an axis such as { values = [1, 2, 4] }"
        raise InputError(where, f"free.{name}", given, allowed)
    try:
        low, high = ends
        return Axis.log(low, high, 65) if name == "tokens" else free_axis(name, low, high)
    except InputError as error:
        raise InputError(where, f"free.{name}", given, error.allowed) from None


def _number(x: object) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < MAX_NUMBER


def _with_quality(where: str, table: Table, inner: Estimator) -> QualityWrapper:
    quality = _table(where, table, "quality")
    objective = _table(where, table, "objective")
    fields: dict[str, object] = {}
    if quality:
        name = quality.get("law")
        if not isinstance(name, str):
            raise InputError(where, "quality.law", name or "missing", "the name of a law")
        constants = {k: v for k, v in quality.items() if k not in QUALITY}
        fields["law"] = law(name, where, **constants)
        for key in QUALITY[1:]:
            if key in quality:
                fields[key] = value_of(QualityWrapper, key, quality[key], f"{where}: quality")
        if "tokens" not in quality and "tokens" not in table.get("free", {}):
            raise InputError(where, "quality.tokens", "missing", "training tokens, or free.tokens")
    if "pair" in objective:
        pair = objective["pair"]
        terms = isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)
        if not terms or not set(pair) <= {"cost", "input_cost", "tpot", "ttft", "chips"}:
            raise InputError(
                where, "objective.pair", pair, "two of cost, input_cost, tpot, ttft, chips"
            )
        fields["pair"] = tuple(pair)
        fields["weight"] = value_of(
            QualityWrapper, "weight", objective.get("weight", 0.5), f"{where}: objective"
        )
    return QualityWrapper.of(target=inner, **fields)


def _keeps(where: str, table: Table, wrapper: QualityWrapper) -> tuple[Best, ...]:
    objective, limits = _table(where, table, "objective"), _table(where, table, "limits")
    check_keys(where, "objective", objective, ("best", "pair", "weight", "along"))
    by = "score" if "pair" in objective else objective.get("best")
    if not isinstance(by, str):
        raise InputError(where, "objective.best", by or "missing", "a term, such as cost or speed")
    along = objective.get("along", {})
    if not isinstance(along, dict) or len(along) > 1:
        raise InputError(where, "objective.along", along, "one limit and its values")
    for name, limit in limits.items():
        if not _number(limit) or limit <= 0:
            raise InputError(where, f"limits.{name}", limit, "a number above 0")
    asked = {by, *limits, *along}
    if wrapper.law is None and asked & set(OF_QUALITY):
        raise InputError(where, "quality", "missing", "a table [quality] with a law and tokens")
    if not along:
        return (Best(by, under=limits),)
    [(name, values)] = along.items()
    if not isinstance(values, list) or not values or not all(_number(x) and x > 0 for x in values):
        raise InputError(where, f"objective.along.{name}", values, "a list of numbers above 0")
    return tuple(Best(by, under={**limits, name: float(x)}) for x in values)


def _start(
    where: str, table: Table, arch: Architecture, wanted: tuple[str, ...]
) -> dict[str, float]:
    """The values of ``[start]`` by leaf; names and paths are both understood."""
    values: dict[str, float] = {}
    for name, value in _table(where, table, "start").items():
        leaves = (name,) if "." in name else leaves_named(where, name, arch)
        for leaf in leaves:
            if leaf not in wanted:
                raise InputError(where, f"start.{name}", value, f"a free leaf: {', '.join(wanted)}")
            if not _number(value):
                raise InputError(where, f"start.{name}", value, "a number")
            values[leaf] = float(value)
    return values


def _search(where: str, table: Table) -> SearchOptions:
    given = _table(where, table, "search")
    check_keys(where, "search", given, SEARCH)
    for key, value in given.items():
        kind, most = SEARCH[key]
        if type(value) is not kind:
            raise InputError(where, f"search.{key}", value, f"a {kind.__name__}")
        if (kind is int and not (key == "seed" or value >= 1)) or (most and value > most):
            raise InputError(where, f"search.{key}", value, f"a whole number from 1 to {most:,}")
    return cast(SearchOptions, given)
