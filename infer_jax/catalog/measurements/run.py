"""One measured serving run, and one timed kernel: plain data in SI units, with file and line.

Every format is read into these records. What a format does not contain (most name no chips and
no parallelism) is None until the user gives it: see `infer_jax.catalog.measurements.reading`.
A format is a table of columns, from field to cells, which ``read_record`` reads.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from infer_jax.catalog.cells import Cells, Statistic
from infer_jax.errors import InputError

SCALES = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}  # seconds, by the end of a cell's name
Record = TypeVar("Record")

# facts of a run that a file may lack: texts and numbers
TEXTS = ("engine", "version", "model", "system", "date", "precision")
NUMBERS = (
    *("chips", "tp", "pp", "dp", "ep", "polling", "balance_timeout"),
    *("isl", "osl", "prefix", "concurrency", "request_rate"),
)


@dataclass(frozen=True)
class Speculation:
    """Measurements of speculative decoding; rates are shares, lengths tokens per pass.

    ``per_position`` is the share of drafts accepted at least up to each position.
    """

    method: str = ""
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    per_position: tuple[float, ...] = ()


@dataclass(frozen=True)
class WorkerPool:
    """One half of a disaggregated deployment: equal workers and how each is laid out."""

    role: str  # prefill or decode
    workers: float | None = None
    chips: float | None = None  # of the whole pool
    tp: float | None = None
    pp: float | None = None
    dp: float | None = None
    ep: float | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measured serving run. Times in seconds, lengths in tokens, power in W per chip.

    ``tpot`` leaves the first token out, whatever the file's definition was; ``tpot_from`` names
    that definition. ``dp`` is attention data parallelism, ``ep`` the expert-parallel
    degree; ``tp`` x ``dp`` x ``pp`` chips make a server. A run of ``concurrency`` keeps that
    many requests in flight (closed loop); one of ``request_rate`` sends that many per second
    (open loop), whatever limit ``concurrency`` then sets. A server that looks for new requests
    every ``polling`` passes, or lets prompts wait ``balance_timeout`` passes for those of other
    attention groups, says so. ``max_num_seqs`` sequences run at once
    and ``max_num_batched_tokens`` are fed in a pass, where the server's arguments are known.
    """

    file: str
    line: int  # or the number of the entry; 0: the whole file
    unit: str = "line"
    source: str = ""  # vllm, sglang, aiperf, inferencex, mlperf, csv, request log, ...
    engine: str | None = None
    version: str | None = None
    model: str | None = None
    system: str | None = None
    date: str | None = None
    precision: str | None = None
    chips: float | None = None
    tp: float | None = None
    pp: float | None = None
    dp: float | None = None
    ep: float | None = None
    polling: float | None = None
    balance_timeout: float | None = None
    pools: tuple[WorkerPool, ...] = ()
    isl: float | None = None
    osl: float | None = None
    prefix: float | None = None
    input_lens: tuple[float, ...] = ()
    output_lens: tuple[float, ...] = ()
    concurrency: float | None = None
    request_rate: float | None = None
    burstiness: float | None = None
    max_num_seqs: float | None = None
    max_num_batched_tokens: float | None = None
    ttft: Statistic = field(default_factory=Statistic)
    tpot: Statistic = field(default_factory=Statistic)
    itl: Statistic = field(default_factory=Statistic)
    e2el: Statistic = field(default_factory=Statistic)
    tpot_from: str = "time after the first token over the tokens after the first"
    request_throughput: float | None = None  # requests/s
    output_throughput: float | None = None  # output tokens/s
    duration: float | None = None
    completed: float | None = None
    failed: float = 0.0
    rate_limited: float = 0.0
    power: float | None = None
    energy: float | None = None  # J, all chips
    speculation: Speculation | None = None
    notes: tuple[str, ...] = ()

    @property
    def loop(self) -> str:
        """``open`` (arrivals), ``closed`` (fixed concurrency), or ``burst`` (all at once)."""
        if self.request_rate is not None:
            return "open"
        return "burst" if self.concurrency is None else "closed"

    @property
    def place(self) -> str:
        """File, and line where a file holds many runs."""
        return f"{self.file}, {self.unit} {self.line}" if self.line else self.file

    @property
    def figures(self) -> dict[str, float | None]:
        """What was measured, by the names of a server's outputs and in their units."""
        speed = self.output_throughput
        return {
            "ttft": self.ttft.mean,
            "ttft_median": self.ttft.at(50.0),
            "tpot": self.tpot.typical,
            "latency": self.e2el.typical,
            "throughput": speed / self.chips if speed and self.chips else None,
            "power": self.power,
        }

    def require(self, *names: str) -> None:
        """Raise where a fact is missing, saying how to give it.

        Raises:
            InputError: one of ``names`` is None.
        """
        for name in names:
            if getattr(self, name) is None:
                allowed = f"{name} given as an option or in a sidecar"
                raise InputError(self.place, name, "not in the file", allowed)

    def replace(self, **changes: object) -> "Run":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, kw_only=True)
class MeasuredKernel:
    """One measured operation. ``sizes`` holds its sizes by name: m, k, n; bytes; batch_size ...

    ``moved`` is the message of a collective in bytes (its size as the benchmark counts it).
    """

    file: str
    line: int  # or the number of the entry; 0: the whole file
    source: str  # nccl-tests, microbenchmarks, kernel-tables
    operation: str  # all_reduce, gemm, mha.decode ...
    variant: str = ""
    seconds: float
    sizes: Mapping[str, float] = field(default_factory=dict)
    dtype: str = ""
    chips: float | None = None
    device: str = ""
    percentiles: tuple[tuple[float, float], ...] = ()


def read_record(
    kind: type[Record], cells: Cells, columns: Mapping[str, str], **fields: object
) -> Record:
    """A record of ``kind`` whose fields are read of the cells that ``columns`` names, by type.

    A column names cells in the order in which they are tried; those of a statistic have ``{}``
    for mean or p99 and are read together. A number's unit of time is the end of its cell's name.

    Raises:
        InputError: a malformed cell.
    """
    types = _types(kind)
    for field_name, column in columns.items():
        units, type_of = _units(column), types[field_name]
        if type_of is Statistic:
            fields[field_name] = cells.statistic(units)
            continue
        for name, scale in units.items():
            if type_of == tuple[float, ...]:
                value: object = cells.numbers(name)
            elif type_of == str | None:
                value = cells.text(name)
            else:
                value = cells.number(name, scale)
            if value is not None:
                fields[field_name] = value
                break
    return kind(**fields)


@cache
def _types(kind: type) -> dict[str, object]:
    return {x.name: x.type for x in dataclasses.fields(kind)}


@cache
def _units(column: str) -> dict[str, float]:
    return {name: SCALES.get(name.rpartition("_")[2], 1.0) for name in column.split()}


def read_run(cells: Cells, columns: Mapping[str, str], **fields: object) -> Run:
    """A run at the place of the cells, as ``read_record`` reads it."""
    place = {"file": cells.file, "line": cells.line, "unit": cells.unit}
    return read_record(Run, cells, columns, **place, **fields)
