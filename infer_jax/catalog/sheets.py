"""Reads the tables of a profile: every entry with its unit, bounds and source.

Names, units and bounds of hardware come from the declarations of the specs. Those of an
estimator's coefficients are known to the estimator alone; here only their units are read.
"""

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any

from infer_jax.catalog import units
from infer_jax.catalog.measured_points import Calibration, MeasuredPoint
from infer_jax.catalog.units import bounds_broken
from infer_jax.errors import InputError
from infer_jax.specs import Chip, Hardware, Spec, value_of

TEXTS = ("title", "released", "notes")
# tables of coefficients of the estimators that ship; calibrate writes the bands of one
ESTIMATORS = ("economics", "kernels", "offloading", "partitioning", "serving", "serving_bands")
INTERVAL = ("low", "high")  # of an entry: the ends of its 80 % interval
ENTRY = "a table { value = number, source = key of [sources] }"
MAX_NUMBER = 1e300  # beyond any unit times any factor; integers of TOML are unbounded


@dataclasses.dataclass
class Sheet:
    """The content of a file, merged with its base: every number by its dotted field."""

    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)
    citations: dict[str, str] = dataclasses.field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    rent_class: str = ""
    measured: tuple[MeasuredPoint, ...] = ()  # of the last file that has any
    calibration: Calibration | None = None  # of the last file that has one, of these parts
    unchecked: tuple[str, ...] = ()  # of the file that is being read

    def enter(
        self,
        where: str,
        at: str,
        field: str,
        entry: object,
        unit: str,
        factor: float,
        *,
        convert: Callable[[float], float] | None = None,
    ) -> None:
        """Enter a number of ``factor`` SI units, found ``at`` a key; its base's interval goes.

        ``convert`` checks and converts a field of the hardware; a coefficient has none.

        Raises:
            InputError: no number, no source, or out of bounds.
        """
        if not isinstance(entry, dict) or not {"value", "source"} <= set(entry):
            raise InputError(where, at, short(entry), ENTRY)
        own = {"class"} if field == "price" else set[str]()
        if extra := sorted(set(entry) - {"value", "source", "note", *INTERVAL, *own}):
            known = "value, source, note, low and high"
            raise InputError(where, f"{at}.{extra[0]}", "unknown", known)
        raw, source = entry["value"], entry["source"]
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise InputError(where, at, short(raw), "a number")
        if abs(raw) > MAX_NUMBER:
            raise InputError(where, at, "too large", f"a number below {MAX_NUMBER:g}")
        if not isinstance(source, str) or source not in self.sources:
            allowed = ", ".join(self.sources) or "a key of [sources], which is empty"
            raise InputError(where, f"{at}.source", short(source), allowed)
        given = [entry[name] for name in INTERVAL if name in entry]
        ends = [float(x) for x in given if type(x) in (int, float) and abs(x) <= MAX_NUMBER]
        if given and (len(ends) < 2 or ends[0] > ends[1]):
            values = ", ".join(short(x) for x in given)
            raise InputError(where, f"{at}.low", values, "low and high, two numbers in this order")
        notes = [f"80 % interval {ends[0]:.4g} to {ends[1]:.4g}"] if ends else []
        notes += [text_of(where, f"{at}.note", entry["note"])] if "note" in entry else []
        raw = float(raw)
        value = raw * factor if convert is None else convert(raw)
        if not math.isfinite(value):
            raise InputError(where, at, raw, "a finite number")
        allowed = bounds_broken(field, unit, raw, factor, convert is None)
        if allowed and field not in self.unchecked:
            meant = f'or unchecked = ["{field}"], if it is meant'
            raise InputError(where, at, raw, f"{allowed}, as of any machine that there is; {meant}")
        if field == "price":
            self.rent_class = (
                text_of(where, f"{at}.class", entry["class"]) if "class" in entry else ""
            )
        self.numbers[field] = value
        self.citations[field] = self.sources[source] + (f" ({'; '.join(notes)})" if notes else "")
        self.intervals.pop(field, None)
        if ends:
            self.intervals[field] = (factor * ends[0], factor * ends[1])


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
    dot, keys = f"{part}." if part else "", dict[str, str]()
    for key, entry in body.items():
        if key not in known:
            raise _unknown(key, fields, list(known), dot, where)
        name, factor = known[key]
        if keys.setdefault(name, key) != key:
            raise InputError(where, dot + key, f"a second value of {name}", "one key for one field")

        def convert(raw: float, key=key, name=name, factor=factor) -> float:
            try:
                value = float(value_of(cls, name, raw * factor, where))
            except InputError as error:
                raise InputError(where, dot + key, raw, error.allowed) from None
            if cls is Chip and value == 0.0:  # every estimator divides by these
                raise InputError(where, dot + key, raw, "a number above 0")
            return value

        unit = fields[name]["unit"]
        sheet.enter(where, dot + key, dot + name, entry, unit, factor, convert=convert)


def take_coefficients(body: dict[str, object], table: str, sheet: Sheet, where: str) -> None:
    """Put the coefficients of an estimator, in SI, into ``sheet``.

    A table within (``[serving.vllm]``) holds those of a part of it.

    Raises:
        InputError: a misspelt table of hardware, an unknown unit, no finite number, no source.
    """
    if misspelt := _misspelt(table):
        allowed = f"[{misspelt}], or the name of an estimator of yours that is less like it"
        raise InputError(where, f"[{table}]", "not a table of a profile", allowed)
    keys: dict[str, str] = {}
    for key, entry in body.items():
        at = f"{table}.{key}"
        for name in (*table.split("."), key):
            if not name.isidentifier():
                raise InputError(where, "a name", name, "letters, digits and underscores")
        if isinstance(entry, dict) and entry and all(isinstance(x, dict) for x in entry.values()):
            take_coefficients(entry, at, sheet, where)
            continue
        parts = units.split(key)
        if parts is None:
            rates = ", ".join(x for group in units.SUFFIXES.values() for x in group if "_per_" in x)
            raise InputError(where, at, "in an unknown unit", f"names ending in {rates}")
        name, factor = parts
        if keys.setdefault(name, key) != key:
            raise InputError(where, at, f"a second {name}", "one key for one number")
        sheet.enter(where, at, f"{table}.{name}", entry, units.unit_of(key), factor)


def _misspelt(table: str) -> str:
    """The known table that a name resembles; "" for a known one, and for one of other estimators.

    A known name with a suffix (economics_mine) is the table of another estimator.
    """
    table = table.removesuffix("_bands")  # which stand in a table of their own
    if table in ESTIMATORS or "." in table:
        return ""
    parts = [f.name for f in dataclasses.fields(Hardware) if f.metadata["kind"] == "part"]
    similar = difflib.get_close_matches(table[:80], [*parts, "sources", *ESTIMATORS], cutoff=0.75)
    return similar[0] if similar and not table.startswith(f"{similar[0]}_") else ""


def _unknown(
    key: str, fields: Mapping[str, Mapping[str, Any]], known: list[str], dot: str, where: str
) -> InputError:
    """A known field in a wrong unit, a misspelt key, or neither."""
    owners = [name for name in fields if key == name or key.startswith(f"{name}_")]
    owner = max(owners, key=len, default="")
    similar = difflib.get_close_matches(key[:80], known, n=1, cutoff=0.8)
    meant = max((n for n in fields if similar and similar[0].startswith(n)), key=len, default=owner)
    if owner and meant == owner:
        unit = fields[owner]["unit"]
        wrong = f"not in a unit of {owner} ({'a plain number' if unit == '1' else unit})"
        return InputError(where, dot + key, wrong, " or ".join(units.keys(owner, unit)))
    texts = [] if dot else [*TEXTS, "base", "sources", "unchecked", "measured"]
    similar = difflib.get_close_matches(key[:80], [*known, *texts], n=1)
    allowed = f"did you mean {similar[0]}? " if similar else ""
    return InputError(
        where, dot + key, "unknown", f"{allowed}{', '.join(fields)}, each with its unit"
    )


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
