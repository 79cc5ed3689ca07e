"""Readers of measured rows, each of a kind of file that its columns identify."""

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from infer_jax.calibration.pooled.readers import gpt_oss, inferencex, offline, silicon
from infer_jax.calibration.pooled.rows import Cells, PooledRow, RowsRead, rows_of
from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import csv_rows
from infer_jax.errors import InputError

Lines = list[dict[str, str | None]]


class TableReader(NamedTuple):
    """A kind of table: its name, the columns that identify it, and its reader."""

    name: str
    columns: tuple[str, ...]
    read: Callable[[Lines], RowsRead]

    @classmethod
    def of(
        cls, name: str, columns: tuple[str, ...], row: Callable[[Cells], PooledRow]
    ) -> "TableReader":
        """The reader of a table whose lines are read one by one."""
        return cls(name, columns, partial(rows_of, read=row))


TABLES = (
    TableReader.of("InferenceX", inferencex.COLUMNS, inferencex.row),
    TableReader.of("TensorRT-LLM maximum throughput", offline.TRTLLM_COLUMNS, offline.trtllm),
    TableReader.of("ROCm vLLM", offline.ROCM_COLUMNS, offline.rocm),
    TableReader.of("gpt-oss on H200", gpt_oss.COLUMNS, gpt_oss.row),
    TableReader("MLPerf", offline.MLPERF_COLUMNS, offline.read_mlperf),
)


def read(path: Path, tables: tuple[TableReader, ...] = TABLES) -> RowsRead:
    """The rows of a file.

    Raises:
        InputError: unreadable, or of no kind in ``tables``.
    """
    header, lines = _table(path)
    if (table := _kind(header, tables)) is not None:
        return table.read(lines)
    allowed = "; or ".join(f"{t.name}: {', '.join(t.columns)}" for t in tables)
    raise InputError(str(path), "columns", ", ".join(header[:8]) or "none", f"those of {allowed}")


def sources(
    folder: Path, tables: tuple[TableReader, ...] = TABLES
) -> dict[str, Callable[[], RowsRead]]:
    """By name, readers of a folder's files of these kinds, and of aiconfigurator-core's rows.

    Raises:
        InputError: no such folder.
    """
    if not folder.is_dir():
        raise InputError("measured rows", str(folder), "missing", "files of measured rows by path")
    paths = (*sorted(folder.glob("*.csv")), *sorted(folder.glob("*/*.tsv")))
    readers: dict[str, Callable[[], RowsRead]] = {
        str(path.relative_to(folder)): partial(read, path, tables)
        for path in paths
        if _kind(_table(path)[0], tables)
    }
    if silicon.is_installed():
        readers["silicon_sample.csv of aiconfigurator-core"] = silicon.read
    return readers


def _kind(header: list[str], tables: tuple[TableReader, ...]) -> TableReader | None:
    """The kind of table that has these columns, if any."""
    return next((table for table in tables if set(table.columns) <= set(header)), None)


def _table(path: Path) -> tuple[list[str], Lines]:
    """The header of a table and its lines; cells that a line is cut before are empty."""
    text = read_text(path)
    rows = csv_rows(str(path), text, "\t" if "\t" in text.partition("\n")[0] else ",")
    _, header = next(rows)
    return header, [dict(zip_longest(header, row[: len(header)], fillvalue="")) for _, row in rows]
