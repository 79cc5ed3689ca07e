"""Request traces of every known format: arrival times, lengths, and cached prefixes.

Traces that hash their prompts (Mooncake, arXiv 2407.00079, Section 4) name each block of 512
tokens by a number that stands for the block and all before it: equal numbers are equal prefixes.
"""

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from infer_jax.catalog.foreign import json_lines
from infer_jax.catalog.measurements.cells import MAX_BYTES, Cells, contents, read_rows
from infer_jax.errors import InputError
from infer_jax.specs import Arrivals, Workload
from infer_jax.specs.lengths import samples

BLOCK = 512  # tokens a hashed block of Mooncake's traces


def cached_tokens(
    hashes: Sequence[Sequence[int]],
    prompts: np.ndarray,
    *,
    block: int = BLOCK,
    capacity: int | None = None,
) -> np.ndarray:
    """Tokens at the start of each prompt that an earlier prompt left in the cache.

    ``hashes`` are the blocks of each prompt in order of arrival, ``prompts`` its tokens;
    ``capacity`` is the cache in blocks, which evicts the least recently used block (None: an
    unbounded cache). Blocks after the first miss do not hit.

    >>> cached_tokens([[1, 2], [1, 2, 3], [4, 2]], np.array([1000.0, 1500.0, 900.0])).tolist()
    [0.0, 1024.0, 0.0]
    """
    kept: OrderedDict[int, None] = OrderedDict()
    cached = np.zeros(len(prompts))
    for index, (blocks, tokens) in enumerate(zip(hashes, prompts, strict=True)):
        hits = 0
        while hits < len(blocks) and blocks[hits] in kept:
            hits += 1
        cached[index] = min(hits * block, float(tokens))
        for one in reversed(blocks):  # the first block last, as it is shared most
            kept[one] = None
            kept.move_to_end(one)
        while capacity is not None and len(kept) > capacity:
            kept.popitem(last=False)
    return cached


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival: one number each of seconds, prompt and output tokens.

    ``arrivals`` is empty where the file has no times, ``hashes`` where it hashes no prompts.
    ``dropped`` counts requests without output, which BurstGPT logs as failed. ``first`` and
    ``last``: seconds of their first and last tokens on a real server, if the file has them.
    """

    file: str
    source: str  # azure, burstgpt, mooncake, vidur, llmservingsim (run), apex, vllm, sglang
    arrivals: np.ndarray
    isl: np.ndarray
    osl: np.ndarray
    hashes: tuple[tuple[int, ...], ...] = ()
    dropped: int = 0
    first: np.ndarray = field(default_factory=lambda: np.zeros(0))
    last: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.isl)

    def prefix(self, *, block: int = BLOCK, capacity: int | None = None) -> np.ndarray:
        """Cached tokens of each prompt; zeros where the trace hashes no prompts.

        ``capacity`` is the cache in blocks of ``block`` tokens; None evicts nothing.
        """
        if not self.hashes:
            return np.zeros_like(self.isl)
        return cached_tokens(self.hashes, self.isl, block=block, capacity=capacity)

    def hit_ratio(self, *, block: int = BLOCK, capacity: int | None = None) -> float:
        """Share of all prompt tokens that are cached (see ``prefix``)."""
        return float(self.prefix(block=block, capacity=capacity).sum() / self.isl.sum())

    @property
    def rate(self) -> float:
        """Requests per second over the span of the trace.

        Raises:
            InputError: no times, or all requests at once.
        """
        return 1.0 / float(self._gaps().mean())

    @property
    def variability(self) -> float:
        """Squared coefficient of variation of the time between arrivals; 1 is Poisson.

        Raises:
            InputError: as ``rate``.
        """
        gaps = self._gaps()
        return float(gaps.var() / gaps.mean() ** 2)

    def workload(
        self,
        *,
        batch: float | None = None,
        rate: float | None = None,
        block: int = BLOCK,
        capacity: int | None = None,
    ) -> Workload:
        """The trace as a workload: the distribution of lengths, prefix hits, and the load.

        Open loop at the trace's own rate, or at ``rate`` with the trace's burstiness; closed
        with ``batch`` requests in flight where that is given.

        Raises:
            InputError: both loads given, or none in a trace without times.
        """
        if batch is not None and rate is not None:
            raise InputError(self.file, "batch and rate", (batch, rate), "one of the two")
        prefix = self.prefix(block=block, capacity=capacity)
        facts = {
            "isl": self.isl.mean(),
            "osl": self.osl.mean(),
            "prefix": prefix.mean(),
            "lengths": samples(self.isl, self.osl, prefix),
        }
        if batch is not None:
            return Workload.of(**facts, batch=batch)
        rate = self.rate if rate is None else rate
        arrivals = Arrivals.of(rate=rate, variability=self.variability)
        return Workload.of(**facts, arrivals=arrivals)

    def _gaps(self) -> np.ndarray:
        gaps = np.diff(self.arrivals)
        if not gaps.sum() > 0.0:
            allowed = "requests at different times, or a batch for a closed loop"
            raise InputError(self.file, "arrival times", "none or all equal", allowed)
        return gaps


class Form(NamedTuple):
    """Columns of a format and the unit of its times in seconds; 0: a date and a time of day."""

    source: str
    arrival: str
    prompt: str
    output: str
    second: float


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


class Request(NamedTuple):
    """A row of a trace; ``measured``: seconds of ``MEASURED`` by the engine's clock; or nothing."""

    arrival: float
    prompt: float
    output: float
    hashes: tuple[int, ...]
    measured: tuple[float, ...]


def read_trace(path: str | os.PathLike[str], line: int = 0) -> Trace:
    """The requests of a trace in order of arrival, the first at time 0.

    ``line``: that of a run in a file of several detailed results; 0: all that the file has.

    Raises:
        InputError: an unknown format, a missing column, a malformed cell, an empty prompt or
            response (with its line), or ShareGPT's conversations, which are text.
    """
    file, text = str(path), contents(path)
    if text.lstrip()[:1] in "{[":
        documents = json_lines(file, text, MAX_BYTES)
        values = [(n, value) for n, value in documents if line in (0, n)]
        first = values[0][1] if values else None
        first = first[0] if isinstance(first, list) and first else first
        if isinstance(first, dict) and "conversations" in first:
            allowed = "a trace with token counts: conversations are text and need a tokenizer"
            raise InputError(file, "", "ShareGPT's conversations", allowed)
        detailed = any(isinstance(value, dict) and "input_lens" in value for _, value in values)
        rows = []
        for n, value in values:
            if not isinstance(value, dict):
                at = f"line {n}" if n else ""
                raise InputError(file, at, "unrecognised contents", FORMATS)
            rows.append(Cells(file, n, value))
        if detailed:
            return _detailed(file, rows)
    else:
        rows = list(read_rows(file, text)[2])
    if not rows:
        raise InputError(file, "", "no requests", FORMATS)
    form = _form(file, rows[0].values)
    requests = [_request(cells, form) for cells in rows]
    answered = [r for r in requests if r.output or form.source != UNANSWERED]
    if not answered:
        raise InputError(file, form.output, "0 in every row", "requests that were answered")
    hashed = [bool(request.hashes) for request in answered]
    if any(hashed) and not all(hashed):
        bare = next(cells for cells in rows if not cells.values.get("hash_ids"))
        raise bare.error("hash_ids", "missing", "the blocks of every prompt, or of none")
    answered.sort(key=lambda request: request.arrival)
    arrivals, isl, osl = np.array([request[:3] for request in answered]).T.copy()
    return Trace(
        file=file,
        source=form.source,
        arrivals=arrivals - arrivals[0],
        isl=isl,
        osl=osl,
        hashes=tuple(request.hashes for request in answered) if any(hashed) else (),
        dropped=len(requests) - len(answered),
        **_measured(answered, arrivals),
    )


def _form(file: str, columns: Mapping[str, object]) -> Form:
    """The format with these columns.

    Raises:
        InputError: none has any of them, or the nearest one lacks a column.
    """
    form = max(FORMS, key=lambda form: sum(name in columns for name in form[1:4]))
    missing = [name for name in form[1:4] if name not in columns]
    if len(missing) == 3:
        raise InputError(file, "columns", ", ".join(map(str, columns)), FORMATS)
    if missing:
        allowed = f"the columns {', '.join(form[1:4])} ({form.source})"
        raise InputError(file, missing[0], "missing", allowed)
    return form


def _request(cells: Cells, form: Form) -> Request:
    numbers = []
    for name in (form.prompt, form.output):
        value = cells.number(name)
        may_be_zero = name == form.output and form.source == UNANSWERED
        if value is None or (value == 0.0 and not may_be_zero):
            raise cells.error(name, cells.values.get(name) or 0, "at least one token")
        numbers.append(value)
    hashes = cells.values.get("hash_ids") or []
    if not isinstance(hashes, list) or not all(type(block) is int for block in hashes):
        raise cells.error("hash_ids", hashes, "a list of whole numbers")
    arrival, times = _arrival(cells, form), [cells.number(name) for name in MEASURED]
    logged = [time for time in times if time is not None]
    if logged and (len(logged) < len(times) or sorted(logged) != logged):
        raise cells.error(", ".join(MEASURED), times, "three times that do not decrease, or none")
    return Request(arrival, numbers[0], numbers[1], tuple(hashes), tuple(logged))


def _measured(requests: list[Request], arrivals: np.ndarray) -> dict[str, np.ndarray]:
    """Seconds of first and last tokens since the first arrival, if every request logs them.

    The engine's clock is shifted so that the shortest time from arrival to queue is 0.
    """
    if not all(request.measured for request in requests):
        return {}
    queued, first, last = np.array([request.measured for request in requests]).T
    shift = np.min(queued - arrivals) + arrivals[0]
    return {"first": first - shift, "last": last - shift}


def _arrival(cells: Cells, form: Form) -> float:
    """Seconds since an origin common to the trace."""
    if form.second:
        value = cells.number(form.arrival, form.second)
        if value is None:
            raise cells.error(form.arrival, "missing", "a time")
        return value
    text = cells.text(form.arrival) or ""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise cells.error(form.arrival, text, "a time as 2023-11-16 18:15:46.680590") from None


def _detailed(file: str, runs: list[Cells]) -> Trace:
    """The lengths in detailed results of vLLM's or SGLang's benchmark, one run or more."""
    starts, prompts, outputs, waits, gaps = [], [], [], [], []
    for cells in runs:
        sent, lengths = cells.numbers("input_lens"), cells.numbers("output_lens")
        if not sent or len(sent) != len(lengths):
            counts = f"{len(sent)} and {len(lengths)}"
            raise cells.error("input_lens and output_lens", counts, "as many of each, one or more")
        for index, pair in enumerate(zip(sent, lengths, strict=True)):
            if not all(pair):
                at = f"input_lens[{index}], output_lens[{index}]"
                raise cells.error(at, pair, "at least one token each")
        times = cells.numbers("start_times")
        starts += times if len(times) == len(sent) else []
        prompts += sent
        outputs += lengths
        waits += cells.numbers("ttfts")
        gaps += _gaps(cells)
    timed = len(runs) == 1 and len(starts) == len(prompts)  # clocks of several runs differ
    order = np.argsort(starts, kind="stable") if timed else np.arange(len(prompts))
    arrivals = np.array(starts)[order] if timed else np.zeros(0)
    arrivals = arrivals - arrivals[:1].sum()
    measured = {}
    if timed and len(waits) == len(gaps) == len(prompts):
        first = arrivals + np.array(waits)[order]
        measured = {"first": first, "last": first + np.array(gaps)[order]}
    return Trace(
        file=file,
        source="sglang" if "dataset_name" in runs[-1].values else "vllm",
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
    lists = cells.values.get("itls", [])
    if lists is not None and not isinstance(lists, list):
        raise cells.error("itls", lists, "a list of the times between tokens of each request")
    by_name = {f"itls[{i}]": values for i, values in enumerate(lists or [])}
    inside = Cells(cells.file, cells.line, by_name, cells.unit)
    return [sum(inside.numbers(name)) for name in by_name]
