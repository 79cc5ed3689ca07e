"""Reads a SPACE.toml: a space, an estimator and what to keep.

A table of a file is declared by its keys: what the value of each may be, as a check and in words.
``read_table`` refuses every other key and value; the files of a design are read by it, too.
"""

import dataclasses
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from infer_jax.catalog import Model, System, list_models, list_systems, load_model, load_system
from infer_jax.catalog.foreign import read_toml
from infer_jax.catalog.sense import sensible_changes
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.estimators.registry import variant
from infer_jax.silicon.chips import load_silicon
from infer_jax.silicon.on_silicon import COUNTED, OnSilicon
from infer_jax.specs import Plan, Spec, Workload, value_of
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.constraint import FORMS, RELATIONS, Constraint
from infer_jax.sweeps.histogram import Histogram, Quantiles
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.paths import is_list, is_names, is_table
from infer_jax.sweeps.reducers import Best, Everything, Reducer, TopK
from infer_jax.sweeps.space import Space

Table = Mapping[str, Any]  # of a file: values of any kind, each checked where it is read
Body = dict[str, Any]  # a table that is taken apart
Item = TypeVar("Item")
DEFAULT = "serving"  # the estimator where a file names none
MAX_NUMBER = 1e300  # no quantity is larger, and every float below it is finite


@dataclasses.dataclass(frozen=True)
class Requirement:
    """What the value of a key may be."""

    fits: Callable[[object], bool]
    allowed: str  # in words


def is_number(x: object) -> bool:
    """Whether it is a number of a quantity: finite, and no truth value."""
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < MAX_NUMBER


def is_text(x: object) -> bool:
    """Whether it is a text."""
    return isinstance(x, str)


def whole_number(low: int, high: int) -> Requirement:
    """A whole number between two, both included."""
    words = f"a whole number from {low} to {high:,}"
    return Requirement(lambda x: type(x) is int and low <= x <= high, words)


def table_of(*names: str) -> dict[str, Requirement]:
    """Tables of these names."""
    return {name: Requirement(is_table, f"a table [{name}]") for name in names}


NUMBER = Requirement(is_number, "a number")
POSITIVE = Requirement(
    lambda x: isinstance(x, int | float) and is_number(x) and x > 0, "a number above 0"
)
TERM = Requirement(is_text, "the name of a term")
TERMS = Requirement(is_names, "a list of names of terms")
LIMITS = Requirement(
    lambda x: is_table(x) and all(is_number(limit) for limit in x.values()),
    "a table of limits such as { ttft = 0.3 }",
)
SHARED = {  # keys of a file of a sweep and of a design
    "estimator": Requirement(lambda x: is_text(x) or _is_filled(x), "a name, or a list of names"),
    "feasible": TERM,
    **table_of("arch", "hardware", "chip", "workload", "plan", "coefficients"),
    "zip": Requirement(
        lambda x: is_list(x) and all(_is_filled(names) for names in x), "lists of axes"
    ),
    "where": Requirement(is_list, "[[where]] tables"),
}
# by kind of axis: its constructor, how many numbers it takes, and those in words
AXES: dict[str, tuple[Callable[..., Axis], range, str]] = {
    "values": (Axis.values, range(1, 2**63), "a list of numbers"),
    "linear": (Axis.linear, range(3, 4), "[low, high, count]"),
    "log": (Axis.log, range(3, 4), "[low, high, count]"),
    "log2": (Axis.log2, range(3, 4), "[low, high, count]"),
    "integers": (Axis.integers, range(2, 4), "[low, high] or [low, high, step]"),
}
CONSTRAINT = {
    **dict.fromkeys(FORMS[:3], Requirement(is_names, "a list of names")),
    "value": Requirement(is_text, "a name"),
    **dict.fromkeys(
        RELATIONS,
        Requirement(lambda x: is_text(x) or type(x) in (int, float), "a number, or a name"),
    ),
}
PER = {"per": Requirement(lambda x: is_text(x) or is_names(x), "an axis, or a list of axes")}
NUMBERS = Requirement(lambda x: is_list(x) and all(map(is_number, x)), "a list of numbers")
# by key of a [keep] table: the constructor, its value, and its options
REDUCERS: dict[str, tuple[Callable[..., Reducer], Requirement, dict[str, Requirement]]] = {
    "pareto": (Pareto, TERMS, {**PER, "epsilon": NUMBER}),
    "top": (TopK, Requirement(lambda x: type(x) is int, "a count"), {"by": TERM, **PER}),
    "best": (Best, TERM, {"under": LIMITS, "misses": whole_number(1, 1000), **PER}),
    "histogram": (Histogram, TERM, {"edges": NUMBERS}),
    "quantiles": (Quantiles, TERM, {"q": NUMBERS}),
    "everything": (Everything, TERMS, {}),
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
    table = read_table(where, "", table, {**SHARED, **table_of("keep")})
    if keep is None and "keep" not in table:
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
    if "arch" not in table:
        raise InputError(where, "arch", "missing", "a table [arch]")
    if ("hardware" in table) == ("chip" in table):
        wrong = "both [hardware] and [chip]" if "chip" in table else "missing"
        allowed = "a table [hardware], or [chip] for silicon"
        raise InputError(where, "hardware", wrong, allowed)
    # coefficients of systems are added when the space is divided into groups
    names: str | list[str] = table.get("estimator", default)
    estimators = _loaded(names, lambda name: _estimator(where, name, table.get("chip")))
    models, axes = _models(where, dict(table["arch"]))
    if "chip" in table:
        systems, varied = _silicon(where, dict(table["chip"]))
    else:
        systems, varied = _systems(where, dict(table["hardware"]))
    axes |= varied | _axes(where, "estimator", table.get("coefficients", {}))
    parts: dict[str, Spec] = {"workload": Workload.of(), "plan": Plan.of()}
    for name, base in parts.items():
        plain, varied = _numbers(where, name, table.get(name, {}))
        values = {k: value_of(type(base), k, v, f"{where}: {name}") for k, v in plain.items()}
        parts[name] = base.replace(**values)
        axes |= varied
    limits = tuple(_constraint(where, x) for x in table.get("where", ()))
    space = Space(models, systems, **parts, axes=axes, zips=table.get("zip", ()), where=limits)
    return estimators, space, table.get("feasible", "feasible")


def read_table(
    where: str,
    head: str,
    table: object,
    kinds: Mapping[str, Requirement],
    others: Requirement | None = None,
) -> Body:
    """A copy of a table whose values fit the requirements of their keys.

    ``others`` is that of the keys without one of their own, which are refused where it is None.

    Raises:
        InputError: no table, an unknown key, or a value that does not fit.
    """
    if not is_table(table):
        raise InputError(where, head, table, f"a table [{head}]")
    for key, value in table.items():
        field = f"{head}.{key}" if head else key
        kind = kinds.get(key, others)
        if kind is None:
            raise InputError(where, field, "an unknown key", ", ".join(kinds))
        if not kind.fits(value):
            raise InputError(where, field, value, kind.allowed)
    return dict(table)


@contextmanager
def problems_of(where: str, head: str) -> Generator[None]:
    """Problems within are of the table ``head`` of the file ``where``."""
    try:
        yield
    except InputError as error:
        raise InputError(where, f"{head}.{error.field}", error.value, error.allowed) from None


def _is_filled(value: object) -> bool:
    return is_names(value) and bool(value)


def _loaded(names: str | list[str], load: Callable[[str], Item]) -> Item | list[Item]:
    """What a name or each of several names stands for."""
    return load(names) if isinstance(names, str) else [load(name) for name in names]


def _names(
    where: str, part: str, noun: str, body: Body, available: Callable[[], Iterable[str]]
) -> str | list[str]:
    """One name (``model = ``), or a list of names (``models = ``); "all" means every name."""
    name, several = body.pop(noun, None), body.pop(f"{noun}s", None)
    if several == "all":
        several = list(available())
    if isinstance(name, str) and several is None:
        return name
    if name is None and is_names(several) and several:
        return several
    allowed = f"{noun} = a name, or {noun}s = a list of names or 'all'"
    raise InputError(where, part, name or several or "missing", allowed)


def _models(where: str, body: Body) -> tuple[Model | list[Model], dict[str, Axis]]:
    formats = {key: body.pop(key) for key in ("quant", "kv_dtype") if key in body}
    if not all(isinstance(x, str) for x in formats.values()):
        raise InputError(where, "arch", formats, "formats by name")
    names = _names(where, "arch", "model", body, list_models)
    axes = _axes(where, "arch", body)
    return _loaded(names, partial(load_model, **formats)), axes


def _systems(where: str, body: Body) -> tuple[System | list[System], dict[str, Axis]]:
    names = _names(where, "hardware", "system", body, list_systems)
    axes = _axes(where, "hardware", body)
    systems = _loaded(names, load_system)
    steps = {
        path.removeprefix("hardware."): [x for x in axis.steps if isinstance(x, int | float)]
        for path, axis in axes.items()
    }
    for system in systems if isinstance(systems, list) else [systems]:
        sensible_changes(where, "hardware", system.hardware, steps)
    return systems, axes


def _silicon(where: str, body: Body) -> tuple[System, dict[str, Axis]]:
    """The silicon of a [chip] table, and axes over its numbers."""
    name = body.pop("silicon", None)
    body.pop("counted", None)
    if not isinstance(name, str):
        allowed = "a chip by name, or a file that describes one"
        raise InputError(where, "chip.silicon", name or "missing", allowed)
    return load_silicon(name), _axes(where, "hardware", body)


def _estimator(where: str, name: str, chip: Table | None) -> Estimator:
    """An estimator by its name; of a [chip] table one that takes silicon."""
    made = variant(name).make()
    if chip is None:
        return made
    counted = chip.get("counted", COUNTED[0])
    if counted not in COUNTED:
        raise InputError(where, "chip.counted", counted, ", ".join(COUNTED))
    return OnSilicon.of(target=made, counted=counted)


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
    [(kind, values), *rest] = table.items()
    if rest or kind not in AXES:
        raise InputError(where, path, list(table), f"one of {', '.join(AXES)}")
    maker, counts, allowed = AXES[kind]
    numbers = values if is_list(values) else []
    if values == []:
        raise InputError(where, path, "empty", "one value or more")
    if len(numbers) not in counts or not all(isinstance(x, int | float | str) for x in numbers):
        raise InputError(where, f"{path}.{kind}", values, allowed)
    try:
        return maker(*numbers)
    except InputError as error:
        raise InputError(where, path, error.value, error.allowed) from None
    except TypeError:
        raise InputError(where, path, values, "numbers") from None


def _constraint(where: str, table: object) -> Constraint:
    fields: Any = read_table(where, "where", table, CONSTRAINT)
    fields = {k: tuple(v) if is_list(v) else v for k, v in fields.items()}
    with problems_of(where, "where"):
        return Constraint(**fields)


def _keep(where: str, table: Table) -> Reducer:
    """The reducer of a [keep] table: the one key that names it, and its options."""
    reducers = [key for key in table if key in REDUCERS]
    if len(reducers) != 1:
        raise InputError(where, "keep", list(table), f"exactly one of {', '.join(REDUCERS)}")
    [name] = reducers
    maker, value, options = REDUCERS[name]
    body = read_table(where, "keep", table, {name: value, **options})
    body = {k: tuple(v) if is_list(v) else v for k, v in body.items()}
    first = body.pop(name)
    with problems_of(where, "keep"):
        try:
            return maker(*(first if isinstance(first, tuple) else [first]), **body)
        except TypeError:
            allowed = f"with {', '.join(options)}"
            raise InputError("", name, "without its options", allowed) from None
