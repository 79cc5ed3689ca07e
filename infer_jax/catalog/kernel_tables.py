"""Tables of measured kernel efficiency, in the folder layout of InferSim's authors.

``gemm/<device>/data.csv``, ``grouped_gemm/<stage>/<device>/data.csv``,
``mha/<stage>/<device>/<heads>-<kv heads>-<head width>.csv``, ``mla/<stage>/<device>/`` (heads,
latent and rotary width; in prefill heads, plain and rotary width) and ``gdn/<stage>/<device>/``
(taps, key heads, key width, value heads, value width). Every cell is checked when it is read.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from infer_jax.catalog.cells import MAX_NUMBER, Cells, read_rows
from infer_jax.catalog.files import read_text
from infer_jax.errors import InputError

DIGITS = 3  # decimals that an MFU is rounded to when it is read, half to even as Python rounds
DTYPES = {"bf16": 2.0, "fp8": 1.0}  # bytes of a cached element
# numbers in the name of a family's file, and "/"; columns of the file, each with what it is where
# that has another name; an MFU (-) is neither a size nor a time
GROUPED = (
    "num_experts=experts num_gpus=gpus num_local_experts=local_experts topk=top_k "
    "hidden_size=width intermediate_size=inner {}=tokens_per_gpu tokens_per_expert "
    "up_proj_us=up_seconds up_mfu=- down_proj_us=down_seconds down_mfu=-"
)
CORE = {
    "prefill": "seq_len=tokens latency_us=seconds mfu=-",
    "decode": "kv_dtype=cache_bytes batch_size kv_len=context latency_us=seconds mfu=-",
}
LINEAR = "taps key_heads key_width value_heads value_width"
FAMILIES = {
    "gemm": "/ m k n latency_us=seconds mfu=-",
    "grouped.prefill": "/ " + GROUPED.format("seq_len_per_gpu"),
    "mha.prefill": f"heads kv_heads head_width / {CORE['prefill']}",
    "mla.prefill": f"heads plain_width rotary_width / {CORE['prefill']}",
    "gdn.prefill": f"{LINEAR} / seq_len=tokens",
    "grouped.decode": "/ " + GROUPED.format("batch_size_per_gpu"),
    "mha.decode": f"heads kv_heads head_width / {CORE['decode']}",
    "mla.decode": f"heads latent_width rotary_width / {CORE['decode']}",
    "gdn.decode": f"{LINEAR} / batchsize=batch_size",
}
SHAPES = {family: tuple(x.split("/")[0].split()) for family, x in FAMILIES.items()}
COLUMNS = {
    family: {
        column: (name or column).replace("-", "")
        for column, _, name in (word.partition("=") for word in x.split("/")[1].split())
    }
    for family, x in FAMILIES.items()
}
FOLDERS = ("gemm", "grouped_gemm", "mha", "mla", "gdn")


class MeasuredRows(NamedTuple):
    """Measured rows as numbers, one column a name; attention rows begin with their file's shape.

    ``places`` has the file and line of each row, ``shapes`` the shape in each file's name.
    """

    values: np.ndarray
    places: tuple[tuple[str, int], ...]
    shapes: np.ndarray
    exists: bool = True


Shape = tuple[float, ...]  # the numbers in the name of a file
Headless = dict[tuple[str, Shape], InputError]


@dataclass(frozen=True)
class KernelTables:
    """All tables of one device. ``headless`` are files without a header, by family and shape."""

    device: str
    families: dict[str, MeasuredRows]
    headless: Headless = field(default_factory=dict)


def names_of(family: str) -> tuple[str, ...]:
    """What the numbers of a family's rows are; the times of ``gdn`` are added up."""
    total = ("seconds",) if family.startswith("gdn") else ()
    return (*SHAPES[family], *COLUMNS[family].values(), *total)


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
    if not any((root / name).is_dir() for name in FOLDERS):
        allowed = "a folder with gemm/, grouped_gemm/, mha/, mla/ or gdn/ in it"
        raise InputError(str(folder), "", "no kernel tables", allowed)
    headless: Headless = {}
    families = {}
    for family, names in SHAPES.items():
        kind, _, stage = family.partition(".")
        place = root / ("grouped_gemm" if kind == "grouped" else kind) / stage / device
        single = place / "data.csv"
        files = sorted(place.glob("*.csv")) if names else [single] * single.exists()
        rows = _read(family, files, headless)
        families[family] = rows._replace(exists=bool(names) or single.exists())
    return KernelTables(device, families, headless)


def read_headless(path: str | os.PathLike[str], stage: str) -> MeasuredRows:
    """The rows of an attention table that begins without a header, in the usual columns.

    Raises:
        InputError: as ``load_kernel_tables``.
    """
    family = f"mha.{stage}"
    return _read(family, [Path(path)], {}, ("dtype", *COLUMNS[family]))


def _read(
    family: str, files: Iterable[Path], headless: Headless, header: Sequence[str] | None = None
) -> MeasuredRows:
    """Rows of files of one family: shape, then columns; attention files may have no header."""
    columns, parts = COLUMNS[family], len(SHAPES[family])
    values, places, shapes = list[list[float]](), list[tuple[str, int]](), list[Shape]()
    for path in files:
        shape = _shape(path, parts) if parts else ()
        line, names, rows = read_rows(str(path), read_text(path), exact=True, header=header)
        if missing := [name for name in columns if name not in names]:
            allowed = f"a header with {', '.join(columns)}"
            first = f"'{','.join(names)[:60]}' without {missing[0]}"
            error = InputError(str(path), f"line {line}, header", first, allowed)
            if not parts:
                raise error
            headless[family, shape] = error
            continue
        for cells in rows:
            numbers = [_number(cells, name, columns) for name in columns]
            if family.startswith("gdn"):
                times = (name for name in cells.values if name not in columns)
                numbers.append(math.fsum(_number(cells, name, columns) for name in times))
            values.append([*shape, *numbers])
            places.append((cells.file, cells.line))
        shapes.append(shape)
    return MeasuredRows(
        np.array(values, np.float64).reshape(len(values), len(names_of(family))),
        tuple(places),
        np.array(shapes, np.float64).reshape(len(shapes), parts),
    )


def _shape(path: Path, count: int) -> Shape:
    words = path.stem.split("-")
    if len(words) != count or not all(word.isdecimal() and len(word) < 10 for word in words):
        allowed = f"{count} whole numbers joined by '-'"
        raise InputError(str(path), "file name", path.stem, allowed)
    return tuple(float(word) for word in words)


def _number(cells: Cells, name: str, columns: Mapping[str, str]) -> float:
    """A cell: a dtype as bytes, an MFU rounded, microseconds in seconds, or a number."""
    cell, allowed = str(cells.value(name)), "a number above 0"
    if name == "kv_dtype":
        if cell not in DTYPES:
            raise cells.error(name, cell, " or ".join(DTYPES))
        return DTYPES[cell]
    try:
        value = float(cell)
    except ValueError:
        raise cells.error(name, cell, allowed) from None
    if not 0.0 <= value < MAX_NUMBER:
        raise cells.error(name, cell, f"{allowed}, below {MAX_NUMBER:g}")
    mfu = name.endswith("mfu")
    rounded = round(value, DIGITS) if mfu else value
    may_be_zero = name == "tokens_per_expert" or (mfu and "batch_size" in columns)
    if rounded == 0.0 and not may_be_zero:
        raise cells.error(name, cell, f"{allowed} when rounded to {DIGITS} decimals")
    return value * 1e-6 if name.endswith("_us") else rounded
