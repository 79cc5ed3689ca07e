"""Reads a SPACE.toml: a space, an estimator and what to keep."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from infer_jax.sweeps.best import Best
from infer_jax.sweeps.constraint import Constraint
from infer_jax.sweeps.everything import Everything
from infer_jax.sweeps.histogram import Histogram, Quantiles
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.paths import is_list, is_table
from infer_jax.sweeps.reducers import Reducer
from infer_jax.sweeps.space import Space
from infer_jax.sweeps.topk import TopK

KEYS = ("estimator", "feasible", "arch", "hardware", "workload", "plan", "coefficients", "zip",
        "where", "keep")  # fmt: skip
Table = Mapping[str, Any]  # of a file: values of any kind, each checked where it is read
Body = dict[str, Any]  # a table that is taken apart
Check = Callable[[object], bool]
DEFAULT = "serving"  # the estimator where a file names none
AXES: dict[str, tuple[Callable[..., Axis], int, int | None]] = {  # maker, least, most numbers
    "values": (Axis.values, 1, None),
    "linear": (Axis.linear, 3, 3),
    "log": (Axis.log, 3, 3),
    "log2": (Axis.log2, 3, 3),
    "integers": (Axis.integers, 2, 3),
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
    known(where, "", table, KEYS)
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
    axes = {**arch_axes, **hardware_axes}
    work, plan = Workload.of(), Plan.of()
    parts: dict[str, Spec] = {}
    for name, base in (("workload", work), ("plan", plan)):
        plain, varied = _numbers(where, name, table.get(name, {}))
        parts[name] = base.replace(
            **{k: value_of(type(base), k, v, f"{where}: {name}") for k, v in plain.items()}
        )
        axes |= varied
    estimator, varied = _estimators(where, table, default)
    axes |= varied
    where_tables = table.get("where", [])
    if not is_list(where_tables):
        raise InputError(where, "where", where_tables, "[[where]] tables")
    zips = table.get("zip", [])
    if not (is_list(zips) and all(_texts(z) for z in zips)):
        raise InputError(where, "zip", zips, "lists of axes")
    feasible = table.get("feasible", "feasible")
    if not isinstance(feasible, str):
        raise InputError(where, "feasible", feasible, "the name of a term")
    space = Space(
        arch,
        hardware,
        parts["workload"],
        parts["plan"],
        axes=axes,
        zips=zips,
        where=tuple(Constraint.of(where, one) for one in where_tables),
    )
    return estimator, space, feasible


def known(where: str, table: str, given: Mapping[str, object], keys: Iterable[str]) -> None:
    """Raise InputError for a key that is none of ``keys``."""
    for key in given:
        if key not in keys:
            field = f"{table}.{key}" if table else key
            raise InputError(where, field, "an unknown key", ", ".join(keys))


def _texts(given: object) -> TypeGuard[list[str]]:
    return is_list(given) and bool(given) and all(isinstance(x, str) for x in given)


def _names(
    where: str, field: str, body: Body, one: str, many: str, every: Callable[[], Iterable[str]]
) -> str | list[str]:
    """One name, or a list of names; "all" means every name."""
    single, several = body.pop(one, None), body.pop(many, None)
    if several == "all":
        several = list(every())
    if isinstance(single, str) and several is None:
        return single
    if single is None and _texts(several):
        return several
    allowed = f"{one} = a name, or {many} = a list of names or 'all'"
    raise InputError(where, field, single or several or "missing", allowed)


def _arch(where: str, body: Body) -> tuple[Model | list[Model], dict[str, Axis]]:
    formats = {key: body.pop(key) for key in ("quant", "kv_dtype") if key in body}
    if not all(isinstance(x, str) for x in formats.values()):
        raise InputError(where, "arch", formats, "formats by name")
    names = _names(where, "arch", body, "model", "models", list_models)
    plain, axes = _numbers(where, "arch", body)
    axes |= {f"arch.{k}": Axis.values(v) for k, v in plain.items()}
    if isinstance(names, str):
        return load_model(names, **formats), axes
    return [load_model(name, **formats) for name in names], axes


def _hardware(where: str, body: Body) -> tuple[System | list[System], dict[str, Axis]]:
    names = _names(where, "hardware", body, "system", "systems", list_systems)
    plain, axes = _numbers(where, "hardware", body)
    axes |= {f"hardware.{k}": Axis.values(v) for k, v in plain.items()}
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
    if not (isinstance(names, str) or _texts(names)):
        raise InputError(where, "estimator", names, "a name, or a list of names")
    plain, axes = _numbers(where, "estimator", table.get("coefficients", {}))
    axes |= {f"estimator.{k}": Axis.values(v) for k, v in plain.items()}
    # coefficients of systems are added when the space is divided into groups
    estimators = [variant(n).make() for n in ([names] if isinstance(names, str) else names)]
    return (estimators[0] if isinstance(names, str) else estimators), axes


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
    maker, least, most = AXES[kind]
    numbers = given if is_list(given) else []
    good = len(numbers) >= least and (not most or len(numbers) <= most)
    if not good or not all(isinstance(x, int | float | str) for x in numbers):
        if given == []:
            raise InputError(where, path, "empty", "one value or more")
        wanted = "[low, high, count]" if most == least else "[low, high] or [low, high, step]"
        raise InputError(where, f"{path}.{kind}", given, wanted if most else "a list of numbers")
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
    maker, options, fits = REDUCERS[kinds[0]]
    given = {k: v for k, v in table.items() if k != kinds[0]}
    known(where, "keep", given, options)
    if not fits(table[kinds[0]]):
        raise InputError(where, f"keep.{kinds[0]}", table[kinds[0]], "names of terms, or a count")
    for key, value in given.items():
        fits, wanted = OPTIONS[key]
        if not fits(value):
            raise InputError(where, f"keep.{key}", value, wanted)
    given: Body = {k: tuple(v) if is_list(v) else v for k, v in given.items()}
    try:
        return maker(table[kinds[0]], **given)
    except InputError as error:
        raise InputError(where, f"keep.{error.field}", error.value, error.allowed) from None
    except (TypeError, ValueError):
        raise InputError(where, "keep", given, f"options of {kinds[0]}") from None


def _text(given: object) -> bool:
    return isinstance(given, str)


def _number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and abs(given) < 1e300


def _all_numbers(given: object) -> bool:
    return is_list(given) and all(_number(x) for x in given)


def _limits(given: object) -> bool:
    return is_table(given) and all(_number(x) for x in given.values())


def _whole(given: object) -> bool:
    return type(given) is int


def _pareto(names: Sequence[str], **options: Any) -> Pareto:
    return Pareto(*names, **options)


def _everything(names: Sequence[str]) -> Everything:
    return Everything(*names)


# by key of a [keep] table: the constructor, its options, and a check of the value
REDUCERS: dict[str, tuple[Callable[..., Reducer], tuple[str, ...], Check]] = {
    "pareto": (_pareto, ("per", "epsilon"), _texts),
    "top": (TopK, ("by", "per"), _whole),
    "best": (Best, ("under", "misses", "per"), _text),
    "histogram": (Histogram, ("edges",), _text),
    "quantiles": (Quantiles, ("q",), _text),
    "everything": (_everything, (), _texts),
}
# by option of a [keep] table: a check of its value, and the allowed values in words
OPTIONS: dict[str, tuple[Check, str]] = {
    "per": (lambda x: _text(x) or _texts(x), "an axis, or a list of axes"),
    "by": (_text, "the name of a term"),
    "epsilon": (_number, "a share from 0 to below 1"),
    "under": (_limits, "a table of limits such as { ttft = 0.3 }"),
    "misses": (lambda x: type(x) is int and 1 <= x <= 1000, "a whole number from 1 to 1000"),
    "edges": (_all_numbers, "a list of numbers"),
    "q": (_all_numbers, "a list of shares from 0 to 1"),
}
