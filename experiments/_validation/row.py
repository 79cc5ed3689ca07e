"""One measured row as the estimators take it, and rows that are left out, counted by reason."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from infer_jax.catalog import System, load_model, load_system
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import (
    Deployment,
    Serving,
    ServingWorkload,
    Shape,
    formatted,
    shape,
)
from infer_jax.specs import Architecture, Experts, Format

BLOCKS = 3  # kinds of layers that a model has at most; one with more is left out
METRICS = ("tpot", "ttft", "ttft_mean", "ttft_median", "throughput", "e2e", "latency", "power")
Cells = Mapping[str, str | None]  # of a row, by column
Asked = Literal["loop", "batch", "pass", "pools", "replay"]
# models that are not bundled and differ from one that is in these numbers alone
ALIKE = {"llama-2-70b": ("llama-3.1-70b", {"vocabulary": 32000})}


class Formats(NamedTuple):
    """Bytes and matmul bits of a checkpoint's matrices, and bytes of a cached number.

    ``dynamic``: classes of products (attention, feedforward) whose activations are quantised as
    they run.
    """

    attention: tuple[float, float]
    feedforward: tuple[float, float]
    shared: tuple[float, float]
    cache: float
    dynamic: float


# 0.5625 bytes: 4 bits and a scale of 8 bits for each 16 (NVFP4); 0.53: for each 32 (MXFP4)
NVFP4, MXFP4, FP8, BF16 = (0.5625, 4.0), (0.53, 4.0), (1.0, 8.0), (2.0, 16.0)


class Served(NamedTuple):
    """A bundled model in the number formats of a server."""

    model: str
    formats: Formats

    def architecture(self) -> Architecture:
        """The architecture in these formats."""
        return _architecture(self)

    def shape(self) -> Shape:
        """The same as the serving estimator reads it."""
        return _shape(self)


@cache
def bundled(name: str) -> Architecture:
    """A bundled architecture, or one like it, loaded once."""
    alike, other = ALIKE.get(name, (name, {}))
    return load_model(alike).architecture.with_(**other)


@cache
def mixture(name: str) -> bool:
    """True for a mixture of experts."""
    return any(isinstance(b.feedforward, Experts) for b in bundled(name).blocks)


@cache
def system(name: str) -> System:
    """A bundled profile, loaded once."""
    return load_system(name)


@cache
def _architecture(served: Served) -> Architecture:
    f = served.formats

    def stored(given: tuple[float, float]) -> Format:
        return Format.of(bytes=given[0], bits=given[1])

    arch = bundled(served.model)
    cached = arch.cache.replace(bytes=np.asarray(f.cache))
    return formatted(
        arch,
        attention=stored(f.attention),
        dense=stored(f.feedforward if not mixture(served.model) else f.attention),
        experts=stored(f.feedforward),
        shared=stored(f.shared),
        cache=cached,
    )


@cache
def _shape(served: Served) -> Shape:
    seen = shape(_architecture(served), blocks=BLOCKS)
    return seen._replace(quantised=np.asarray(served.formats.dynamic))  # pyright: ignore[reportArgumentType]


class Replayed(Protocol):
    """A measured run that is replayed request by request."""

    def answers(self, model: Serving) -> dict[str, np.ndarray]:
        """Each metric, a number for each of the run's rows."""
        ...


@dataclass(frozen=True, kw_only=True)
class Row:
    """A measured row: what was served on what, what was asked of it, and the answers in SI units.

    ``asked``: ``loop``, requests kept in flight; ``batch``, one batch of equal requests from start
    to end; ``pass``, passes of prompts or of decoding alone; ``pools``, prefill and decode apart;
    ``replay``, what ``replayed`` says of every request. ``group``: rows of one server share it.
    ``fitted``: whether the shipped fit saw this very row. ``acceptance``: of drafts, where the row
    knows it. ``per``: share of all chips that throughput is of. ``balanced``: whether all experts
    were given as many tokens. ``metered``: share of the power meter's time in which the server was
    busy. ``rates``: factors of the data sheet's memory and link bandwidth. ``place``: where in the
    answers of a replay the row's own are.
    """

    id: str
    dataset: str
    measured: Mapping[str, float]
    group: str
    system: str
    engine: str
    served: Served | None = None
    work: ServingWorkload | None = None
    plan: Deployment | Pools | None = None
    asked: Asked = "loop"
    fitted: bool = False
    acceptance: float | None = None
    date: str = ""
    per: float = 1.0
    balanced: float = 0.0
    kept: float = 1.0
    metered: float = 1.0
    rates: tuple[float, ...] = (1.0, 1.0)
    replayed: "Replayed | None" = None
    place: int = 0


Skipped = Counter[str]


@dataclass
class Read:
    """The rows of one file, and how many were left out, by reason."""

    rows: list[Row] = field(default_factory=list)
    skipped: Skipped = field(default_factory=Counter)

    def add(self, other: "Read") -> None:
        """Take the rows of another file in, too."""
        self.rows += other.rows
        self.skipped += other.skipped


class UnusableError(Exception):
    """A row is left out, for the reason given."""


Item = TypeVar("Item")


def rows_of(items: Iterable[Item], read: Callable[[Item], Row | None]) -> Read:
    """The rows that ``read`` makes of items; unusable ones are counted by reason."""
    out = Read()
    for item in items:
        try:
            row = read(item)
        except UnusableError as left:
            out.skipped[str(left)] += 1
        else:
            if row is not None:
                out.rows.append(row)
    return out


def number(cells: Cells, name: str, least: float = 0.0) -> float:
    """A cell that must be a finite number above ``least``.

    Raises:
        UnusableError: empty, no number, or not above it.
    """
    value = optional(cells, name, least)
    if value is None:
        raise UnusableError(f"{name} is missing")
    return value


def optional(cells: Cells, name: str, least: float = 0.0) -> float | None:
    """A cell that may be empty; otherwise as ``number``.

    Raises:
        UnusableError: no number, or not above ``least``.
    """
    text = (cells.get(name) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise UnusableError(f"{name} is no number") from None
    if not (math.isfinite(value) and value > least):
        raise UnusableError(f"{name} is not above {least:g}")
    return value


def known(table: Mapping[str, Item], cells: Cells, name: str) -> Item:
    """What a word in a cell stands for.

    Raises:
        UnusableError: a word that is not in the table.
    """
    word = (cells.get(name) or "").strip()
    if word not in table:
        raise UnusableError(f"{name} {word!r} is not known here" if word else f"{name} is missing")
    return table[word]
