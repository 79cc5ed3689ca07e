"""Reads request traces of every known format, recognised by their columns."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np

from infer_jax.catalog.foreign import csv_rows, json_lines
from infer_jax.catalog.measurements.cells import MAX_BYTES, Cells, contents
from infer_jax.catalog.traces.trace import Trace
from infer_jax.errors import InputError


class Form(NamedTuple):
    """Columns of a format and the unit of its times in seconds; 0: a date and a time of day."""

    source: str
    arrival: str
    prompt: str
    output: str
    second: float

    @property
    def columns(self) -> tuple[str, str, str]:
        """The three columns it must have."""
        return (self.arrival, self.prompt, self.output)


FORMS = (
    Form("azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", 0.0),
    Form("burstgpt", "Timestamp", "Request tokens", "Response tokens", 1.0),
    Form("mooncake", "timestamp", "input_length", "output_length", 1e-3),
    Form("vidur", "arrived_at", "num_prefill_tokens", "num_decode_tokens", 1.0),
    Form("llmservingsim", "arrival_time_ns", "input_toks", "output_toks", 1e-9),
    Form("llmservingsim run", "arrival_time", "input_toks", "output_toks", 1.0),
    Form("apex", "StartTimeOffset", "ContextTokens", "GeneratedTokens", 1e-9),
)
# a run of a server: when the engine queued a request, and when it had its first and last token
MEASURED = ("queued_ts", "first_token_ts", "last_token_ts")
UNANSWERED = "burstgpt"  # logs failed requests with no response token: they are dropped
FORMATS = (
    "a trace of Azure, BurstGPT, Mooncake, Vidur, LLMServingSim or APEX+, or a detailed result "
    "of vLLM's or SGLang's benchmark"
)


@dataclass(frozen=True)
class _Request:
    arrival: float
    prompt: float
    output: float
    hashes: tuple[int, ...]
    measured: tuple[float, ...]  # seconds of ``MEASURED`` by the engine's clock; or nothing


def read_trace(path: str | os.PathLike[str], line: int = 0) -> Trace:
    """The requests of a trace in order of arrival, the first at time 0.

    ``line``: that of a run in a file of several detailed results; 0: all that the file has.

    Raises:
        InputError: an unknown format, a missing column, a malformed cell, an empty prompt or
            response (with its line), or ShareGPT's conversations, which are text.
    """
    file, text = str(path), contents(path)
    if text.lstrip()[:1] in "{[":
        lines = [each for each in json_lines(file, text, MAX_BYTES) if line in (0, each[0])]
        values = [value for _, value in lines]
        if _is_text(values):
            allowed = "a trace with token counts: conversations are text and need a tokenizer"
            raise InputError(file, "", "ShareGPT's conversations", allowed)
        if any(isinstance(value, dict) and "input_lens" in value for value in values):
            return _detailed(file, lines)
        rows = [Cells(file, line, _object(file, line, value)) for line, value in lines]
    else:
        table = csv_rows(file, text)
        _, header = next(table)
        rows = [Cells(file, line, dict(zip(header, row, strict=False))) for line, row in table]
    if not rows:
        raise InputError(file, "", "no requests", FORMATS)
    form = _form(file, rows[0].values)
    requests = [_request(cells, form) for cells in rows]
    answered = [r for r in requests if r.output or form.source != UNANSWERED]
    dropped = len(requests) - len(answered)
    if not answered:
        raise InputError(file, form.output, "0 in every row", "requests that were answered")
    answered.sort(key=lambda request: request.arrival)
    return Trace(
        file=file,
        source=form.source,
        arrivals=np.array([r.arrival for r in answered]) - answered[0].arrival,
        isl=np.array([r.prompt for r in answered]),
        osl=np.array([r.output for r in answered]),
        hashes=_hashes(file, rows, answered),
        dropped=dropped,
        **_measured(answered),
    )


def _is_text(values: list[object]) -> bool:
    first = values[0] if values else None
    first = first[0] if isinstance(first, list) and first else first
    return isinstance(first, dict) and "conversations" in first


def _object(file: str, line: int, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        at = f"line {line}" if line else ""
        raise InputError(file, at, "unrecognised contents", FORMATS)
    return value


def _form(file: str, columns: Mapping[str, object]) -> Form:
    """The format with these columns.

    Raises:
        InputError: none has any of them, or the nearest one lacks a column.
    """
    form = max(FORMS, key=lambda form: sum(name in columns for name in form.columns))
    missing = [name for name in form.columns if name not in columns]
    if len(missing) == len(form.columns):
        raise InputError(file, "columns", ", ".join(map(str, columns)), FORMATS)
    if missing:
        allowed = f"the columns {', '.join(form.columns)} ({form.source})"
        raise InputError(file, missing[0], "missing", allowed)
    return form


def _request(cells: Cells, form: Form) -> _Request:
    numbers = []
    for name in (form.prompt, form.output):
        value = cells.number(name)
        zero = name == form.output and form.source == UNANSWERED
        if value is None or (value == 0.0 and not zero):
            raise cells.error(name, cells.values.get(name) or 0, "at least one token")
        numbers.append(value)
    hashes = cells.values.get("hash_ids") or []
    if not isinstance(hashes, list) or not all(type(one) is int for one in hashes):
        raise cells.error("hash_ids", hashes, "a list of whole numbers")
    arrival, times = _arrival(cells, form), [cells.number(name) for name in MEASURED]
    logged = [time for time in times if time is not None]
    if logged and (len(logged) < len(times) or sorted(logged) != logged):
        raise cells.error(", ".join(MEASURED), times, "three times that do not decrease, or none")
    return _Request(arrival, numbers[0], numbers[1], tuple(hashes), tuple(logged))


def _measured(requests: list[_Request]) -> dict[str, np.ndarray]:
    """Seconds of first and last tokens since the first arrival, if every request logs them.

    The engine's clock is shifted so that the shortest time from arrival to queue is 0.
    """
    if not all(request.measured for request in requests):
        return {}
    queued, first, last = np.array([request.measured for request in requests]).T
    arrivals = np.array([request.arrival for request in requests])
    ahead = np.min(queued - arrivals) + arrivals[0]
    return {"first": first - ahead, "last": last - ahead}


def _arrival(cells: Cells, form: Form) -> float:
    """Seconds since an origin common to the trace."""
    if form.second:
        value = cells.number(form.arrival, form.second)
        if value is None:
            raise cells.error(form.arrival, "missing", "a time")
        return value
    given = cells.text(form.arrival) or ""
    try:
        return (
            datetime.fromisoformat(given).replace(tzinfo=None) - datetime(1970, 1, 1)
        ).total_seconds()
    except ValueError:
        raise cells.error(form.arrival, given, "a time as 2023-11-16 18:15:46.680590") from None


def _hashes(file: str, rows: list[Cells], requests: list[_Request]) -> tuple[tuple[int, ...], ...]:
    """The blocks of every prompt; nothing where no prompt is hashed.

    Raises:
        InputError: some prompts are hashed and some are not.
    """
    hashed = [bool(request.hashes) for request in requests]
    if not any(hashed):
        return ()
    if not all(hashed):
        bare = next(cells for cells in rows if not cells.values.get("hash_ids"))
        raise bare.error("hash_ids", "missing", "the blocks of every prompt, or of none")
    return tuple(request.hashes for request in requests)


def _detailed(file: str, lines: list[tuple[int, object]]) -> Trace:
    """The lengths in detailed results of vLLM's or SGLang's benchmark, one run or more."""
    starts, prompts, outputs, waits, gaps = [], [], [], [], []
    source = "vllm"
    for line, value in lines:
        cells = Cells(file, line, _object(file, line, value))
        source = "sglang" if "dataset_name" in cells.values else "vllm"
        sent, lengths = cells.numbers("input_lens"), cells.numbers("output_lens")
        if not sent or len(sent) != len(lengths):
            counts = f"{len(sent)} and {len(lengths)}"
            raise cells.error("input_lens and output_lens", counts, "as many of each, one or more")
        for index, (prompt, output) in enumerate(zip(sent, lengths, strict=True)):
            if not (prompt and output):
                at = f"input_lens[{index}], output_lens[{index}]"
                raise cells.error(at, (prompt, output), "at least one token each")
        times = cells.numbers("start_times")
        starts += times if len(times) == len(sent) else []
        prompts += sent
        outputs += lengths
        waits += cells.numbers("ttfts")
        gaps += _gaps(cells)
    timed = len(lines) == 1 and len(starts) == len(prompts)  # clocks of several runs differ
    order = np.argsort(starts, kind="stable") if timed else np.arange(len(prompts))
    arrivals = np.array(starts)[order] if timed else np.zeros(0)
    arrivals = arrivals - arrivals[:1].sum()
    measured = {}
    if timed and len(waits) == len(gaps) == len(prompts):
        first = arrivals + np.array(waits)[order]
        measured = {"first": first, "last": first + np.array(gaps)[order]}
    return Trace(
        file=file,
        source=source,
        arrivals=arrivals,
        isl=np.array(prompts)[order],
        osl=np.array(outputs)[order],
        **measured,
    )


def _gaps(cells: Cells) -> list[float]:
    """Seconds from the first to the last token of each request; nothing where they are not there.

    Raises:
        InputError: not a list of lists of numbers.
    """
    each = cells.values.get("itls")
    if each is None:
        return []
    if not isinstance(each, list):
        raise cells.error("itls", each, "a list of the times between tokens of each request")
    named = {f"itls[{i}]": values for i, values in enumerate(each)}
    inside = Cells(cells.file, cells.line, named, cells.unit)
    return [sum(inside.numbers(name)) for name in named]
