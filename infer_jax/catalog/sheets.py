"""Reads the tables of a profile: every entry with its unit, bounds and source.

Names, units and bounds of hardware come from the declarations of the specs. Those of an
estimator's coefficients are known to the estimator alone; here only their units are read.
"""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any

from infer_jax.catalog import units
from infer_jax.catalog.measured_points import MeasuredPoint
from infer_jax.catalog.sense import check_bounds
from infer_jax.errors import InputError
from infer_jax.specs import Chip, Hardware, Spec, value_of

TEXTS = ("title", "released", "notes")
# tables of coefficients of the estimators that ship; calibrate writes the bands of one
ESTIMATORS = ("economics", "kernels", "offloading", "partitioning", "serving", "serving_bands")
INTERVAL = ("low", "high")  # of an entry: the ends of its 80 % interval
ENTRY = "a table { value = number, source = key of [sources] }"


@dataclasses.dataclass
class Sheet:
    """The content of a file, merged with its base: every number by its dotted field."""

    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)
    citations: dict[str, str] = dataclasses.field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    measured: tuple[MeasuredPoint, ...] = ()  # of the last file that has any
    unchecked: tuple[str, ...] = ()  # of the file that is being read


def take_fields(
    cls: type[Spec], body: dict[str, object], part: str, sheet: Sheet, where: str
) -> None:
    """Put the numbers of a table, whose names and units ``cls`` declares, into ``sheet``.

    Raises:
        InputError: an unknown key, a wrong unit, a value out of bounds, a missing source.
    """
    fields = {f.name: f.metadata for f in dataclasses.fields(cls) if "unit" in f.metadata}
    known = {
        key: (name, factor)
        for name, meta in fields.items()
        for key, factor in units.keys(name, meta["unit"]).items()
    }
    dot, seen = f"{part}." if part else "", set()
    for key, entry in body.items():
        if key not in known:
            raise _unknown(key, fields, list(known), dot, where)
        name, factor = known[key]
        if name in seen:
            raise InputError(where, dot + key, f"a second value of {name}", "one key for one field")
        seen.add(name)
        raw, citation = _number(entry, dot + key, sheet, where)
        try:
            value = float(value_of(cls, name, raw * factor, where))
        except InputError as error:
            raise InputError(where, dot + key, raw, error.allowed) from None
        if cls is Chip and value == 0.0:  # every estimator divides by these
            raise InputError(where, dot + key, raw, "a number above 0")
        unit = fields[name]["unit"]
        check_bounds(where, dot + key, dot + name, raw, unit, factor, sheet.unchecked)
        sheet.numbers[dot + name], sheet.citations[dot + name] = value, citation
        _keep_interval(entry, dot + name, factor, sheet)


def take_coefficients(body: dict[str, object], table: str, sheet: Sheet, where: str) -> None:
    """Put the coefficients of an estimator, in SI, into ``sheet``.

    A table within (``[serving.vllm]``) holds those of a part of it.

    Raises:
        InputError: a misspelt table of hardware, an unknown unit, no finite number, no source.
    """
    if misspelt := _misspelt(table):
        allowed = f"[{misspelt}], or the name of an estimator of yours that is less like it"
        raise InputError(where, f"[{table}]", "not a table of a profile", allowed)
    seen = set()
    for key, entry in body.items():
        for name in (*table.split("."), key):
            if not name.isidentifier():
                raise InputError(where, "a name", name, "letters, digits and underscores")
        if isinstance(entry, dict) and entry and all(isinstance(x, dict) for x in entry.values()):
            take_coefficients(entry, f"{table}.{key}", sheet, where)
            continue
        parts = units.split(key)
        if parts is None:
            rates = ", ".join(x for group in units.SUFFIXES.values() for x in group if "_per_" in x)
            raise InputError(
                where, f"{table}.{key}", "in an unknown unit", f"names ending in {rates}"
            )
        name, factor = parts
        if name in seen:
            raise InputError(where, f"{table}.{key}", f"a second {name}", "one key for one number")
        seen.add(name)
        raw, citation = _number(entry, f"{table}.{key}", sheet, where)
        if not math.isfinite(raw * factor):
            raise InputError(where, f"{table}.{key}", raw, "a finite number")
        field, at, unit = f"{table}.{name}", f"{table}.{key}", units.unit_of(key)
        check_bounds(where, at, field, raw, unit, factor, sheet.unchecked, fitted=True)
        sheet.numbers[field], sheet.citations[field] = raw * factor, citation
        _keep_interval(entry, field, factor, sheet)


def _misspelt(table: str) -> str:
    """The known table that a name resembles; "" for a known one, and for one of other estimators.

    A known name with a suffix (economics_mine) is the table of another estimator.
    """
    table = table.removesuffix("_bands")  # which stand in a table of their own
    if table in ESTIMATORS or "." in table:
        return ""
    parts = [f.name for f in dataclasses.fields(Hardware) if f.metadata["kind"] == "part"]
    near = difflib.get_close_matches(table[:80], [*parts, "sources", *ESTIMATORS], cutoff=0.75)
    return near[0] if near and not table.startswith(f"{near[0]}_") else ""


def _number(entry: object, field: str, sheet: Sheet, where: str) -> tuple[float, str]:
    """The value of one entry and the citation of its source."""
    if not isinstance(entry, dict) or not {"value", "source"} <= set(entry):
        raise InputError(where, field, short(entry), ENTRY)
    extra = sorted(set(entry) - {"value", "source", "note", *INTERVAL})
    if extra:
        allowed = "value, source, note, and low and high"
        raise InputError(where, f"{field}.{extra[0]}", "unknown", allowed)
    raw, source = entry["value"], entry["source"]
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise InputError(where, field, short(raw), "a number")
    if abs(raw) > 1e300:  # beyond any unit times any factor; integers of TOML are unbounded
        raise InputError(where, field, "too large", "a number below 1e300")
    if not isinstance(source, str) or source not in sheet.sources:
        allowed = ", ".join(sheet.sources) or "a key of [sources], which is empty"
        raise InputError(where, f"{field}.source", short(source), allowed)
    notes = [f"80 % interval {low:.4g} to {high:.4g}" for low, high in _ends(entry, field, where)]
    notes += [text_of(where, f"{field}.note", entry["note"])] if "note" in entry else []
    return float(raw), sheet.sources[source] + (f" ({'; '.join(notes)})" if notes else "")


def _ends(entry: Mapping[str, object], field: str, where: str) -> list[tuple[float, float]]:
    """Both ends of an entry's interval, in its own unit; none where it has no interval."""
    ends = [entry[name] for name in INTERVAL if name in entry]
    if not ends:
        return []
    known = [float(x) for x in ends if isinstance(x, int | float) and abs(x) <= 1e300]
    if len(known) < 2 or any(type(x) is bool for x in ends) or known[0] > known[1]:
        shown = ", ".join(short(x) for x in ends)
        raise InputError(where, f"{field}.low", shown, "low and high, two numbers in this order")
    return [(known[0], known[1])]


def _keep_interval(entry: object, field: str, factor: float, sheet: Sheet) -> None:
    """Keep a checked entry's interval in SI; with a new value the base's interval is dropped."""
    sheet.intervals.pop(field, None)
    if isinstance(entry, dict) and "low" in entry:
        sheet.intervals[field] = (factor * entry["low"], factor * entry["high"])


def _unknown(
    key: str, fields: Mapping[str, Mapping[str, Any]], known: list[str], dot: str, where: str
) -> InputError:
    """A known field in a wrong unit, a misspelt key, or neither."""
    owners = [name for name in fields if key == name or key.startswith(f"{name}_")]
    meant = difflib.get_close_matches(key[:80], known, n=1, cutoff=0.8)
    owner = max(owners, key=len, default="")
    if owners and not (
        meant and max((n for n in fields if meant[0].startswith(n)), key=len) != owner
    ):
        unit = fields[owner]["unit"]
        wrong = f"not in a unit of {owner} ({'a plain number' if unit == '1' else unit})"
        return InputError(where, dot + key, wrong, " or ".join(units.keys(owner, unit)))
    texts = [] if dot else [*TEXTS, "base", "sources", "unchecked", "measured"]
    near = difflib.get_close_matches(key[:80], [*known, *texts], n=1)
    allowed = f"did you mean {near[0]}? " if near else ""
    allowed += f"{', '.join(fields)}, each with its unit"
    return InputError(where, dot + key, "unknown", allowed)


def table_of(where: str, key: str, value: object) -> dict[str, object]:
    """``value`` where it is a table.

    Raises:
        InputError: it is not.
    """
    if not isinstance(value, dict):
        raise InputError(where, key, short(value), "a table")
    return value


def text_of(where: str, key: str, value: object) -> str:
    """``value`` where it is a text that is not empty.

    Raises:
        InputError: it is not.
    """
    if not isinstance(value, str) or not value.strip():
        raise InputError(where, key, short(value), "a text that is not empty")
    return value


def short(value: object) -> str:
    """A value as a user would recognise it, whatever its size."""
    try:
        return str(value)[:80]
    except (ValueError, RecursionError):  # an integer of thousands of digits, a deep table
        return type(value).__name__
