"""Formats of request traces: their columns, units of time, sessions and hashed blocks.

Detailed results of vLLM's and SGLang's benchmarks become columns, and so do CSVs of millions of
rows with pyarrow, which an extra installs.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infer_jax.catalog.foreign import Parsed
from infer_jax.catalog.measurements.cells import Cells
from infer_jax.errors import InputError

if TYPE_CHECKING:
    from pyarrow import ChunkedArray

BLOCK = 512  # tokens a hashed block of Mooncake's traces


class Form(NamedTuple):
    """Columns of a format and the unit of its times in seconds; 0: a date and a time of day.

    ``arrival`` is empty where requests are there at the start.

    ``session``: the column of a conversation's number; ``block``: tokens of a hashed block.
    """

    source: str
    arrival: str
    prompt: str
    output: str
    second: float
    session: str = ""
    block: int = BLOCK


FORMS = (
    # github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024
    Form("azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", 0.0),
    # github.com/HPMLL/BurstGPT
    Form("burstgpt", "Timestamp", "Request tokens", "Response tokens", 1.0, "Session ID"),
    # github.com/kvcache-ai/Mooncake; with session_id as ai-dynamo/dynamo's data generator writes it
    Form("mooncake", "timestamp", "input_length", "output_length", 1e-3, "session_id"),
    # github.com/alibaba-edu/qwen-bailian-usagetraces-anon: a turn names the one before it
    Form("bailian", "timestamp", "input_length", "output_length", 1.0, "chat_id", 16),
    # github.com/alibaba/ServeGen, data/offline/README.md: one batch task each, without times
    Form("servegen offline", "", "input_length", "output_length", 1.0),
    Form("vidur", "arrived_at", "num_prefill_tokens", "num_decode_tokens", 1.0),
    Form("llmservingsim", "arrival_time_ns", "input_toks", "output_toks", 1e-9),
    Form("llmservingsim run", "arrival_time", "input_toks", "output_toks", 1.0),
    Form("apex", "StartTimeOffset", "ContextTokens", "GeneratedTokens", 1e-9),
    Form("plain", "arrival_s", "prompt_tokens", "output_tokens", 1.0, "session"),
)
PARENT = "parent_chat_id"  # of Bailian's: the turn before
# a run of a server: when the engine queued a request, and when it had its first and last token
MEASURED = ("queued_ts", "first_token_ts", "last_token_ts")
UNANSWERED = "burstgpt"  # logs failed requests with no response token: they are dropped
FORMATS = (
    "a trace of Azure, BurstGPT, Mooncake, Dynamo, Bailian, Vidur, LLMServingSim or APEX+, a "
    "detailed result of vLLM's or SGLang's benchmark, or a CSV of arrival_s, prompt_tokens, "
    "output_tokens"
)


def form_of(file: str, columns: Mapping[str, object]) -> Form:
    """The format with these columns.

    Raises:
        InputError: none has any of them, or the nearest one lacks a column.
    """

    def lacks(form: Form) -> list[str]:
        return [name for name in form[1:4] if name and name not in columns]

    def likeness(form: Form) -> tuple[int, int]:
        return sum(name in columns for name in (*form[1:4], form.session)), -len(lacks(form))

    form = max(FORMS, key=likeness)
    missing = lacks(form)
    if len(missing) == sum(map(bool, form[1:4])):
        raise InputError(file, "columns", ", ".join(map(str, columns)), FORMATS)
    if missing:
        allowed = f"the columns {', '.join(form[1:4])} ({form.source})"
        raise InputError(file, missing[0], "missing", allowed)
    return form


def columns_of_runs(runs: Sequence[Cells]) -> Parsed:
    """Fields of a trace: the lengths of one run or more, and times if they are of one clock.

    Raises:
        InputError: lists of unequal length, an empty prompt or response.
    """
    pairs, times, waits, gaps = list[tuple[float, float]](), (), (), []
    for cells in runs:
        sent, lengths = cells.numbers("input_lens"), cells.numbers("output_lens")
        if not sent or len(sent) != len(lengths):
            counts = f"{len(sent)} and {len(lengths)}"
            raise cells.error("input_lens and output_lens", counts, "as many of each, one or more")
        for index, pair in enumerate(zip(sent, lengths, strict=True)):
            if not all(pair):
                at = f"input_lens[{index}], output_lens[{index}]"
                raise cells.error(at, pair, "at least one token each")
            pairs.append(pair)
        times, waits, gaps = cells.numbers("start_times"), cells.numbers("ttfts"), _gaps(cells)
    isl, osl = np.array(pairs).T
    found: Parsed = {"source": "sglang" if "dataset_name" in runs[-1].values else "vllm"}
    if len(runs) > 1 or len(times) != len(pairs):  # clocks of several runs differ
        return {**found, "arrivals": np.zeros(0), "isl": isl, "osl": osl}
    order = np.argsort(times, kind="stable")
    arrivals = np.array(times)[order] - min(times)
    if len(waits) == len(gaps) == len(pairs):
        found["first"] = arrivals + np.array(waits)[order]
        found["last"] = found["first"] + np.array(gaps)[order]
    return {**found, "arrivals": arrivals, "isl": isl[order], "osl": osl[order]}


def _gaps(cells: Cells) -> list[float]:
    """Seconds from the first to the last token of each request; nothing where they are not there.

    Raises:
        InputError: not a list of lists of numbers.
    """
    lists = cells.values.get("itls")
    if not isinstance(lists, list | None):
        raise cells.error("itls", lists, "a list of the times between tokens of each request")
    inside = replace(cells, values={f"itls[{i}]": x for i, x in enumerate(lists or [])})
    return [sum(inside.numbers(name)) for name in inside.values]


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
    whole = np.isfinite(seconds + prompt + output) & (np.minimum(prompt, output) >= 0.0)
    whole &= (seconds >= 0.0) | (second == 0.0)
    session = table.column(names[3]).to_numpy(zero_copy_only=False) if len(names) > 3 else None
    return TraceTable(seconds, prompt, output, session, whole, len(torn))


def _numbers(column: "ChunkedArray") -> np.ndarray:
    try:
        return column.cast("float64").to_numpy()
    except ValueError:  # of one cell
        return _one_by_one(column, float)


def _one_by_one(column: "ChunkedArray", read: Callable[[str], float]) -> np.ndarray:
    """The number of each cell; NaN where ``read`` refuses it."""

    def number(text: str | None) -> float:
        try:
            return read(text or "")
        except ValueError:
            return np.nan

    return np.array([number(x) for x in column.to_pylist()])


def _seconds(column: "ChunkedArray") -> np.ndarray:
    """Seconds since 1970 of dates and times of day; NaN where a cell is none."""
    import pyarrow as pa

    for kind in (pa.timestamp("ns"), pa.timestamp("ns", "UTC")):  # none with a zone, or all
        try:
            times = column.cast(kind).to_numpy()
        except pa.ArrowInvalid:
            continue
        return np.where(np.isnat(times), np.nan, times.astype(np.int64) / 1e9)
    return _one_by_one(column, date_seconds)


def date_seconds(text: str) -> float:
    """Seconds since 1970 of a date and a time of day, UTC where it names no other zone.

    Raises:
        ValueError: no date, such as a number of seconds.

    >>> date_seconds("1970-01-01 00:01:00"), date_seconds("1970-01-01T08:01:00+08:00")
    (60.0, 60.0)
    """
    if text[4:5] != "-":  # 1611011500012, in ms, would be a day of 1611
        raise ValueError(text)
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
