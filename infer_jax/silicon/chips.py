"""Accelerators that exist, and those that a file describes, by the laws of silicon."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import jax

from infer_jax.catalog import System, list_systems, load_system
from infer_jax.catalog.foreign import Parsed, read_toml
from infer_jax.catalog.names import chip_of
from infer_jax.catalog.published import power_shares
from infer_jax.catalog.published.tables import tables
from infer_jax.compiling import once
from infer_jax.errors import InputError
from infer_jax.silicon.accelerator import (
    Accelerator,
    Limits,
    board_power,
    chip_limits,
    data_sheet,
)
from infer_jax.silicon.area import Base, ComputeCore, Die, Transistors
from infer_jax.silicon.bill import Assembly
from infer_jax.silicon.interfaces import Switch, interface, stack
from infer_jax.silicon.nodes import SOURCE, node, quantity, values
from infer_jax.silicon.spread import ratios
from infer_jax.specs import Hardware
from infer_jax.specs.fields import leaves

BASE = "silicon"  # the key of a description: the chip that it starts from
# parts that a row of the table names: the kind of row, and what reads one
PARTS = {
    "node": ("nodes", partial(node, needs=["energy"])),
    "memory": ("stacks", stack),
    "link": ("interfaces", interface),
    "joint": ("interfaces", interface),
    "switch": ("switches", lambda name: Switch.of(**values("switches", name))),
    "assembly": ("packages", lambda name: Assembly.of(**values("packages", name))),
}
UNPUBLISHED = "parts of the cores of {} are not published: it has no area, and its rent no dies"


class LimitWords(NamedTuple):
    """A limit in words: the field that breaks it, its unit, what it is of, factor and remedy."""

    field: str
    unit: str
    of: str
    factor: float
    remedy: str


LIMITS = {
    "reticle": LimitWords(
        "die", "mm2", "of a die", 1e6, "a larger limits.die_mm2 if a reticle does not bound it"
    ),
    "edge": LimitWords(
        "die", "mm", "of a die's edge for stacks and links", 1e3, "fewer ends, or a larger die"
    ),
    "watts": LimitWords(
        "limit", "W", "at a tenth of its clock", 1.0, "a higher limit_w, or less of it"
    ),
    "cooling": LimitWords("limit", "W", "", 1.0, "a limit_w below it, or a higher limits.cooled_w"),
    "cores": LimitWords("active", "", "cores of a die", 1.0, "as many as are made, die.cores"),
    "stacks": LimitWords(
        "stacks", "", "stacks", 1.0, "as many as dies have ends of, dies x die.memories"
    ),
}


@dataclass(frozen=True, repr=False, kw_only=True)
class SiliconSystem(System):
    """A system whose numbers follow from silicon: ``hardware`` is its data sheet.

    Sweeps, elasticities and designs take its ``tree``, the silicon itself.
    """

    chip: Accelerator
    rows: Mapping[str, tuple[str, str]]  # of the table, that its parts were read from
    areas: bool = True  # whether parts of its cores are published, of which areas and bills are

    @property
    def tree(self) -> Hardware:  # as one, to whoever passes it on
        """What it is made of, for ``OnSilicon``."""
        return cast(Hardware, self.chip)


def known_chips() -> tuple[str, ...]:
    """The names of chips whose silicon is described."""
    return tuple(tables(SOURCE)["accelerators"])


def published_figures(name: str) -> Mapping[str, float]:
    """What is published of a known chip, such as ``die_mm2``; of others nothing."""
    return tables(SOURCE)["accelerators"].get(name, {}).get("published", {})


def load_accelerator(name: str | os.PathLike[str]) -> Accelerator:
    """An accelerator by its name, or of a file that describes one (``docs/silicon.md``).

    A known one draws at rest the share of its board power that is the mean of all makes
    (``catalog/published/power.toml``).

    Raises:
        InputError: a chip that has no row; of a file an unknown key, a number out of bounds, or a
            chip that cannot be made or cooled.
    """
    return _load(name).chip


class Read(NamedTuple):
    """A chip, the rows that its parts were read from, the known chip it starts from, its title."""

    chip: Accelerator
    rows: dict[str, tuple[str, str]]
    base: str
    title: str


def _load(name: str | os.PathLike[str]) -> Read:
    if is_file(name):
        try:
            return _described(Path(name), read_toml(name))
        except InputError as error:
            if is_file(error.where):
                raise
            raise InputError(str(name), error.field, error.value, error.allowed) from None
    rows = tables(SOURCE)["accelerators"]
    found = chip_of(str(name), rows)
    if found is None:
        raise InputError(SOURCE, "accelerator", str(name), f"a .toml file, or: {', '.join(rows)}")
    row = rows[found]
    named = {"assembly": "cowos", "joint": "ucie", **row}
    parts = {part: read(named[part]) for part, (_, read) in PARTS.items() if part in named}
    if "stack" in row:
        parts["memory"] = parts["memory"].at(row["stack"])
    if "base" in row:
        parts["base"] = Base.of(**{**row["base"], "node": node(row["base"]["node"], ["cache_bit"])})
    die = Die.of(
        core=ComputeCore.of(**row["core"]),
        transistors=Transistors.of(**row.get("transistors", {})),
        **row["die"],
    )
    limits = Limits.of(**row.get("limits", {}))
    numbers = {"limit": 0.0, "idle": 0.0, **row["chip"]}
    chip = Accelerator.of(die=die, limits=limits, **parts, **numbers)
    if "limit" not in row["chip"]:  # not published: what the laws say
        chip = chip.replace(limit=ratios()["power"].centre * board_power(chip))
    if "idle" not in row["chip"]:
        chip = chip.replace(idle=power_shares()["idle"] * chip.limit)
    read = {part: (kind, named[part]) for part, (kind, _) in PARTS.items() if part in named}
    read |= {"base.node": ("nodes", row["base"]["node"])} if "base" in row else {}
    return Read(chip, read, found, "")


def is_file(name: str | os.PathLike[str]) -> bool:
    """Whether a name is that of a file."""
    return isinstance(name, os.PathLike) or str(name).endswith(".toml")


def describes_silicon(path: str | os.PathLike[str]) -> bool:
    """Whether a file describes silicon, and not a data sheet."""
    return is_file(path) and Path(path).is_file() and BASE in read_toml(path)


def load_silicon(name: str | os.PathLike[str]) -> SiliconSystem:
    """The system of a chip by name or file: its data sheet by law, coefficients of its base.

    What estimators have fitted to the chip that a file starts from stands for the new one.

    Raises:
        InputError: as ``load_accelerator``.

    >>> found = load_silicon("a100_sxm")
    >>> round(float(found.hardware.chip.flops_16) / 1e12)
    312
    """
    chip, rows, base, title = _load(name)
    row = tables(SOURCE)["accelerators"][base]
    areas, like = row.get("areas", True), row.get("like", base)
    profile = load_system(like) if like in list_systems() else None
    with jax.enable_x64(True):
        sheet = once(data_sheet, chip)
    made = f"silicon of {base}, by the laws of docs/silicon.md"
    return SiliconSystem(
        name=Path(name).stem if is_file(name) else base,
        title=title or row.get("title") or (profile.title if profile else base),
        released="",
        hardware=sheet,
        coefficients=profile.coefficients if profile else {},
        sources={"price": f"by {made}"},
        filled=(
            f"data sheet and rent by the {made}; fitted coefficients are those of {like}",
            *(() if areas else (UNPUBLISHED.format(base),)),
        ),
        path=Path(name),
        notes="",
        chip=chip,
        rows=rows,
        areas=areas,
    )


def _described(path: Path, table: Parsed) -> Read:
    """The chip of a description: the one that it starts from, with other parts and numbers."""
    where, body = str(path), dict(table)
    base = body.pop(BASE, None)
    if not isinstance(base, str):
        allowed = f"the chip to start from: a .toml file, or one of {', '.join(known_chips())}"
        raise InputError(where, BASE, base or "missing", allowed)
    chip, rows, base, _ = _load(path.parent / base if is_file(base) else base)
    title, rows = str(body.pop("title", "")), dict(rows)
    for field, (kinds, read) in PARTS.items():
        inner = body.get(field)
        kind = inner.pop("kind", None) if isinstance(inner, dict) else body.pop(field, None)
        if kind is None:
            continue
        absent = field == "memory" and kind == "none"
        if not absent and str(kind) not in tables(SOURCE)[kinds]:
            raise InputError(where, field, kind, ", ".join(tables(SOURCE)[kinds]))
        chip = chip.replace(**{field: None if absent else read(kind)})
        rows.pop(field, None)
        rows |= {} if absent else {field: (kinds, kind)}
    known = {path: declared["doc"] for path, declared, _ in leaves(chip)}
    changes: dict[str, float] = {}
    for dotted, value in _numbers(body):
        head, _, key = dotted.rpartition(".")
        name, factor = (key, 1.0) if dotted in known else quantity(key)
        found = f"{head}.{name}".lstrip(".")
        if found not in known:
            near = [x for x in known if x.rpartition(".")[0] == head] or known
            raise InputError(where, dotted, value, f"one of {', '.join(near)}, with its unit")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(where, dotted, value, f"a number: {known[found]}")
        changes[found] = value * factor
    chip = chip.at(changes)
    check(chip, where)
    return Read(chip, rows, base, title)


def _numbers(body: Parsed, head: str = "") -> Iterator[tuple[str, object]]:
    """Values of nested tables by dotted path."""
    for key, value in body.items():
        if isinstance(value, dict):
            yield from _numbers(cast(Parsed, value), f"{head}{key}.")
        else:
            yield f"{head}{key}", value


def check(chip: Accelerator, where: str) -> None:
    """Refuse a chip that cannot be made or cooled.

    Raises:
        InputError: a die beyond the reticle, ends that do not fit its edge, power that its limit
            or its cooling does not hold, more cores or stacks than there are.
    """
    with jax.enable_x64(True):
        limits = once(chip_limits, chip)
    for name, limit in limits.items():
        words = LIMITS[name]
        need, most = (float(x) for x in (limit.need, limit.capacity))
        if need > most * (1.0 + 1e-9):
            noun = f"{words.unit} {words.of}".strip()
            much = f"{need * words.factor:.4g} {noun}, of {most * words.factor:.4g}"
            raise InputError(where, words.field, much, words.remedy)
