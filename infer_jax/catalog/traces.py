"""Request traces of every known format: arrival times, lengths, and cached prefixes.

Traces that hash their prompts (Mooncake, arXiv 2407.00079, Section 4) name each block of 512
tokens by a number that stands for the block and all before it: equal numbers are equal prefixes.
"""

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from infer_jax.catalog.cells import MAX_BYTES, Cells, contents, read_rows
from infer_jax.catalog.foreign import json_lines
from infer_jax.catalog.trace_forms import (
    BLOCK as BLOCK,
    FORMATS,
    MEASURED,
    PARENT,
    UNANSWERED,
    Form,
    columns_of_runs,
    date_seconds,
    form_of,
    read_table,
)
from infer_jax.errors import InputError
from infer_jax.specs import Arrivals, Workload
from infer_jax.specs.lengths import samples


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

    ``arrivals`` is empty where the file has no times, ``hashes`` where it hashes no prompts, in
    blocks of ``block`` tokens. ``sessions`` numbers the conversation of each request; it is empty
    where the file has none. ``dropped`` counts requests without output, which BurstGPT logs as
    failed, ``damaged`` rows that were skipped. ``start``: when the first one came, seconds since
    1970, where the file has dates. ``first`` and ``last``: seconds of their first and last tokens
    on a real server, if the file has them.
    """

    file: str
    source: str  # the name of a form below, vllm or sglang
    arrivals: np.ndarray
    isl: np.ndarray
    osl: np.ndarray
    hashes: tuple[tuple[int, ...], ...] = ()
    block: int = BLOCK
    sessions: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    dropped: int = 0
    damaged: int = 0
    start: float | None = None
    first: np.ndarray = field(default_factory=lambda: np.zeros(0))
    last: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.isl)

    def prefix(self, *, block: int | None = None, capacity: int | None = None) -> np.ndarray:
        """Cached tokens of each prompt; zeros where the trace hashes no prompts.

        ``capacity`` is the cache in blocks of ``block`` tokens (the trace's own where not given);
        None evicts nothing.
        """
        if not self.hashes:
            return np.zeros_like(self.isl)
        return cached_tokens(self.hashes, self.isl, block=block or self.block, capacity=capacity)

    def hit_ratio(self, *, block: int | None = None, capacity: int | None = None) -> float:
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
        block: int | None = None,
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


class Request(NamedTuple):
    """A row of a trace; ``measured``: seconds of ``MEASURED`` by the engine's clock; or nothing."""

    arrival: float
    prompt: float
    output: float
    hashes: tuple[int, ...]
    measured: tuple[float, ...]
    session: object = None


def read_trace(path: str | os.PathLike[str], line: int = 0, *, skip_damaged: bool = False) -> Trace:
    """The requests of a trace in order of arrival, the first at time 0.

    ``line``: that of a run in a file of several detailed results; 0: all that the file has.
    ``skip_damaged``: malformed rows are counted and left out. With pyarrow tables of millions of
    rows take seconds.

    Raises:
        InputError: an unknown format, a missing column, a malformed cell, an empty prompt or
            response (with its line), or ShareGPT's conversations, which are text.
    """
    file, text = str(path), contents(path)
    if text.lstrip()[:1] in "{[":
        rows = _documents(file, text, line)
        if any("input_lens" in cells.values for cells in rows):
            return Trace(file=file, **columns_of_runs(rows))
    else:
        header = read_rows(file, text)[1]
        table = _table(file, text, form_of(file, dict.fromkeys(header)), header, skip_damaged)
        if table is not None:
            return table
        rows = list(read_rows(file, text)[2])
    if not rows:
        raise InputError(file, "", "no requests", FORMATS)
    return _of_rows(file, rows, skip_damaged)


def _documents(file: str, text: str, line: int) -> list[Cells]:
    """The objects of JSON, one to a line; of all lines where ``line`` is 0.

    Raises:
        InputError: not JSON, what is no object, or ShareGPT's conversations.
    """
    values = [(n, x) for n, x in json_lines(file, text, MAX_BYTES) if line in (0, n)]
    first = values[0][1] if values else None
    first = first[0] if isinstance(first, list) and first else first
    if isinstance(first, dict) and "conversations" in first:
        allowed = "a trace with token counts: conversations are text and need a tokenizer"
        raise InputError(file, "", "ShareGPT's conversations", allowed)
    rows = list[Cells]()
    for n, value in values:
        if not isinstance(value, dict):
            raise InputError(file, f"line {n}" if n else "", "unrecognised contents", FORMATS)
        rows.append(Cells(file, n, value))
    return rows


def _of_rows(file: str, rows: list[Cells], skip_damaged: bool) -> Trace:
    """A trace row by row.

    Raises:
        InputError: as ``read_trace``.
    """
    form = form_of(file, rows[0].values)
    requests, roots, wrong = list[Request](), dict[object, object](), list[InputError]()
    for cells in rows:
        try:
            requests.append(_request(cells, form, roots))
        except InputError as error:
            wrong.append(error)
            if not skip_damaged or len(wrong) == len(rows):
                raise wrong[0] from None
    times, isl, osl, hashes, measured, ids = zip(*requests, strict=True)
    if not any(osl):
        raise InputError(file, form.output, "0 in every row", "requests that were answered")
    if any(hashes) and not all(hashes):
        bare = next(cells for cells in rows if not cells.values.get("hash_ids"))
        raise bare.error("hash_ids", "missing", "the blocks of every prompt, or of none")
    columns = np.array([times, isl, osl])
    trace, order = _trace(file, form, columns, ids, damaged=len(wrong))
    if any(hashes):
        trace = replace(trace, hashes=tuple(hashes[i] for i in order))
    if all(measured):  # by the engine's clock, on which the shortest way to its queue takes no time
        queued, first, last = np.array(measured)[order].T
        arrivals = np.array(times)[order]
        shift = np.min(queued - arrivals) + arrivals[0]
        trace = replace(trace, first=first - shift, last=last - shift)
    return trace


def _table(
    file: str, text: str, form: Form, header: Sequence[str], skip_damaged: bool
) -> Trace | None:
    """A trace of a CSV by columns; None where its rows have to be read one by one.

    That is where pyarrow is not installed, or a row is damaged and not to be skipped: then the
    error names its line.
    """
    names = [*form.columns, *(x for x in (form.session,) if x in header)]
    table = read_table(text, names, form.second) if form.arrival else None
    if table is None:
        return None
    (seconds, prompt, output), ids, torn = table
    answered = output > 0.0
    whole = np.isfinite(seconds + prompt + output) & (prompt > 0.0) & (output >= 0.0)
    whole &= (seconds >= 0.0) | (form.second == 0.0)  # dates may lie before 1970
    if form.source != UNANSWERED:
        whole &= answered
    damaged = int(np.sum(~whole)) + torn
    if not (whole & answered).any() or (damaged and not skip_damaged):
        return None
    ids = ids[whole] if len(ids) else ids
    return _trace(file, form, np.array([seconds, prompt, output])[:, whole], ids, damaged)[0]


def _trace(
    file: str, form: Form, columns: np.ndarray, ids: Sequence[object] | np.ndarray, damaged: int
) -> tuple[Trace, np.ndarray]:
    """A trace of columns (seconds, prompts, outputs), and the rows that it has in its order."""
    seconds, prompts, outputs = columns
    answered = np.flatnonzero(outputs > 0.0)
    order = answered[np.argsort(seconds[answered], kind="stable")]
    times = seconds[order]
    trace = Trace(
        file=file,
        source=form.source,
        arrivals=times - times[0] if form.arrival else np.zeros(0),
        isl=prompts[order],
        osl=outputs[order],
        block=form.block,
        sessions=_numbered([ids[i] for i in order] if len(ids) else ids),
        dropped=len(outputs) - len(order),
        damaged=damaged,
        start=None if form.second else float(times[0]),
    )
    return trace, order


def _numbered(ids: Sequence[object] | np.ndarray) -> np.ndarray:
    """Numbers of conversations in the order in which they begin; empty where none has an id.

    A request without one is a conversation by itself.

    >>> _numbered(["b", "", "b", None]).tolist(), _numbered([None, ""]).tolist()
    ([0, 1, 0, 2], [])
    """
    known, bare = dict[object, int](), (None, "")
    if all(x in bare for x in ids):
        return np.zeros(0, int)
    return np.array([known.setdefault(object() if x in bare else x, len(known)) for x in ids], int)


def _request(cells: Cells, form: Form, roots: dict[object, object]) -> Request:
    """A row; ``roots``: the first turn of each conversation that goes on, which it adds to."""
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
    session = cells.values.get(form.session)
    if isinstance(session, list | dict):
        raise cells.error(form.session, session, "a number or a name")
    session = None if session in ("", None) else session
    if form.source == "bailian":  # chains of turns, of which each names the one before
        session = roots.setdefault(session, roots.get(cells.values.get(PARENT), session))
    return Request(arrival, numbers[0], numbers[1], tuple(hashes), tuple(logged), session)


def _arrival(cells: Cells, form: Form) -> float:
    """Seconds since an origin common to the trace."""
    if not form.arrival:
        return 0.0
    if form.second:
        value = cells.number(form.arrival, form.second)
        if value is None:
            raise cells.error(form.arrival, "missing", "a time")
        return value
    text = cells.text(form.arrival) or ""
    try:
        return date_seconds(text)
    except ValueError:
        raise cells.error(form.arrival, text, "a time as 2023-11-16 18:15:46.680590") from None
