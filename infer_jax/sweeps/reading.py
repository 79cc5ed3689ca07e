"""Tables of a file: what the value of each key may be, and axes over numbers.

A table is declared by its keys: what the value of each may be, as a check and in words.
``read_table`` refuses every other key and value; files of sweeps and of designs are read by it.
"""

import dataclasses
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeGuard

from infer_jax.catalog import load_model
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.silicon.mixture import Case, Mixture
from infer_jax.specs import Plan, Spec, Workload, value_of
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.paths import is_list, is_table

Table = Mapping[str, Any]  # of a file: values of any kind, each checked where it is read
Body = dict[str, Any]  # a table that is taken apart
MAX_NUMBER = 1e300  # no quantity is larger, and every float below it is finite


@dataclasses.dataclass(frozen=True)
class Requirement:
    """What the value of a key may be."""

    fits: Callable[[object], bool]
    allowed: str  # in words


def is_number(x: object) -> TypeGuard[float]:
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
POSITIVE = Requirement(lambda x: is_number(x) and x > 0, "a number above 0")
LEAST_ZERO = Requirement(lambda x: is_number(x) and x >= 0, "a number of at least 0")
# by kind of axis: its constructor, how many numbers it takes, and those in words
AXES: dict[str, tuple[Callable[..., Axis], range, str]] = {
    "values": (Axis.values, range(1, 2**63), "a list of numbers"),
    "linear": (Axis.linear, range(3, 4), "[low, high, count]"),
    "log": (Axis.log, range(3, 4), "[low, high, count]"),
    "log2": (Axis.log2, range(3, 4), "[low, high, count]"),
    "integers": (Axis.integers, range(2, 4), "[low, high] or [low, high, step]"),
}


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


def axes_of(where: str, head: str, body: object, counts: Collection[str] = ()) -> dict[str, Axis]:
    """The axes of a part; a plain number is one of a single value."""
    plain, axes = numbers_of(where, head, body, counts)
    return axes | {f"{head}.{k}": Axis.values(v) for k, v in plain.items()}


def numbers_of(
    where: str, head: str, body: object, counts: Collection[str] = ()
) -> tuple[Body, dict[str, Axis]]:
    """Plain numbers by field, and axes by path; nested tables are parts.

    ``counts``: paths of which ``[low, high]`` are all whole numbers between.
    """
    if not is_table(body):
        raise InputError(where, head, body, f"a table [{head}]")
    plain: Body = {}
    axes: dict[str, Axis] = {}
    for key, value in body.items():
        path = f"{head}.{key}"
        if is_list(value) and path in counts and len(value) == 2:
            value = {"integers": value}
        if is_table(value) and not value.keys() & AXES:
            inner, varied = numbers_of(where, path, value, counts)
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
    if values == []:
        raise InputError(where, path, "empty", "one value or more")
    plain = is_list(values) and all(isinstance(x, int | float | str) for x in values)
    if not plain or len(values) not in counts:
        raise InputError(where, f"{path}.{kind}", values, allowed)
    try:
        return maker(*values)
    except InputError as error:
        raise InputError(where, path, error.value, error.allowed) from None
    except TypeError:
        raise InputError(where, path, values, "numbers") from None


def requests_of(where: str, table: Table, of: str = "") -> tuple[Body, dict[str, Axis]]:
    """The workload and the plan of a table, and axes over their numbers."""
    parts: dict[str, Spec] = {"workload": Workload.of(), "plan": Plan.of()}
    axes: dict[str, Axis] = {}
    for name, base in parts.items():
        plain, varied = numbers_of(where, name, table.get(name, {}))
        values = {k: value_of(type(base), k, v, f"{where}: {of}{name}") for k, v in plain.items()}
        parts[name] = base.replace(**values)
        axes |= varied
    return parts, axes


FORMATS = ("quant", "kv_dtype")
AXIS = Requirement(
    lambda x: is_table(x) or LEAST_ZERO.fits(x),
    "a number above 0, or a table such as { log2 = [1, 64, 7] }",
)
# keys of a [[case]] by the table that the first case has them in
OF_CASE: dict[str, dict[str, Requirement]] = {
    "arch": dict.fromkeys(("model", *FORMATS), Requirement(is_text, "a name")),
    "workload": dict.fromkeys(("isl", "osl", "prefix", "batch"), AXIS),
    "plan": dict.fromkeys(("tp", "pp", "ep", "dp"), AXIS),
    "": dict.fromkeys(("requests", "prompts", "outputs", "ttft", "tpot"), LEAST_ZERO),
}


def divide_cases(where: str, table: Table) -> tuple[Table, list[Body]]:
    """The tables of the first [[case]], with its numbers in [arch], [workload] and [plan].

    And each [[case]] with what these tables have for all of them.

    Raises:
        InputError: a case with an unknown key or a value that does not fit.
    """
    kinds = {key: kind for keys in OF_CASE.values() for key, kind in keys.items()}
    shared = {head: table.get(head, {}) for head in OF_CASE if head}
    common = {k: v for head, x in shared.items() for k, v in _part(x, head).items()}
    cases: list[Body] = []
    for i, case in enumerate(table.get("case", ()), 1):
        cases.append({**common, **read_table(where, f"case.{i}", case, kinds)})
        if "model" not in cases[-1]:
            raise InputError(where, f"case.{i}.model", "missing", "a model by name, or [arch]")
    own = {head: {**x, **_part(cases[0], head)} for head, x in shared.items()} if cases else {}
    return {**table, **own}, cases


def _part(case: Table, head: str) -> Body:
    """What a case has of a table of the file."""
    return {k: case[k] for k in OF_CASE[head] if k in case}


def mixture_reader(
    where: str, table: Table, cases: list[Body]
) -> tuple[Callable[[Estimator], Estimator], dict[str, Axis]]:
    """What puts an estimator into a mixture of the cases, and the axes of all but the first."""
    if not cases and "pool" not in table:
        return (lambda made: made), {}
    head = "estimator.target.cases" if "chip" in table else "estimator.cases"
    others: list[Case] = []
    axes: dict[str, Axis] = {}
    for i, case in enumerate(cases[1:]):
        tables = {name: _part(case, name) for name in OF_CASE}
        parts, varied = requests_of(where, tables, f"case.{i + 2}: ")
        axes |= {f"{head}.{i}.{path}": axis for path, axis in varied.items()}
        arch, formats = None, tables["arch"]
        if formats != _part(cases[0], "arch"):
            with problems_of(where, f"case.{i + 2}"):
                arch = load_model(formats.pop("model"), **formats).architecture
        others.append(Case.of(arch=arch, **parts, **_weights(case)))
    first = _weights(cases[0]) if cases else {}
    own = {"cases": tuple(others), "pool": table.get("pool", ""), **first}
    return (lambda made: Mixture.of(target=made, **own)), axes


def _weights(case: Body) -> Body:
    """The weights and limits of a case; ``requests`` stands for prompts and outputs."""
    found = _part(case, "")
    both = found.pop("requests", 1.0)
    return {"prompts": both, "outputs": both, **found}
