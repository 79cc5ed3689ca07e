"""Tables of measured kernel efficiency, in the folder layout of InferSim's authors.

``gemm/<device>/data.csv``, ``grouped_gemm/<stage>/<device>/data.csv``,
``mha/<stage>/<device>/<heads>-<kv heads>-<head width>.csv``, ``mla/<stage>/<device>/`` (heads,
latent and rotary width; in prefill heads, plain and rotary width) and ``gdn/<stage>/<device>/``
(taps, key heads, key width, value heads, value width). Every cell is checked when it is read.
"""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import csv_rows
from infer_jax.errors import InputError

STAGES = ("prefill", "decode")
MAX_NUMBER = 1e21  # no measured number is larger
DIGITS = 3  # decimals that an MFU is rounded to when it is read, half to even as Python rounds
DTYPES = {"bf16": 2.0, "fp8": 1.0}  # bytes of a cached element
GEMM = ("m", "k", "n", "latency_us", "mfu")
GROUPED = ("num_experts", "num_gpus", "num_local_experts", "topk", "hidden_size")
GROUPED += ("intermediate_size", "", "tokens_per_expert")
GROUPED += ("up_proj_us", "up_mfu", "down_proj_us", "down_mfu")
PER_GPU = {"prefill": "seq_len_per_gpu", "decode": "batch_size_per_gpu"}
CORE = {
    "prefill": ("seq_len", "latency_us", "mfu"),
    "decode": ("kv_dtype", "batch_size", "kv_len", "latency_us", "mfu"),
}
SCANNED = {"prefill": "seq_len", "decode": "batchsize"}
KEYS = {"mha": 3, "mla": 3, "gdn": 5}


class MeasuredRows(NamedTuple):
    """Measured rows as numbers, one column a name; attention rows begin with their file's shape.

    ``places`` has the file and line of each row, ``shapes`` the shape in each file's name.
    """

    values: np.ndarray
    places: tuple[tuple[str, int], ...]
    shapes: np.ndarray
    exists: bool = True


@dataclass(frozen=True)
class KernelTables:
    """All tables of one device. ``headless`` are files without a header, by family and shape."""

    device: str
    families: dict[str, MeasuredRows]
    headless: dict[tuple[str, tuple[float, ...]], InputError] = field(default_factory=dict)


def load_kernel_tables(folder: str | os.PathLike[str], device: str) -> KernelTables:
    """The tables of ``device`` (h20, h800 ...) in ``folder``; families without files are empty.

    Families: gemm; grouped, mha, mla and gdn, each ``.prefill`` and ``.decode``. An MFU of zero
    is refused here, except in attention decode, whose published files hold some that were
    rounded to zero: there a look-up that finds one is refused.

    Raises:
        InputError: no such folder or no table in it; a file that is no table, a malformed,
            negative or missing cell (with its line), an MFU of zero.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(str(folder), "", "no such folder", "a folder of kernel tables")
    if not any((root / name).is_dir() for name in ("gemm", "grouped_gemm", *KEYS)):
        allowed = "a folder with gemm/, grouped_gemm/, mha/, mla/ or gdn/ in it"
        raise InputError(str(folder), "", "no kernel tables", allowed)
    headless: dict[tuple[str, tuple[float, ...]], InputError] = {}
    families = {"gemm": _single_table(root / "gemm" / device / "data.csv", GEMM)}
    for stage in STAGES:
        columns = tuple(c or PER_GPU[stage] for c in GROUPED)
        path = root / "grouped_gemm" / stage / device / "data.csv"
        families[f"grouped.{stage}"] = _single_table(path, columns)
        for kind in KEYS:
            family = f"{kind}.{stage}"
            families[family] = _tables_by_shape(root / kind / stage / device, family, headless)
    return KernelTables(device, families, headless)


def read_headless(path: str | os.PathLike[str], stage: str) -> MeasuredRows:
    """The rows of an attention table that begins without a header, in the usual columns.

    Raises:
        InputError: as ``load_kernel_tables``.
    """
    place, shape = Path(path), _shape(Path(path), 3)
    header = ("dtype", *CORE[stage])
    return _rows([(place, shape, _cells(place, CORE[stage], header))], CORE[stage], stage, 3)


def _single_table(path: Path, columns: tuple[str, ...]) -> MeasuredRows:
    if not path.exists():
        return MeasuredRows(np.zeros((0, len(columns))), (), np.zeros((0, 0)), exists=False)
    return _rows([(path, (), _cells(path, columns))], columns, "", 0)


def _tables_by_shape(
    folder: Path, family: str, headless: dict[tuple[str, tuple[float, ...]], InputError]
):
    kind, stage = family.split(".")
    keys = KEYS[kind]
    columns = (SCANNED[stage],) if kind == "gdn" else CORE[stage]
    tables = []
    for path in sorted(folder.glob("*.csv")) if folder.is_dir() else ():
        shape = _shape(path, keys)
        try:
            tables.append((path, shape, _cells(path, columns)))
        except HeaderError as error:
            headless[family, shape] = error
    return _rows(tables, columns, stage, keys)


def _shape(path: Path, keys: int) -> tuple[float, ...]:
    words = path.stem.split("-")
    if len(words) != keys or not all(word.isdecimal() and len(word) < 10 for word in words):
        allowed = f"{keys} whole numbers joined by '-'"
        raise InputError(str(path), "file name", path.stem, allowed)
    return tuple(float(word) for word in words)


class HeaderError(InputError):
    """The first line of a table does not name its columns."""


Cells = list[tuple[int, dict[str, str]]]


def _cells(path: Path, columns: tuple[str, ...], header: tuple[str, ...] | None = None) -> Cells:
    """(line, cells by column) of every row below the header, which must name ``columns``."""
    where = str(path)
    numbers: Cells = []
    for line, cells in csv_rows(where, read_text(path)):
        if header is None:
            header = tuple(cells)
            if missing := [c for c in columns if c not in header]:
                allowed = f"a header with {', '.join(columns)}"
                shown = f"'{','.join(cells)[:60]}' without {missing[0]}"
                raise HeaderError(where, f"line {line}, header", shown, allowed)
            continue
        if len(cells) != len(header):
            at = f"line {line}, number of cells"
            raise InputError(where, at, len(cells), f"{len(header)}, as the header has")
        numbers.append((line, dict(zip(header, cells, strict=True))))
    return numbers


def _rows(
    files: list[tuple[Path, tuple[float, ...], Cells]],
    columns: tuple[str, ...],
    stage: str,
    keys: int,
) -> MeasuredRows:
    """Rows of files of one family as one array: shape, then columns."""
    values, places = [], []
    for path, shape, cells in files:
        for line, row in cells:
            cells_of = _Line(str(path), line, zero="batch_size" in columns)
            if keys == KEYS["gdn"]:
                times = [
                    cells_of.number(name, cell) for name, cell in row.items() if name != columns[0]
                ]
                numbers = [cells_of.number(columns[0], row[columns[0]]), math.fsum(times)]
            else:
                numbers = [cells_of.number(name, row[name]) for name in columns]
            values.append([*shape, *numbers])
            places.append((str(path), line))
    width = keys + (2 if keys == KEYS["gdn"] else len(columns))
    shapes = np.array([shape for _, shape, _ in files], np.float64).reshape(len(files), keys)
    return MeasuredRows(
        np.array(values, np.float64).reshape(len(values), width), tuple(places), shapes
    )


@dataclass(frozen=True)
class _Line:
    """A line of a file whose cells are read; ``zero``: whether an MFU of zero is allowed."""

    where: str
    line: int
    zero: bool

    def number(self, name: str, cell: str) -> float:
        """A cell: a dtype as bytes, an MFU rounded, microseconds in seconds, or a number."""
        if name == "kv_dtype":
            if cell not in DTYPES:
                raise self.error(name, cell, " or ".join(DTYPES))
            return DTYPES[cell]
        mfu = name.endswith("mfu")
        allowed = "a number above 0"
        try:
            value = float(cell)
        except ValueError:
            raise self.error(name, cell, allowed) from None
        if not 0.0 <= value < MAX_NUMBER:
            raise self.error(name, cell, f"{allowed}, below {MAX_NUMBER:g}")
        rounded = round(value, DIGITS) if mfu else value
        if rounded == 0.0 and not (mfu and self.zero) and name != "tokens_per_expert":
            raise self.error(name, cell, f"{allowed} when rounded to {DIGITS} decimals")
        return value * 1e-6 if name.endswith("_us") else rounded

    def error(self, name: str, cell: str, allowed: str) -> InputError:
        """The error about one cell."""
        return InputError(self.where, f"line {self.line}, {name}", cell, allowed)
