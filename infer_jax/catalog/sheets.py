"""Reads the tables of a profile: every entry with its unit, bounds and source.

Names, units and bounds of hardware come from the declarations of the specs. Those of an
estimator's coefficients are known to the estimator alone; here only their units are read.

Units are the suffixes of keys: ``memory_bandwidth_tb_per_s = 3.35`` is 3.35e12 bytes/s. A field
declares its SI unit once; here is which suffixes stand for multiples of that unit. Wide bounds on
the numbers of a machine catch wrong units and typos: two or more powers of ten beyond any existing
machine, on both sides. A profile that is right to be outside names the field in ``unchecked``; see
docs/hardware-profiles.md.
"""

import dataclasses
import difflib
import math
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from infer_jax.catalog.measured_points import Calibration, MeasuredPoint
from infer_jax.errors import InputError
from infer_jax.specs import Chip, Hardware, Spec, leaves, value_of

TEXTS = ("title", "released", "notes")
PARTS = [f.name for f in dataclasses.fields(Hardware) if f.metadata["kind"] == "part"]
# tables of coefficients of the estimators that ship; calibrate writes the bands of one
ESTIMATORS = ("economics", "kernels", "offloading", "partitioning", "serving", "serving_bands")
INTERVAL = ("low", "high")  # of an entry: the ends of its 80 % interval
ENTRY = "a table { value = number, source = key of [sources] }"
MAX_NUMBER = 1e300  # beyond any unit times any factor; integers of TOML are unbounded
SUFFIXES: dict[str, dict[str, float]] = {
    "bytes": {"bytes": 1.0, "mb": 1e6, "gb": 1e9, "tb": 1e12,
              "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40},
    "bytes/s": {"bytes_per_s": 1.0, "mb_per_s": 1e6, "gb_per_s": 1e9, "tb_per_s": 1e12,
                "gib_per_s": 2.0**30},
    "FLOP/s": {"flop_per_s": 1.0, "gflops": 1e9, "tflops": 1e12, "pflops": 1e15},
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "USD/h": {"usd_per_hour": 1.0},
    "W": {"w": 1.0, "kw": 1e3},
    "tokens": {"tokens": 1.0},
    "bits": {"bits": 1.0},
    "1": {"": 1.0},
}  # fmt: skip

_UNITS = {suffix: unit for unit, suffixes in SUFFIXES.items() for suffix in suffixes}
_FACTORS = {suffix: factor for unit in SUFFIXES.values() for suffix, factor in unit.items()}
ABSENT = ("host", "power", "price")  # parts and fields that may be 0: absent, unknown or free
UNIT_BOUNDS = {
    "FLOP/s": (1e9, 1e19),
    "bytes/s": (1e6, 1e16),
    "bytes": (1e6, 1e16),
    "W": (0.1, 1e6),
    "USD/h": (1e-4, 1e5),
    "1": (1.0, 1e6),
}
FIELD_BOUNDS = {
    "chip.memory_bandwidth": (1e8, 1e16),
    "network.axes": (1.0, 16.0),
    "host.flops": (1e6, 1e18),
}
# of the coefficients of estimators: by unit, and shares of a peak, which times are divided by
COEFFICIENT_BOUNDS = {
    "s": 1e4, "bytes": 1e16, "bytes/s": 1e16, "FLOP/s": 1e19, "W": 1e6, "USD/h": 1e5,
    "tokens": 1e12, "bits": 1e3, "1": 1e12,
}  # fmt: skip
SHARES = ("_cap", "efficiency", "_share", "_read", "_compute", "_memory")
MIN_SHARE = 1e-6


def unit_keys(name: str, unit: str) -> dict[str, float]:
    """Every key under which a field of this unit may be written, with its factor to SI.

    >>> unit_keys("power", "W")
    {'power_w': 1.0, 'power_kw': 1000.0}
    >>> unit_keys("domain", "1")
    {'domain': 1.0}
    """
    return {f"{name}_{suffix}".rstrip("_"): factor for suffix, factor in SUFFIXES[unit].items()}


def split_unit(key: str, factors: Mapping[str, float] = _FACTORS) -> tuple[str, float] | None:
    """The name in a key and its factor to SI; None where the suffix is no known unit.

    The longest suffix wins; a key without one is dimensionless. ``factors``: those of other
    suffixes than this file's.

    >>> split_unit("launch_us")
    ('launch', 1e-06)
    >>> split_unit("flop_cap")
    ('flop_cap', 1.0)
    >>> split_unit("page_kb_per_s") is None
    True
    """
    words = key.split("_")
    for start in range(1, len(words)):
        factor = factors.get("_".join(words[start:]))
        if factor is not None:
            # "x_per_s" is some rate whose unit is not above, not a time called "x_per"
            return None if words[start - 1] == "per" else ("_".join(words[:start]), factor)
    return key, 1.0


def bounds_broken(field: str, unit: str, value: float, factor: float, fitted: bool) -> str:
    """The bounds, in words, of a value in multiples of ``factor`` of its SI unit; "" within them.

    ``fitted``: whether it is a coefficient of an estimator, else of a hardware.
    """
    if fitted:
        high = COEFFICIENT_BOUNDS.get(unit, math.inf)
        low = MIN_SHARE if unit == "1" and field.endswith(SHARES) else -high
    else:
        low, high = FIELD_BOUNDS.get(field, UNIT_BOUNDS.get(unit, (-math.inf, math.inf)))
    may_be_zero = not fitted and field.startswith(ABSENT)
    within = min(max(value, -sys.float_info.max), sys.float_info.max)  # an integer may be larger
    if (may_be_zero and value == 0.0) or low <= within * factor <= high:
        return ""
    return f"{'0 or ' if may_be_zero else ''}{low / factor:g} to {high / factor:g}"


def sensible_changes(
    where: str, part: str, tree: object, changes: Mapping[str, Iterable[float]]
) -> None:
    """Raise if no machine could have this new value of a number of ``tree``, by dotted field.

    ``part`` is ``hardware``, or ``estimator`` with its coefficients; the bounds are those of a
    profile. A name that ``tree`` does not have is not checked.

    Raises:
        InputError: out of bounds.
    """
    units = {path: meta.get("unit", "") for path, meta, _ in leaves(tree)}
    for field, values in changes.items():
        for value in values:
            allowed = bounds_broken(field, units.get(field, ""), value, 1.0, part != "hardware")
            if allowed:
                allowed += ", as of any machine that there is"
                raise InputError(where, f"{part}.{field}", value, allowed)


class Entry(NamedTuple):
    """A number in SI with its citation and the ends of its 80 % interval, if they are known."""

    value: float
    citation: str
    ends: tuple[float, float] | None = None


@dataclasses.dataclass
class Sheet:
    """The content of a file, merged with its base: every number by its dotted field.

    ``unchecked`` and ``keys``, the keys by their fields, are of the file that is being read.
    """

    where: str = ""
    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    entries: dict[str, Entry] = dataclasses.field(default_factory=dict)
    rent_class: str = ""
    measured: tuple[MeasuredPoint, ...] = ()  # of the last file that has any
    calibration: Calibration | None = None  # of the last file that has one, of these parts
    unchecked: tuple[str, ...] = ()
    keys: dict[str, str] = dataclasses.field(default_factory=dict)

    def error(self, key: str, value: object, allowed: str) -> InputError:
        """The error about a key."""
        return InputError(self.where, key, value, allowed)

    def table(self, key: str, value: object) -> dict[str, object]:
        """``value`` where it is a table.

        Raises:
            InputError: it is not.
        """
        if not isinstance(value, dict):
            raise self.error(key, short(value), "a table")
        return value

    def text(self, key: str, value: object) -> str:
        """``value`` where it is a text that is not empty.

        Raises:
            InputError: it is not.
        """
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, short(value), "a text that is not empty")
        return value

    def take_fields(self, cls: type[Spec], body: Mapping[str, object], part: str) -> None:
        """Enter the numbers of a table, whose names and units ``cls`` declares.

        Raises:
            InputError: an unknown key, a wrong unit, a value out of bounds, a missing source.
        """
        declared = {f.name: f.metadata for f in dataclasses.fields(cls) if "unit" in f.metadata}
        known = {
            key: (name, factor)
            for name, meta in declared.items()
            for key, factor in unit_keys(name, meta["unit"]).items()
        }
        for key, entry in body.items():
            if key not in known:
                fields = {name: meta["unit"] for name, meta in declared.items()}
                raise self._unknown(key, fields, list(known), part)
            name, factor = known[key]
            unit = declared[name]["unit"]
            self._enter(f"{part}{key}", f"{part}{name}", entry, unit, factor, cls)

    def take_coefficients(self, body: Mapping[str, object], table: str) -> None:
        """Enter the coefficients of an estimator, in SI.

        A table within (``[serving.vllm]``) holds those of a part of it.

        Raises:
            InputError: a misspelt table of hardware, an unknown unit, no finite number, no source.
        """
        if misspelt := _misspelt(table):
            allowed = f"[{misspelt}], or the name of an estimator of yours that is less like it"
            raise self.error(f"[{table}]", "not a table of a profile", allowed)
        for key, entry in body.items():
            at = f"{table}.{key}"
            for name in (*table.split("."), key):
                if not name.isidentifier():
                    raise self.error("a name", name, "letters, digits and underscores")
            if (
                isinstance(entry, dict)
                and entry
                and all(isinstance(x, dict) for x in entry.values())
            ):
                self.take_coefficients(entry, at)
                continue
            parts = split_unit(key)
            if parts is None:
                every = (suffix for group in SUFFIXES.values() for suffix in group)
                rates = ", ".join(suffix for suffix in every if "_per_" in suffix)
                raise self.error(at, "in an unknown unit", f"names ending in {rates}")
            name, factor = parts
            unit = _UNITS[key[len(name) :].removeprefix("_")]
            self._enter(at, f"{table}.{name}", entry, unit, factor)

    def _enter(
        self,
        at: str,
        field: str,
        entry: object,
        unit: str,
        factor: float,
        cls: type[Spec] | None = None,
    ) -> None:
        """Enter a number of ``factor`` SI units, found ``at`` a key; its base's interval goes.

        ``cls`` declares the bounds of a field of the hardware; a coefficient has none.

        Raises:
            InputError: no number, no source, or out of bounds.
        """
        if self.keys.setdefault(field, at) != at:
            raise self.error(at, f"a second value of {field}", "one key for one field")
        if not isinstance(entry, dict) or not {"value", "source"} <= set(entry):
            raise self.error(at, short(entry), ENTRY)
        own = {"class"} if field == "price" else set[str]()
        if extra := sorted(set(entry) - {"value", "source", "note", *INTERVAL, *own}):
            raise self.error(f"{at}.{extra[0]}", "unknown", "value, source, note, low and high")
        raw, source = entry["value"], entry["source"]
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise self.error(at, short(raw), "a number")
        if abs(raw) > MAX_NUMBER:
            raise self.error(at, "too large", f"a number below {MAX_NUMBER:g}")
        if not isinstance(source, str) or source not in self.sources:
            allowed = ", ".join(self.sources) or "a key of [sources], which is empty"
            raise self.error(f"{at}.source", short(source), allowed)
        given = [entry[name] for name in INTERVAL if name in entry]
        ends = [float(x) for x in given if type(x) in (int, float) and abs(x) <= MAX_NUMBER]
        if given and (len(ends) < 2 or ends[0] > ends[1]):
            values = ", ".join(short(x) for x in given)
            raise self.error(f"{at}.low", values, "low and high, two numbers in this order")
        notes = [f"80 % interval {ends[0]:.4g} to {ends[1]:.4g}"] if ends else []
        notes += [self.text(f"{at}.note", entry["note"])] if "note" in entry else []
        raw = float(raw)
        value = raw * factor
        if cls is not None:
            try:
                value = float(value_of(cls, field.rpartition(".")[2], value, self.where))
            except InputError as error:
                raise self.error(at, raw, error.allowed) from None
            if cls is Chip and value == 0.0:  # every estimator divides by these
                raise self.error(at, raw, "a number above 0")
        if not math.isfinite(value):
            raise self.error(at, raw, "a finite number")
        allowed = bounds_broken(field, unit, raw, factor, cls is None)
        if allowed and field not in self.unchecked:
            meant = f'or unchecked = ["{field}"], if it is meant'
            raise self.error(at, raw, f"{allowed}, as of any machine that there is; {meant}")
        if field == "price":
            given_class = entry.get("class")
            self.rent_class = self.text(f"{at}.class", given_class) if "class" in entry else ""
        citation = self.sources[source] + (f" ({'; '.join(notes)})" if notes else "")
        interval = (factor * ends[0], factor * ends[1]) if ends else None
        self.entries[field] = Entry(value, citation, interval)

    def _unknown(
        self, key: str, fields: Mapping[str, str], known: list[str], part: str
    ) -> InputError:
        """A known field in a wrong unit, a misspelt key, or neither."""
        owners = [name for name in fields if key == name or key.startswith(f"{name}_")]
        owner = max(owners, key=len, default="")
        close = difflib.get_close_matches(key[:80], known, n=1, cutoff=0.8)
        meant = max((n for n in fields if close and close[0].startswith(n)), key=len, default=owner)
        if owner and meant == owner:
            unit = "a plain number" if fields[owner] == "1" else fields[owner]
            allowed = " or ".join(unit_keys(owner, fields[owner]))
            return self.error(part + key, f"not in a unit of {owner} ({unit})", allowed)
        texts = [] if part else [*TEXTS, "base", "sources", "unchecked", "measured"]
        close = difflib.get_close_matches(key[:80], [*known, *texts], n=1)
        allowed = f"did you mean {close[0]}? " if close else ""
        allowed += f"{', '.join(fields)}, each with its unit"
        return self.error(part + key, "unknown", allowed)


def _misspelt(table: str) -> str:
    """The known table that a name resembles; "" for a known one, and for one of other estimators.

    A known name with a suffix (economics_mine) is the table of another estimator.
    """
    table = table.removesuffix("_bands")  # which stand in a table of their own
    if table in ESTIMATORS or "." in table:
        return ""
    similar = difflib.get_close_matches(table[:80], [*PARTS, "sources", *ESTIMATORS], cutoff=0.75)
    return similar[0] if similar and not table.startswith(f"{similar[0]}_") else ""


def short(value: object) -> str:
    """A value as a user would recognise it, whatever its size."""
    try:
        return str(value)[:80]
    except (ValueError, RecursionError):  # an integer of thousands of digits, a deep table
        return type(value).__name__
