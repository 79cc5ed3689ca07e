"""Reads a SPACE.toml: a space, an estimator and what to keep."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from infer_jax.catalog import Model, System, list_models, list_systems, load_model, load_system
from infer_jax.catalog.foreign import read_toml
from infer_jax.catalog.sense import sensible_changes
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.estimators.registry import variant
from infer_jax.specs import Plan, Spec, Workload, value_of
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.constraint import Constraint
from infer_jax.sweeps.histogram import Histogram, Quantiles
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.paths import is_list, is_names, is_table
from infer_jax.sweeps.reducers import Best, Everything, Reducer, TopK
from infer_jax.sweeps.space import Space

KEYS = ("estimator", "feasible", "arch", "hardware", "workload", "plan", "coefficients", "zip",
        "where", "keep")  # fmt: skip
Table = Mapping[str, Any]  # of a file: values of any kind, each checked where it is read
Body = dict[str, Any]  # a table that is taken apart
Check = Callable[[object], bool]
DEFAULT = "serving"  # the estimator where a file names none
# by kind: its constructor, how many numbers it takes, and those in words
AXES: dict[str, tuple[Callable[..., Axis], range, str]] = {
    "values": (Axis.values, range(1, 2**63), "a list of numbers"),
    "linear": (Axis.linear, range(3, 4), "[low, high, count]"),
    "log": (Axis.log, range(3, 4), "[low, high, count]"),
    "log2": (Axis.log2, range(3, 4), "[low, high, count]"),
    "integers": (Axis.integers, range(2, 4), "[low, high] or [low, high, step]"),
}


class SweepFile(NamedTuple):
    """A sweep as a file describes it."""

    estimator: Estimator | list[Estimator]
    space: Space
    keep: Reducer
    feasible: str
    names: tuple[str, ...]  # of the estimators


def load_space(path: str | Path, keep: Reducer | None = None) -> SweepFile:
    """The sweep of a file; ``keep`` in place of what the file keeps.

    Raises:
        InputError: an unreadable file, an unknown key, model, system or estimator, an axis or
            a constraint of the wrong form.
    """
    return space_of(str(path), read_toml(path), keep)


def space_of(where: str, table: Table, keep: Reducer | None = None) -> SweepFile:
    """The sweep of the tables of a file; ``keep`` in place of what they keep."""
    check_keys(where, "", table, KEYS)
    if keep is None and not is_table(table.get("keep")):
        raise InputError(where, "keep", "missing", "a table [keep]")
    estimator, space, feasible = read_space(where, table)
    names = table.get("estimator", DEFAULT)
    names = (names,) if isinstance(names, str) else tuple(names)
    return SweepFile(estimator, space, keep or _keep(where, table["keep"]), feasible, names)


def read_space(
    where: str, table: Table, default: str = DEFAULT
) -> tuple[Estimator | list[Estimator], Space, str]:
    """(estimator, space, the limits that make a point feasible) of the tables of a file.

    ``default`` is the estimator where the file names none.

    Raises:
        InputError: as ``load_space``.
    """
    for key in ("arch", "hardware"):
        if not is_table(table.get(key)):
            raise InputError(where, key, "missing", f"a table [{key}]")
    arch, arch_axes = _arch(where, dict(table["arch"]))
    hardware, hardware_axes = _hardware(where, dict(table["hardware"]))
    estimator, axes = _estimators(where, table, default)
    axes |= arch_axes | hardware_axes
    parts: dict[str, Spec] = {"workload": Workload.of(), "plan": Plan.of()}
    for name, base in parts.items():
        plain, varied = _numbers(where, name, table.get(name, {}))
        values = {k: value_of(type(base), k, v, f"{where}: {name}") for k, v in plain.items()}
        parts[name] = base.replace(**values)
        axes |= varied
    where_tables = table.get("where", [])
    if not is_list(where_tables):
        raise InputError(where, "where", where_tables, "[[where]] tables")
    zips = table.get("zip", [])
    if not (is_list(zips) and all(_is_names(z) for z in zips)):
        raise InputError(where, "zip", zips, "lists of axes")
    feasible = table.get("feasible", "feasible")
    if not isinstance(feasible, str):
        raise InputError(where, "feasible", feasible, "the name of a term")
    constraints = tuple(Constraint.of(where, each) for each in where_tables)
    space = Space(arch, hardware, **parts, axes=axes, zips=zips, where=constraints)
    return estimator, space, feasible


def check_keys(where: str, table: str, body: Mapping[str, object], keys: Iterable[str]) -> None:
    """Raise InputError for a key that is none of ``keys``."""
    for key in body:
        if key not in keys:
            field = f"{table}.{key}" if table else key
            raise InputError(where, field, "an unknown key", ", ".join(keys))


def _is_names(value: object) -> TypeGuard[list[str]]:
    return is_names(value) and bool(value)


def _names(
    where: str, part: str, noun: str, body: Body, available: Callable[[], Iterable[str]]
) -> str | list[str]:
    """One name (``model = ``), or a list of names (``models = ``); "all" means every name."""
    name, several = body.pop(noun, None), body.pop(f"{noun}s", None)
    if several == "all":
        several = list(available())
    if isinstance(name, str) and several is None:
        return name
    if name is None and _is_names(several):
        return several
    allowed = f"{noun} = a name, or {noun}s = a list of names or 'all'"
    raise InputError(where, part, name or several or "missing", allowed)


def _arch(where: str, body: Body) -> tuple[Model | list[Model], dict[str, Axis]]:
    formats = {key: body.pop(key) for key in ("quant", "kv_dtype") if key in body}
    if not all(isinstance(x, str) for x in formats.values()):
        raise InputError(where, "arch", formats, "formats by name")
    names = _names(where, "arch", "model", body, list_models)
    axes = _axes(where, "arch", body)
    if isinstance(names, str):
        return load_model(names, **formats), axes
    return [load_model(name, **formats) for name in names], axes


def _hardware(where: str, body: Body) -> tuple[System | list[System], dict[str, Axis]]:
    names = _names(where, "hardware", "system", body, list_systems)
    axes = _axes(where, "hardware", body)
    systems = [load_system(n) for n in ([names] if isinstance(names, str) else names)]
    steps = {
        path.removeprefix("hardware."): [x for x in axis.steps if isinstance(x, int | float)]
        for path, axis in axes.items()
    }
    for system in systems:
        sensible_changes(where, "hardware", system.hardware, steps)
    return (systems[0] if isinstance(names, str) else systems), axes


def _estimators(
    where: str, table: Table, default: str
) -> tuple[Estimator | list[Estimator], dict[str, Axis]]:
    names = table.get("estimator", default)
    if not (isinstance(names, str) or _is_names(names)):
        raise InputError(where, "estimator", names, "a name, or a list of names")
    axes = _axes(where, "estimator", table.get("coefficients", {}))
    # coefficients of systems are added when the space is divided into groups
    estimators = [variant(n).make() for n in ([names] if isinstance(names, str) else names)]
    return (estimators[0] if isinstance(names, str) else estimators), axes


def _axes(where: str, head: str, body: object) -> dict[str, Axis]:
    """The axes of a part; a plain number is one of a single value."""
    plain, axes = _numbers(where, head, body)
    return axes | {f"{head}.{k}": Axis.values(v) for k, v in plain.items()}


def _numbers(where: str, head: str, body: object) -> tuple[Body, dict[str, Axis]]:
    """Plain numbers by field, and axes by path; nested tables are parts."""
    if not is_table(body):
        raise InputError(where, head, body, f"a table [{head}]")
    plain: Body = {}
    axes: dict[str, Axis] = {}
    for key, value in body.items():
        path = f"{head}.{key}"
        if is_table(value) and not value.keys() & AXES:
            inner, varied = _numbers(where, path, value)
            plain |= {f"{key}.{k}": v for k, v in inner.items()}
            axes |= varied
        elif is_table(value):
            axes[path] = axis_of(where, path, value)
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            plain[key] = value
        else:
            raise InputError(where, path, value, "a number, or a table such as { values = [1, 2] }")
    return plain, axes


def axis_of(where: str, path: str, table: Table) -> Axis:
    """The axis of a table such as ``{ integers = [1, 8] }``."""
    [(kind, given), *rest] = table.items()
    if rest or kind not in AXES:
        raise InputError(where, path, list(table), f"one of {', '.join(AXES)}")
    maker, counts, allowed = AXES[kind]
    numbers = given if is_list(given) else []
    good = len(numbers) in counts and all(isinstance(x, int | float | str) for x in numbers)
    if given == []:
        raise InputError(where, path, "empty", "one value or more")
    if not good:
        raise InputError(where, f"{path}.{kind}", given, allowed)
    try:
        return maker(*numbers)
    except InputError as error:
        raise InputError(where, path, error.value, error.allowed) from None
    except TypeError:
        raise InputError(where, path, given, "numbers") from None


def _keep(where: str, table: Table) -> Reducer:
    """The reducer of a [keep] table: the one key that names it, and its options."""
    kinds = [key for key in table if key in REDUCERS]
    if len(kinds) != 1:
        raise InputError(where, "keep", list(table), f"exactly one of {', '.join(REDUCERS)}")
    (kind,) = kinds
    maker, options, fits = REDUCERS[kind]
    more = {k: v for k, v in table.items() if k != kind}
    check_keys(where, "keep", more, options)
    if not fits(table[kind]):
        raise InputError(where, f"keep.{kind}", table[kind], "names of terms, or a count")
    for key, value in more.items():
        fits, allowed = OPTIONS[key]
        if not fits(value):
            raise InputError(where, f"keep.{key}", value, allowed)
    more: Body = {k: tuple(v) if is_list(v) else v for k, v in more.items()}
    values = table[kind] if is_list(table[kind]) else [table[kind]]
    try:
        return maker(*values, **more)
    except InputError as error:
        raise InputError(where, f"keep.{error.field}", error.value, error.allowed) from None
    except (TypeError, ValueError):
        raise InputError(where, "keep", more, f"options of {kind}") from None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return type(value) is int


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_numbers(value: object) -> bool:
    return is_list(value) and all(_is_number(x) for x in value)


# by key of a [keep] table: the constructor, its options, and a check of the value
REDUCERS: dict[str, tuple[Callable[..., Reducer], tuple[str, ...], Check]] = {
    "pareto": (Pareto, ("per", "epsilon"), _is_names),
    "top": (TopK, ("by", "per"), _is_count),
    "best": (Best, ("under", "misses", "per"), _is_text),
    "histogram": (Histogram, ("edges",), _is_text),
    "quantiles": (Quantiles, ("q",), _is_text),
    "everything": (Everything, (), _is_names),
}
# by option of a [keep] table: a check of its value, and the allowed values in words
OPTIONS: dict[str, tuple[Check, str]] = {
    "per": (lambda x: _is_text(x) or _is_names(x), "an axis, or a list of axes"),
    "by": (_is_text, "the name of a term"),
    "epsilon": (_is_number, "a share from 0 to below 1"),
    "under": (
        lambda x: is_table(x) and _is_numbers(list(x.values())),
        "a table of limits such as { ttft = 0.3 }",
    ),
    "misses": (lambda x: type(x) is int and 1 <= x <= 1000, "a whole number from 1 to 1000"),
    "edges": (_is_numbers, "a list of numbers"),
    "q": (_is_numbers, "a list of shares from 0 to 1"),
}
