"""A measured row in the terms of the serving estimator, and the parsing of its cells."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from infer_jax.catalog import System, load_model, load_system
from infer_jax.engines.engine import BUDGET, months_before
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment, ServingWorkload, Shape, shape, with_formats
from infer_jax.specs import Architecture, Experts, Format

BLOCKS = 3  # kinds of layers that all stacked models are padded to; a model with more is left out
METRICS = ("tpot", "ttft", "ttft_mean", "ttft_median", "throughput", "e2e", "latency", "power")
Cells = Mapping[str, str | None]  # of a row, by column
Mode = Literal["loop", "batch", "pass", "pools", "replay"]
# models that are not bundled, as the bundled one from which they differ in these numbers alone
VARIANTS = {"llama-2-70b": ("llama-3.1-70b", {"vocabulary": 32000})}
AMD = ("mi300x", "mi325x", "mi355x")  # profiles of AMD's chips


def prefill_batches(ranks: float, isl: float) -> dict[str, float]:
    """Prompts of a pass of a prefill instance: one on each rank, and as many as its tokens hold."""
    return {"prefill_batch": ranks, "full_batch": ranks * max(BUDGET // isl, 1.0)}


class StoredFormats(NamedTuple):
    """Bytes and matmul bits of a checkpoint's matrices, and bytes of a cached number.

    ``dynamic``: how many classes of products (attention, feedforward) quantise their activations
    at run time.
    """

    attention: tuple[float, float]
    feedforward: tuple[float, float]
    shared: tuple[float, float]
    cache: float
    dynamic: float


# 0.5625 bytes: 4 bits and a scale of 8 bits for each 16 (NVFP4); 0.53: for each 32 (MXFP4)
NVFP4, MXFP4, FP8, BF16 = (0.5625, 4.0), (0.53, 4.0), (1.0, 8.0), (2.0, 16.0)


def nvfp4_formats(model: str) -> StoredFormats:
    """NVFP4 checkpoints: mixtures keep attention in bf16, DeepSeek's all but its output projection.

    That is 117 of 187 million elements of a layer's attention (nvidia/DeepSeek-R1-0528-FP4-v2:
    "additionally quantizes the wo module"): 1.1 bytes an element, multiplied at about the rate of
    8 bits.
    """
    if not is_mixture(model):
        return StoredFormats(NVFP4, NVFP4, NVFP4, 1.0, 2.0)
    if model == "deepseek-r1":
        return StoredFormats((1.1, 8.0), NVFP4, NVFP4, 1.0, 1.0)
    return StoredFormats(BF16, NVFP4, NVFP4, 1.0, 1.0)


def gpt_oss_formats(bits: float) -> StoredFormats:
    """MXFP4 experts, in whatever precision a row is labelled, multiplied in ``bits`` bits."""
    return StoredFormats(BF16, (0.53, bits), BF16, 2.0, 0.0)


UNDATED = 5.0  # months


class ServedModel(NamedTuple):
    """A bundled model in the number formats of a server."""

    model: str
    formats: StoredFormats

    @cache  # noqa: B019  of the few models that were measured
    def architecture(self) -> Architecture:
        """The architecture in these formats."""
        f, arch = self.formats, architecture_named(self.model)
        attention, feedforward, shared = (
            Format.of(bytes=size, bits=bits)
            for size, bits in (f.attention, f.feedforward, f.shared)
        )
        return with_formats(
            arch,
            attention=attention,
            dense=attention if is_mixture(self.model) else feedforward,
            experts=feedforward,
            shared=shared,
            cache=arch.cache.replace(bytes=np.asarray(f.cache)),
        )

    @cache  # noqa: B019
    def shape(self) -> Shape:
        """The same as the serving estimator reads it."""
        lowered = shape(self.architecture(), blocks=BLOCKS)
        return lowered._replace(quantised=np.asarray(self.formats.dynamic))  # pyright: ignore[reportArgumentType]


@cache
def architecture_named(name: str) -> Architecture:
    """A bundled architecture or a variant of one, loaded once."""
    bundled, changes = VARIANTS.get(name, (name, {}))
    return load_model(bundled).architecture.with_(**changes)


@cache
def is_mixture(name: str) -> bool:
    """True for a mixture of experts."""
    return any(isinstance(b.feedforward, Experts) for b in architecture_named(name).blocks)


@cache
def system_named(name: str) -> System:
    """A bundled profile, loaded once."""
    return load_system(name)


@dataclass(frozen=True, kw_only=True)
class PooledRow:
    """What was served on what under which load, and what was measured, in SI units.

    Attributes:
        mode: ``loop``, a constant number of requests in flight; ``batch``, one batch of equal
            requests from start to end; ``pass``, passes of prompts or of decoding alone;
            ``pools``, prefill and decode in separate pools; ``replay``, single requests.
        group: rows of one server share it: model, system, framework and format.
        acceptance: of drafts, where the source prints it.
        chip_share: share of all chips by which the source divides throughput.
        balanced: 1 where all experts were given as many tokens.
        pool_share: share of the rate of its passes that a pool reaches.
        busy_share: share of the power meter's time in which the server was busy.
        rates: factors on the data sheet's bandwidths of memory and link.
    """

    id: str
    dataset: str
    measured: Mapping[str, float]
    group: str
    system: str
    engine: str
    served: ServedModel | None = None
    workload: ServingWorkload | None = None
    plan: Deployment | Pools | None = None
    mode: Mode = "loop"
    acceptance: float | None = None
    date: str = ""
    chip_share: float = 1.0
    balanced: float = 0.0
    pool_share: float = 1.0
    busy_share: float = 1.0
    rates: tuple[float, ...] = (1.0, 1.0)

    @property
    def software_age(self) -> float:
        """Months from the date of the row to the newest of all; of rows without one their mean.

        A year alone is its middle.
        """
        if not self.date:
            return UNDATED
        return months_before("-".join([*self.date.split("-"), "6"][:2]))

    @property
    def framework(self) -> str:
        """The program that served: third in the group of the closed loops, else the engine."""
        words = self.group.split()
        return words[2] if len(words) > 2 else self.engine

    @property
    def lengths(self) -> tuple[float, float]:
        """Prompt and output tokens."""
        assert self.workload is not None
        return float(self.workload.isl), float(self.workload.osl)

    @property
    def model(self) -> str:
        """The model, or "" of a replay."""
        return "" if self.served is None else self.served.model

    @property
    def median(self) -> bool:
        """Whether its ``ttft`` is a median: where the source has no mean."""
        return "ttft_median" in self.measured and "ttft_mean" not in self.measured

    @property
    def publisher(self) -> str:
        """Who published the row."""
        return self.dataset.split()[0]


@dataclass
class RowsRead:
    """The rows of a source, and how many were left out, by reason."""

    rows: list[PooledRow] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, other: "RowsRead") -> None:
        """Take in the rows of another source."""
        self.rows += other.rows
        self.skipped += other.skipped


class UnusableRowError(Exception):
    """A row is left out, for the reason given."""


Item = TypeVar("Item")


def rows_of(items: Iterable[Item], read: Callable[[Item], PooledRow]) -> RowsRead:
    """The rows that ``read`` makes of items; unusable ones are counted by reason."""
    result = RowsRead()
    for item in items:
        try:
            result.rows.append(read(item))
        except UnusableRowError as reason:
            result.skipped[str(reason)] += 1
    return result


def text(cells: Cells, name: str) -> str:
    """A cell without the blanks around it; "" where there is none."""
    return (cells.get(name) or "").strip()


def number(cells: Cells, name: str, low: float = 0.0) -> float:
    """A cell that must be a finite number above ``low``.

    Raises:
        UnusableRowError: empty, no number, or not above it.
    """
    value = optional_number(cells, name, low)
    if value is None:
        raise UnusableRowError(f"{name} is missing")
    return value


def optional_number(cells: Cells, name: str, low: float = 0.0) -> float | None:
    """A cell that may be empty; otherwise as ``number``."""
    word = text(cells, name)
    if not word:
        return None
    try:
        value = float(word)
    except ValueError:
        raise UnusableRowError(f"{name} is no number") from None
    if not (math.isfinite(value) and value > low):
        raise UnusableRowError(f"{name} is not above {low:g}")
    return value


def lookup(table: Mapping[str, Item], cells: Cells, name: str) -> Item:
    """What a word in a cell stands for.

    Raises:
        UnusableRowError: a word that is not in the table.
    """
    word = text(cells, name)
    if word not in table:
        problem = f"{word!r} is not known here" if word else "is missing"
        raise UnusableRowError(f"{name} {problem}")
    return table[word]
