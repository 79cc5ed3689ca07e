"""Which models and chips does the paper study, what did it measure, and what do we say?

Pope et al. 2022 (arXiv 2211.05102): PaLM and MT-NLG, their variants of single sections, TPU v4 and
the A100 of the FasterTransformer benchmarks; cells of Tables D.2 to D.4.

A cell of the paper's own columns is a prefill of the inputs, the outputs generated at the mean
context, or both. Attention is sharded over heads: printed times rise with context as if every chip
read the cache of all sequences (0.13 ms a token at batch 1024 is 1024 tokens of 121 kB at 0.95
TB/s), though Appendix D says by batch.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._columns import Input, Output, at_least_zero, positive, read_points
from experiments._report import GOLDEN
from infer_jax.calibration import Fit, Prior, covariance, fit, interval, predict_held_out
from infer_jax.calibration.uncertainty import rows_by_label
from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.published.tables import hardware_of, row_of
from infer_jax.errors import InputError
from infer_jax.estimators.partitioning import Partitioning, Slice, slice_of
from infer_jax.specs import Architecture, Format, ForwardPass, GroupedQuery, Hardware

BYTES = {"bf16": 2.0, "int8": 1.0}


def partitioning_parameters(name: str) -> float:
    """Parameters that the paper's MFU counts: padded heads are not among them."""
    return row_of("partitioning", "models", name)["parameters"]


def partitioning_model(
    name: str,
    *,
    weights: str = "bf16",
    multihead: bool = False,
    parallel: bool | None = None,
) -> Architecture:
    """A model of the paper, or the variant of it that a section studies.

    Args:
        name: of the table of models; PaLM_540B has its heads padded from 48 to 64.
        weights: bf16 or int8; either is multiplied in 16 bits (Section 3.6).
        multihead: a key-value head a query head, of half the width (Section 4.2).
        parallel: attention beside the feedforward, or after it (Section 4.3).

    Raises:
        InputError: the paper has no such model or format.
    """
    if weights not in BYTES:
        raise InputError("partitioning paper", "weights", weights, " or ".join(BYTES))
    arch = load_model(row_of("partitioning", "models", name)["model"]).architecture
    stored = Format.of(bytes=BYTES[weights], bits=16.0)
    (block,) = arch.blocks
    attention = block.attention
    assert isinstance(attention, GroupedQuery)
    if multihead:
        half = attention.head_width / 2.0
        attention = attention.with_(
            kv_heads=attention.query_heads, head_width=half, value_width=half
        )
    block = block.with_(
        attention=attention.with_(weights=stored),
        feedforward=block.feedforward.with_(weights=stored),  # pyright: ignore[reportOptionalMemberAccess]
    )
    wide = arch.with_(blocks=(block,), embedding=stored, head=stored)
    return wide if parallel is None else wide.with_(parallel=float(parallel))


def partitioning_hardware(name: str) -> Hardware:
    """A chip as the paper describes it: tpu_v4, or a100 of the FasterTransformer benchmarks."""
    return hardware_of(row_of("partitioning", "hardware", name))


FILE = GOLDEN / "partitioning_measured.csv"
INPUTS = {"table": Input(), "series": Input(), "input_tokens": Input(positive)}
INPUTS |= {name: Input(positive) for name in ("output_tokens", "batch")}
OUTPUTS = {"time_ms": Output(read=positive), "mfu_percent": Output(read=at_least_zero)}
COLUMN = {"prefill": 0, "generate": 1}  # of a cell: one of both, else their sum
CHIPS = 64  # TPU v4 of the paper's own columns
OWN = ("PaLM 540B prefill", "PaLM 540B generate", "MT-NLG 530B total")
# prefill + generate, printed a second time: compared, not fitted
SUM = "PaLM 540B total"
GPUS = {"TP16": (16, 1), "TP32": (32, 1), "PP3/TP8": (8, 3)}  # chips of a stage, stages


class Cell(NamedTuple):
    """One printed cell: tokens, batch, the column it stands in, seconds and per cent."""

    table: str
    input_tokens: float
    output_tokens: float
    batch: float
    series: str
    seconds: float
    mfu: float

    @property
    def gpu(self) -> str | None:
        """TP16, TP32 or PP3/TP8 of the FasterTransformer columns, else None."""
        return self.series.split()[-1] if "FasterTransformer" in self.series else None

    @property
    def model(self) -> str:
        """The model, by its name in the paper's catalogue."""
        return "PaLM_540B" if self.series.startswith("PaLM") else "MT_NLG_530B"

    @property
    def tokens(self) -> float:
        """Tokens that the MFU of this cell counts."""
        both = (self.input_tokens, self.output_tokens, self.input_tokens + self.output_tokens)
        return self.batch * both[COLUMN.get(self.series.split()[-1], 2)]

    def mfu_of(self, seconds: float, chips: float, peak: float) -> float:
        """Per cent of peak: 2 parameters tokens / (chips peak seconds), padded heads left out."""
        flops = 2.0 * partitioning_parameters(self.model) * self.tokens
        return 100.0 * flops / (chips * peak * seconds)


def cells(path: Path = FILE) -> list[Cell]:
    """Every printed cell of Tables D.2 to D.4."""
    return [
        Cell(**p.inputs, seconds=float(p.outputs["time_ms"]) / 1e3, mfu=p.outputs["mfu_percent"])  # pyright: ignore
        for p in read_points(path, INPUTS, OUTPUTS).points
    ]


def own(rows: list[Cell]) -> list[Cell]:
    """The cells that are fitted: PaLM's prefill and generate, MT-NLG's total."""
    return [c for c in rows if c.series in OWN]


@functools.cache
def models() -> dict[str, Architecture]:
    """PaLM 540B with its heads padded to 64, and MT-NLG 530B."""
    return {name: partitioning_model(name) for name in ("PaLM_540B", "MT_NLG_530B")}


def _request(estimator: Partitioning, arch: Architecture, hardware: Hardware, plans: Any, row: Any):
    """(seconds to prefill, seconds to generate) of one row (inputs, outputs, batch).

    Generating is one decode step at the mean context, once a token.
    """
    inputs, outputs, batch = row
    one = jnp.ones_like(batch)
    start = ForwardPass(sequences=batch, new_tokens=inputs, cached_tokens=0.0 * one)
    at = ForwardPass(sequences=batch, new_tokens=one, cached_tokens=inputs + (outputs - 1.0) / 2.0)
    prefill, token = (
        estimator.step(arch, hardware, passed, plan).time
        for passed, plan in zip((start, at), plans, strict=True)
    )
    return prefill, outputs * token


def predictor(
    rows: list[Cell], hardware: Hardware | None = None
) -> Callable[[Partitioning], Array]:
    """``predict(estimator)``: seconds of cells on TPU v4, or on ``hardware``, in their order.

    The paper's own are 2-D weight-stationary on a slice of 4 x 4 x 4; MT-NLG, whose heads are many,
    is sharded over heads. FasterTransformer's are 1-D over the GPUs of a stage. With stages, the
    batch passes in parts of at most 8192 tokens (FasterTransformer,
    src/fastertransformer/utils/nccl_utils.cc, getLocalBatchSize); generated tokens are fewer, so
    they pass in one.
    """
    hardware = hardware or load_system("tpu_v4").hardware
    parts = []
    for (model, gpu), chosen in rows_by_label((c.model, c.gpu) for c in rows).items():
        names = ("input_tokens", "output_tokens", "batch")
        table = tuple(np.asarray([getattr(rows[i], name) for i in chosen]) for name in names)
        chips, stages = GPUS[gpu] if gpu else (CHIPS, 1)
        plan = slice_of(chips, layout=1.0)
        if gpu:
            plan = Slice.of(x=1, y=1, z=chips, pp=stages, layout=0.0)
        halvings = np.ceil(np.log2(np.maximum(table[0] * table[2] / 8192.0, 1.0)))
        split = 2.0**halvings if stages > 1 else np.ones(len(chosen))
        column = np.asarray([COLUMN.get(rows[i].series.split()[-1], 2) for i in chosen])
        parts.append((models()[model], plan, np.asarray(chosen), (*table, split), column))

    def predict(estimator: Partitioning) -> Array:
        times = jnp.zeros(len(rows))
        for arch, plan, chosen, table, column in parts:

            def both(row: Any, arch: Any = arch, plan: Any = plan):
                plans = plan.replace(micro_batches=row[3]), plan
                return _request(estimator, arch, hardware, plans, row[:3])

            prefill, rest = jax.vmap(both)(table)
            found = jnp.where(column == 0, prefill, jnp.where(column == 1, rest, prefill + rest))
            times = times.at[chosen].set(found)
        return times

    return predict


EFFICIENCIES = ("flop_cap", "memory_cap", "network_cap")
BASELINE = ("flop_cap", "memory_cap", "layer_overhead")
# an efficiency is near its data sheet, within a factor of e^0.25: this decides what the cells leave
# open, whether large matmuls are slow, or narrow ones
PRIORS = {name: Prior(1.0, 0.25) for name in EFFICIENCIES}
BOUNDS = {"collective": (0.0, 50e-6), "layer_overhead": (0.0, 5e-3), "half_width": (0.0, 2e4)}
START: dict[str, float] = dict.fromkeys(EFFICIENCIES, 0.7)
START |= {"half_width": 1000.0, "collective": 3e-6, "layer_overhead": 1e-5}
START |= {"hidden_memory": 0.5, "hidden_network": 0.5}
NAMES = tuple(START)


def fitted(
    rows: Sequence[Cell],
    hardware: Hardware | None = None,
    names: Sequence[str] = NAMES,
    restarts: int = 6,
) -> Fit:
    """The model fitted to cells on TPU v4, or on ``hardware``."""
    tree, priors, bounds = _settings(names)
    seconds = [c.seconds for c in rows]
    with jax.enable_x64(True):
        predict = predictor(list(rows), hardware)
        return fit(predict, seconds, tree, names, priors=priors, bounds=bounds, restarts=restarts)


def spreads(result: Fit, rows: Sequence[Cell]) -> dict[str, tuple[float, float]]:
    """80 % intervals; cells of one column of one table err together."""
    with jax.enable_x64(True):
        clusters = [(c.table, c.series) for c in rows]
        return interval(result, covariance(result, clusters), 0.8)


def left_out(rows: Sequence[Cell], names: Sequence[str] = NAMES) -> np.ndarray:
    """Relative errors of every cell, each table predicted by a fit on the other two.

    With ``BASELINE`` as names, of three parameters: efficiency of compute and of memory, and a
    layer's overhead; the network is then the data sheet's and what can hide does.
    """
    tree, priors, bounds = _settings(names)
    seconds = [c.seconds for c in rows]
    folds = [c.table for c in rows]
    with jax.enable_x64(True):
        times = predict_held_out(
            predictor(list(rows)), seconds, tree, names, folds, priors=priors, bounds=bounds
        )
    return times / np.asarray(seconds) - 1.0


def _settings(names: Sequence[str]) -> tuple[Partitioning, dict[str, Prior], dict[str, Any]]:
    """Start, priors and bounds of a fit of these names; the others stay ideal."""
    begin = Partitioning.as_planned().with_(**{name: START[name] for name in names})
    priors = {name: p for name, p in PRIORS.items() if name in names}
    return begin, priors, {name: b for name, b in BOUNDS.items() if name in names}


def summary(errors: np.ndarray) -> tuple[float, float]:
    """(median, worst) absolute relative error."""
    size = np.abs(errors)
    return float(np.median(size)), float(size.max())
