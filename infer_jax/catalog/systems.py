"""Systems: one TOML file per system, every number with unit and source.

A file mirrors `infer_jax.specs.Hardware`: its numbers at the top, one table for each of its
parts, each key a field name and a unit. An estimator's coefficients are in a table named after the
estimator. `docs/hardware-profiles.md` describes the format.
"""

import dataclasses
import difflib
import os
import re
import typing
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from infer_jax.catalog.foreign import read_toml
from infer_jax.catalog.measured_points import (
    Calibration,
    MeasuredPoint,
    read_calibration,
    read_measured,
)
from infer_jax.catalog.names import chip_of, nearest
from infer_jax.catalog.sheets import PARTS, TEXTS, Entry, Sheet, short, unit_keys
from infer_jax.errors import InputError, WrongPartError
from infer_jax.specs import Chip, Hardware, Spec, leaves

MAX_BASES = 8  # files below a file


@dataclasses.dataclass(frozen=True, repr=False)
class System:
    """A system as its file describes it: data-sheet facts, and coefficients by estimator.

    Not a pytree: names and citations stay outside of traces, ``hardware`` goes in.
    """

    name: str
    title: str
    released: str
    hardware: Hardware
    coefficients: dict[str, dict[str, float]]  # estimator -> field -> value in SI
    sources: dict[str, str]  # dotted field -> citation
    filled: tuple[str, ...]  # sentences on values that the file lacks and that were filled in
    path: Path
    notes: str
    intervals: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)  # 80 %, SI
    measured: tuple[MeasuredPoint, ...] = ()  # runs that its coefficients were calibrated to
    calibration: Calibration | None = None  # the servers of those runs
    rent_class: str = ""  # whose price it is: of "a GPU cloud", "a hyperscaler"; "" where not said

    def __repr__(self) -> str:
        """Name and title; the hardware's own repr has every number."""
        return f"System({self.name!r}, {self.title!r})"

    @property
    def tree(self) -> Hardware:
        """The pytree that an estimator takes: a system may stand where it is meant."""
        return self.hardware

    def __getattr__(self, name: str) -> object:
        """Raise, in one sentence, where a number is read of a ``System`` and not of its part."""
        if name in Hardware.__dataclass_fields__:
            raise WrongPartError(f"System {self.name!r}", name, "hardware")
        raise AttributeError(f"'System' object has no attribute {name!r}")

    @property
    def shipped(self) -> bool:
        """Whether its profile is one of those that ship."""
        return self.path.resolve().parent == profiles_folder().resolve()

    def numbers(self) -> list[dict[str, object]]:
        """Every number of the hardware with its unit and source, for JSON."""
        return [
            {"field": k, "value": float(x), "unit": m["unit"], "source": self.sources.get(k, "")}
            for k, m, x in leaves(self.hardware)
        ]

    def fields(self) -> dict[str, object]:
        """The system for JSON, in SI units."""
        chip = self.hardware.chip
        domain = getattr(self.hardware.network, "domain", None)  # none of a torus
        return {
            "name": self.name,
            "title": self.title,
            "released": self.released,
            "flops_16": float(chip.flops_16),
            "flops_8": float(chip.flops_8),
            "flops_4": float(chip.flops_4),
            "memory_bytes": float(chip.memory),
            "memory_bandwidth_bytes_per_s": float(chip.memory_bandwidth),
            "domain": None if domain is None else float(domain),
            "price_per_hour_usd": float(self.hardware.price),
            "rent_class": self.rent_class or None,
            "numbers": self.numbers(),
            "coefficients": self.coefficients,
            "filled": list(self.filled),
            "notes": self.notes,
        }

    def bands(self, estimator: str = "serving") -> dict[str, tuple[float, float]]:
        """Factors on a predicted ``ttft`` and ``tpot`` between which 80 % of measured runs are.

        Empty unless the profile was calibrated to its server, with that estimator.
        """
        table = self.coefficients.get(f"{estimator}_bands", {})
        ends = {name: (f"{name}_low", f"{name}_high") for name in ("ttft", "tpot")}
        return {n: (table[a], table[b]) for n, (a, b) in ends.items() if {a, b} <= set(table)}


@cache
def profiles_folder() -> Path:
    """The folder of shipped profiles: in the package (a wheel) or beside it (a checkout).

    Raises:
        InputError: neither exists.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "hw_profiles", package.parent / "hw_profiles"):
        if folder.is_dir():
            return folder
    raise InputError(str(package), "hw_profiles", "missing", "an installation with its profiles")


@cache
def list_systems() -> tuple[str, ...]:
    """The names of all shipped profiles, sorted."""
    return tuple(sorted(path.stem for path in profiles_folder().glob("*.toml")))


def system_named(name: str | None) -> str | None:
    """The bundled profile that a hardware name in a file means, or the name as it is.

    >>> system_named("H200"), system_named("gb200-nv"), system_named("abacus")
    ('h200_sxm', 'gb200_nvl72', 'abacus')
    """
    if name is None:
        return None
    known, first = list_systems(), re.split("[-_]", name)[0]
    return chip_of(name, known) or chip_of(first, known) or name


def load_system(name_or_path: str | os.PathLike[str]) -> System:
    """The system of a shipped profile (``"h100_sxm"``, ``"H100"``) or of a TOML file.

    Raises:
        InputError: no such profile or file; a misspelt or missing field, a wrong unit, a number
            out of bounds, or a number without a source.

    >>> float(load_system("h100_sxm").hardware.chip.memory_bandwidth)
    3350000000000.0
    """
    path = _locate(name_or_path, None)
    sheet = _read(path, ())
    filled = _fill(sheet)
    tables: dict[str, dict[str, float]] = {"": {}}
    for dotted, entry in sheet.entries.items():
        table, _, field = dotted.partition(".") if "." in dotted else ("", "", dotted)
        tables.setdefault(table, {})[field] = entry.value
    own, parts = tables.pop(""), dict[str, Spec]()
    for field in PARTS:
        cls, numbers = _class_of(field, {}, sheet), tables.pop(field, {})
        _require(cls, numbers, f"{field}.", sheet)
        parts[field] = cls.of(**numbers)
    _require(Hardware, own, "", sheet)
    return System(
        name=path.stem,
        title=sheet.texts["title"],
        released=sheet.texts.get("released", ""),
        hardware=Hardware.of(**own, **parts),
        coefficients=tables,
        sources={dotted: entry.citation for dotted, entry in sheet.entries.items()},
        intervals={dotted: x.ends for dotted, x in sheet.entries.items() if x.ends},
        filled=filled,
        path=path,
        notes=sheet.texts.get("notes", ""),
        measured=sheet.measured,
        calibration=sheet.calibration,
        rent_class=sheet.rent_class,
    )


def _locate(name: str | os.PathLike[str], user: Path | None) -> Path:
    """A path, relative to the file ``user`` if there is one; or the shipped profile of a name."""
    text = os.fspath(name)
    if isinstance(name, os.PathLike) or text.endswith(".toml") or Path(text).name != text:
        return user.parent / text if user else Path(text)
    known = list_systems()
    profile = text if text in known else None if user else chip_of(text, known)
    if profile is not None:
        return profiles_folder() / f"{profile}.toml"
    allowed = f"{nearest(text, known)}a path to a .toml file, or: {', '.join(known)}"
    where, field = (str(user), "base") if user else ("hardware profile", "name")
    raise InputError(where, field, text, allowed)


def _read(path: Path, chain: tuple[Path, ...]) -> Sheet:
    """One file over the file it names as its base, number by number."""
    table, sheet = read_toml(path), Sheet(str(path))
    if isinstance(table.get("silicon"), str):
        allowed = "a profile here; silicon is read by [chip] tables, --hardware and load_silicon"
        raise sheet.error("silicon", table["silicon"], allowed)
    if "base" in table:
        base = sheet.text("base", table.pop("base"))
        if path.resolve() in chain:
            raise sheet.error("base", base, "a file that does not lead back to this one")
        if len(chain) == MAX_BASES:
            raise sheet.error("base", base, f"at most {MAX_BASES} files, each the base of the last")
        sheet = _read(_locate(base, path), (*chain, path.resolve()))
        sheet.where, sheet.keys = str(path), {}
    if "measured" in table:
        sheet.measured = read_measured(sheet.where, table.pop("measured"))
    if not {*PARTS, "serving"}.isdisjoint(table):  # no longer what was measured
        sheet.calibration = None
    if "calibrated" in table:
        sheet.calibration = read_calibration(sheet.where, table.pop("calibrated"))
    names = table.pop("unchecked", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise sheet.error("unchecked", short(names), 'a list of fields: ["chip.memory"]')
    sheet.unchecked = tuple(names)
    sheet.texts = {key: sheet.text(key, table.pop(key)) for key in TEXTS if key in table}
    for key, citation in sheet.table("sources", table.pop("sources", {})).items():
        sheet.sources[key] = sheet.text(f"sources.{key}", citation)

    for field in PARTS:
        if field in table:
            body = sheet.table(field, table.pop(field))
            sheet.take_fields(_class_of(field, body, sheet), body, f"{field}.")
    tables = {key: x for key, x in table.items() if isinstance(x, dict) and "value" not in x}
    rest = {key: x for key, x in table.items() if key not in tables}
    sheet.take_fields(Hardware, rest, "")
    for key, body in tables.items():
        sheet.take_coefficients(body, key)
    if "title" not in sheet.texts:
        raise sheet.error("title", "missing", "what the system is called")
    if unknown := [name for name in sheet.unchecked if name not in sheet.entries]:
        similar = difflib.get_close_matches(unknown[0][:80], list(sheet.entries), n=3, cutoff=0.3)
        allowed = f"fields of this profile, such as {', '.join(similar) or 'chip.memory'}"
        raise sheet.error("unchecked", unknown[0], allowed)
    return sheet


def _class_of(part: str, body: dict[str, object], sheet: Sheet) -> type[Spec]:
    """The spec a part is: the declared one, or the one of a union that ``kind`` names."""
    hint = typing.get_type_hints(Hardware)[part]
    classes = {cls.kind: cls for cls in typing.get_args(hint)}
    if not classes:
        return hint
    before = sheet.kinds.get(part)
    kind = body.pop("kind", before)
    if not isinstance(kind, str) or kind not in classes:
        shown = "missing" if kind is None else short(kind)
        raise sheet.error(f"{part}.kind", shown, " or ".join(classes))
    if before not in (None, kind):  # another kind than the base: none of its numbers hold
        own = {x: entry for x, entry in sheet.entries.items() if not x.startswith(f"{part}.")}
        sheet.entries = own
    sheet.kinds[part] = kind
    return classes[kind]


def _require(cls: type[Spec], numbers: dict[str, float], dot: str, sheet: Sheet) -> None:
    for field in dataclasses.fields(cls):
        meta, missing = field.metadata, field.default_factory is dataclasses.MISSING
        if "unit" in meta and missing and field.name not in numbers:
            keys = " or ".join(unit_keys(field.name, meta["unit"]))
            raise sheet.error(dot + field.name, "missing", f"{keys}: {meta['doc']}")


def _fill(sheet: Sheet) -> tuple[str, ...]:
    """Fill each missing matmul rate with the next wider one; Chip declares the widest first."""
    rates = [f.name for f in dataclasses.fields(Chip) if f.metadata["unit"] == "FLOP/s"]
    notes, entries = [], sheet.entries
    for wide, narrow in pairwise(rates):
        source, target = f"chip.{wide}", f"chip.{narrow}"
        if target not in entries and source in entries:
            citation = f"filled with {wide}: {entries[source].citation}"
            entries[target] = Entry(entries[source].value, citation)
            notes.append(f"{narrow} missing: filled with {wide}")
    return tuple(notes)


def entry(key: str, value: float, source: str, note: str = "", ends: Sequence[float] = ()) -> str:
    """One line of a profile, numbers to four digits; ``ends``: of the 80 % interval, if known.

    >>> entry("gemm_memory", 0.98765, "fit")
    'gemm_memory = { value = 0.9877, source = "fit" }'
    """
    numbers = {"value": value}
    if len(ends) == 2:
        numbers |= {"low": ends[0], "high": ends[1]}
    written = ", ".join(f"{name} = {float(f'{float(x):.4g}')!r}" for name, x in numbers.items())
    noted = f', note = "{note}"' if note else ""
    return f'{key} = {{ {written}, source = "{source}"{noted} }}'
