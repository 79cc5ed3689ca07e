"""Formats of request traces: their columns, units of time, sessions and hashed blocks.

Detailed results of vLLM's and SGLang's benchmarks become columns, and so do CSVs of millions of
rows with pyarrow, which an extra installs.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infer_jax.catalog.cells import Cells
from infer_jax.catalog.foreign import Parsed
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

    @property
    def columns(self) -> list[str]:
        """The columns that it needs."""
        return [name for name in self[1:4] if name]


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

    def likeness(form: Form) -> tuple[int, int]:
        there = sum(name in columns for name in form.columns)
        return there + (form.session in columns), there - len(form.columns)

    form = max(FORMS, key=likeness)
    missing = [name for name in form.columns if name not in columns]
    if missing == form.columns:
        raise InputError(file, "columns", ", ".join(map(str, columns)), FORMATS)
    if missing:
        allowed = f"the columns {', '.join(form.columns)} ({form.source})"
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
    columns = {"isl": isl, "osl": osl, "arrivals": np.zeros(0)}
    if len(runs) == 1 and len(times) == len(pairs):  # clocks of several runs differ
        columns["arrivals"] = np.array(times) - min(times)
        if len(waits) == len(gaps) == len(pairs):
            columns["first"] = columns["arrivals"] + waits
            columns["last"] = columns["first"] + gaps
        order = np.argsort(times, kind="stable")
        columns = {name: x[order] for name, x in columns.items()}
    return {"source": "sglang" if "dataset_name" in runs[-1].values else "vllm", **columns}


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


def read_table(
    text: str, names: Sequence[str], second: float
) -> tuple[list[np.ndarray], np.ndarray, int] | None:
    """Seconds, prompt and output tokens of the rows of a CSV; sessions; how many rows are torn.

    Numbers are NaN where a cell is none. Sessions are any values, equal in one conversation, and
    none where ``names`` has no fourth column. A torn row has another number of cells than the
    header, and is in no column. ``second``: the unit of the times in seconds; 0: dates and times of
    day. None where pyarrow is not installed, or does not read the text as a table.
    """
    try:
        import pyarrow as pa
        from pyarrow import csv
    except ImportError:
        return None
    torn, skip = list[object](), "skip"
    kinds = dict.fromkeys(names, pa.string())
    convert = csv.ConvertOptions(include_columns=[*names], column_types=kinds)
    try:
        data = io.BytesIO(text.encode())
        parse = csv.ParseOptions(invalid_row_handler=lambda row: torn.append(row) or skip)
        table = csv.read_csv(data, parse_options=parse, convert_options=convert)
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None
    arrival, prompt, output, *session = (table.column(name) for name in names)
    seconds = _numbers(arrival, dates=second == 0.0) * (second or 1.0)
    ids = session[0].to_numpy(zero_copy_only=False) if session else np.zeros(0)
    return [seconds, _numbers(prompt), _numbers(output)], ids, len(torn)


def _numbers(column: "ChunkedArray", dates: bool = False) -> np.ndarray:
    """The number of each cell, of dates and times of day seconds since 1970; NaN where none is."""
    import pyarrow as pa

    times = pa.timestamp("ns"), pa.timestamp("ns", "UTC")  # none with a zone, or all
    for kind in times if dates else (pa.float64(),):
        try:
            numbers = column.cast(kind).cast("int64" if dates else "float64").to_numpy()
        except pa.ArrowInvalid:  # one cell is none
            continue
        return numbers / 1e9 if dates else numbers

    def number(text: str | None) -> float:
        try:
            return date_seconds(text or "") if dates else float(text or "")
        except ValueError:
            return np.nan

    return np.array([number(x) for x in column.to_pylist()])


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
