"""Traces of millions of rows: a CSV by columns, with pyarrow, which an extra installs."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pyarrow import ChunkedArray


class TraceTable(NamedTuple):
    """Columns of a trace in the order of its rows, and which rows are whole."""

    seconds: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    session: np.ndarray | None  # any values, equal in one conversation
    whole: np.ndarray  # a time and two lengths that are numbers; lengths may be 0
    torn: int  # rows of another number of cells, which no column has


def read_table(text: str, names: Sequence[str], second: float) -> TraceTable | None:
    """The columns of a CSV: arrival, prompt, output and, where there is a fourth, session.

    ``second``: the unit of the times in seconds; 0: dates and times of day. None where pyarrow is
    not installed, or does not read the text as a table.
    """
    try:
        import pyarrow as pa
        from pyarrow import csv
    except ImportError:
        return None
    torn = list[object]()

    def skip(row: object) -> str:
        torn.append(row)
        return "skip"

    kinds = dict.fromkeys(names, pa.string())
    convert = csv.ConvertOptions(include_columns=[*names], column_types=kinds)
    try:
        data = io.BytesIO(text.encode())
        parse = csv.ParseOptions(invalid_row_handler=skip, newlines_in_values=False)
        table = csv.read_csv(data, parse_options=parse, convert_options=convert)
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None
    arrival, *lengths = (table.column(name) for name in names[:3])
    seconds = _numbers(arrival) * second if second else _seconds(arrival)
    prompt, output = map(_numbers, lengths)
    whole = np.isfinite(seconds)
    for values in (prompt, output):
        whole &= np.isfinite(values) & (values >= 0.0)
    session = None
    if len(names) > 3:
        session = table.column(names[3]).to_numpy(zero_copy_only=False)
    return TraceTable(seconds, prompt, output, session, whole, len(torn))


def _numbers(column: "ChunkedArray") -> np.ndarray:
    try:
        return column.cast("float64").to_numpy()
    except ValueError:  # of one cell: each is read by itself
        return np.array([_number(x) for x in column.to_pylist()])


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return np.nan


def _seconds(column: "ChunkedArray") -> np.ndarray:
    """Seconds since 1970 of dates and times of day in UTC; NaN where a cell is none."""
    texts = [x and x.removesuffix("Z").removesuffix("+00:00") for x in column.to_pylist()]
    try:
        times = np.array(texts, "datetime64[ns]")
    except ValueError:
        times = np.array([_time(x) for x in texts])
    return np.where(np.isnat(times), np.nan, times.astype(np.int64) / 1e9)


def _time(text: str | None) -> np.datetime64:
    try:
        return np.datetime64(text or "NaT", "ns")
    except ValueError:
        return np.datetime64("NaT", "ns")
