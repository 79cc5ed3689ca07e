"""Tables of measured operators, by chip, engine and version: which there are, and their rows.

The tables are those of NVIDIA's wheel ``aisimulate`` (Apache-2.0); they are read where it is
installed and never copied.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from infer_jax.calibration.pooled.operator_laws import FORMATS, LAWS, Facts, OperatorLaw
from infer_jax.catalog.archives import parquet_columns, read_parquet
from infer_jax.errors import InputError

INSTALL = "pip install --no-deps --pre --only-binary :all: aisimulate"
ENGINES = ("sglang", "trtllm", "vllm")
# profile and generation of each folder of tables
CHIPS = {
    "h100_sxm": ("h100_sxm", "hopper"),
    "h200_sxm": ("h200_sxm", "hopper"),
    "b200_sxm": ("b200_sxm", "blackwell"),
    "b300_sxm": ("b300_sxm", "blackwell"),
    "gb200": ("gb200_nvl72", "blackwell"),
    "gb300": ("gb300_nvl72", "blackwell"),
    "a100_sxm": ("a100_sxm", "a100"),
    "l40s": ("l40s", "l40s"),
    "rtx_pro_6000_server": ("rtx_pro_6000", "rtx_pro_6000"),
}
RELEASE = re.compile(r"\d+(\.\d+)*(rc\d+|\.post\d+)?")  # of engines; others are development builds
# rows of a table that counts, and their share of those of the engine's fullest version
FEWEST, SHARE = 40, 0.25


class OperatorTable(NamedTuple):
    """The rows of one format in one table of measured operators, with the law they are of."""

    law: str
    chip: str
    engine: str
    version: str
    format: str
    facts: Facts
    seconds: np.ndarray

    @property
    def generation(self) -> str:
        """Of the chip."""
        return CHIPS[self.chip][1]


def data_folder(path: Path | None = None) -> Path:
    """The folder of the tables, of the package ``aisimulate_core`` or of one at ``path``.

    Raises:
        InputError: no such package.
    """
    if path is None:
        package = find_spec("aisimulate_core")
        if package is None or package.origin is None:
            raise InputError("measured operators", "aisimulate", "not installed", INSTALL)
        path = Path(package.origin).parent
    folder = path / "systems" / "data"
    if not folder.is_dir():
        allowed = f"the folder aisimulate_core of the wheel: {INSTALL}"
        raise InputError(str(path), "", "no systems/data in it", allowed)
    return folder


def package_version(folder: Path) -> str:
    """The version of the wheel that a folder of tables is in."""
    found = distributions(name="aisimulate", path=[str(folder.parents[2])])
    return next((x.version for x in found), "of unknown version")


def operator_tables(folder: Path) -> list[OperatorTable]:
    """Of every law the newest release of each engine on each chip, format by format.

    A release that measured a few rows only is passed over for the one before.

    Raises:
        InputError: no table; one that is damaged, without a column, or with a value that is no
            number.
    """
    tables: list[OperatorTable] = []
    for name, law in LAWS.items():
        for chip in CHIPS:
            for engine in ENGINES:
                paths = folder.glob(f"{chip}/*/{engine}/*/{law.table}.parquet")
                released = [p for p in paths if RELEASE.fullmatch(p.parent.name)]
                released.sort(key=lambda p: _order(p.parent.name), reverse=True)
                tables += _newest(law, released, partial(OperatorTable, name, chip, engine))
    if not tables:
        allowed = "tables of " + ", ".join(sorted({law.table for law in LAWS.values()}))
        raise InputError(str(folder), "", "no measured operators", allowed)
    return tables


def _order(version: str) -> list[int]:
    """A key by which versions are in order: a candidate before its release."""
    return [int(x) for x in re.findall(r"-?\d+", version.replace("rc", ".-1.") + ".0")]


def _newest(
    law: OperatorLaw, paths: list[Path], make: Callable[..., OperatorTable]
) -> Iterator[OperatorTable]:
    """For every format the first table with rows enough."""
    read = [(path.parent.name, rows_by_format(law, path)) for path in paths]
    for kind in FORMATS:
        sizes = [len(found[kind][1]) for _, found in read if kind in found]
        for version, found in read:
            if kind in found and len(found[kind][1]) >= max(FEWEST, SHARE * max(sizes)):
                yield make(version, kind, *found[kind])
                break


def rows_by_format(law: OperatorLaw, path: Path) -> dict[str, tuple[Facts, np.ndarray]]:
    """Facts and seconds of the rows that count, by format; of kernels of one shape the fastest.

    Raises:
        InputError: as ``operator_tables``.
    """
    numbers, present = (*law.numbers, "latency"), parquet_columns(path)
    for name in (*numbers, *law.texts, law.format):
        if name not in present:
            raise InputError(str(path), name, "missing", f"a column among {', '.join(present)}")
    names = (*numbers, *law.texts, law.format, *law.optional)
    columns = read_parquet(path, names=[name for name in names if name in present])
    for name in numbers:
        columns[name] = _numbers(path, name, columns[name])
    facts, keep = law.facts(columns)
    kinds = columns[law.format]
    return {
        kind: _fastest(facts, columns["latency"] * 1e-3, keep & (kinds == kind))
        for kind in FORMATS
        if np.any(keep & (kinds == kind))
    }


def _numbers(path: Path, name: str, column: np.ndarray) -> np.ndarray:
    """A column as numbers of at least 0; above 0 where they are times."""
    least = 1e-9 if name == "latency" else 0.0  # milliseconds
    try:
        numbers = column.astype(np.float64)
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= least)))
    except (ValueError, TypeError):
        raise InputError(str(path), name, "text", "a column of numbers") from None
    if wrong.size:
        allowed = "a number above 0" if least else "a number of at least 0"
        raise InputError(str(path), f"row {wrong[0]}, {name}", column[wrong[0]], allowed)
    return numbers


def _fastest(facts: Facts, seconds: np.ndarray, keep: np.ndarray) -> tuple[Facts, np.ndarray]:
    """The rows to ``keep``, one of each shape."""
    kept, seconds = np.stack([x[keep] for x in facts.values()]), seconds[keep]
    order = np.lexsort((seconds, *kept))
    kept, seconds = kept[:, order], seconds[order]
    first = np.append(True, np.any(np.diff(kept) != 0.0, axis=0))
    return dict(zip(facts, kept[:, first], strict=True)), seconds[first]
