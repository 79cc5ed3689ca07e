"""What did the paper measure in Tables D.2 to D.4, and what does the model say of each cell?

A cell of the paper's own columns is a prefill of the inputs, the outputs generated at the mean
context, or both. The paper's generation there shards attention over batch; see ``BY_HEADS``.
"""

import csv
import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.catalog import load_system
from infer_jax.catalog.published import partitioning_model, partitioning_parameters
from infer_jax.errors import InputError
from infer_jax.estimators.partitioning import Partitioning, Slice, slice_of
from infer_jax.specs import Architecture, ForwardPass, Hardware

FILE = Path(__file__).parents[2] / "tests" / "golden" / "partitioning_measured.csv"
COLUMNS = ("table", "input_tokens", "output_tokens", "batch", "series", "time_ms", "mfu_percent")
CHIPS = 64  # TPU v4 of the paper's own columns
OWN = ("PaLM 540B prefill", "PaLM 540B generate", "MT-NLG 530B total")
# prefill + generate, printed a second time: compared, not fitted
SUM = "PaLM 540B total"
GPUS = {"TP16": (16, 1), "TP32": (32, 1), "PP3/TP8": (8, 3)}  # chips of a stage, stages
# Printed times rise with context as if every chip read the cache of all sequences: 0.13 ms a
# token at batch 1024 is 1024 tokens of 121 kB at 0.95 TB/s. Appendix D says by batch; the fit
# of either reading is printed.
BY_HEADS, BY_BATCH = 0.0, 1.0


class Cell(NamedTuple):
    """One printed cell: tokens, batch, the column it stands in, seconds and per cent."""

    table: str
    inputs: float
    outputs: float
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
        each = {"prefill": self.inputs, "generate": self.outputs}
        return self.batch * each.get(self.series.split()[-1], self.inputs + self.outputs)

    def mfu_of(self, seconds: float, chips: float, peak: float) -> float:
        """Per cent of peak: 2 parameters tokens / (chips peak seconds), padded heads left out."""
        flops = 2.0 * partitioning_parameters(self.model) * self.tokens
        return 100.0 * flops / (chips * peak * seconds)


def cells(path: Path = FILE) -> list[Cell]:
    """Every printed cell of Tables D.2 to D.4.

    Raises:
        InputError: unreadable, columns missing, or a cell that is no number above 0.
    """
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
    except (OSError, UnicodeDecodeError):
        raise InputError(str(path), "", "unreadable", "a CSV file") from None
    results = []
    for i, row in enumerate(rows, 2):
        missing = [name for name in COLUMNS if not row.get(name)]
        if missing:
            raise InputError(str(path), f"line {i}, {missing[0]}", "missing", ", ".join(COLUMNS))
        try:
            numbers = [float(row[name]) for name in COLUMNS if name not in ("table", "series")]
        except ValueError:
            raise InputError(str(path), f"line {i}", "not numbers", "numbers") from None
        inputs, outputs, batch, time, mfu = numbers
        results.append(Cell(row["table"], inputs, outputs, batch, row["series"], time / 1e3, mfu))
    return results


def own(rows: list[Cell]) -> list[Cell]:
    """The cells that are fitted: PaLM's prefill and generate, MT-NLG's total."""
    return [c for c in rows if c.series in OWN]


def tpu() -> Hardware:
    """The system of the paper's own columns, as its profile has it."""
    return load_system("tpu_v4").hardware


@functools.cache
def palm(weights: str = "bf16") -> Architecture:
    """PaLM 540B with its heads padded to 64."""
    return partitioning_model("PaLM_540B", weights=weights)


@functools.cache
def megatron() -> Architecture:
    """MT-NLG 530B."""
    return partitioning_model("MT_NLG_530B")


def ws_2d(**more: float) -> Slice:
    """2-D weight-stationary on the 4 x 4 x 4 slice of all of the paper's own columns."""
    return slice_of(CHIPS, layout=1.0, **more)


def request(
    estimator: Partitioning,
    arch: Architecture,
    hardware: Hardware,
    first: Slice,
    then: Slice,
    row: Any,
) -> tuple[Array, Array]:
    """(seconds to prefill, seconds to generate) of one row (inputs, outputs, batch).

    Generating is one decode step at the mean context, once a token.
    """
    inputs, outputs, batch = row
    one = jnp.ones_like(batch)
    start = ForwardPass(sequences=batch, new_tokens=inputs, cached_tokens=0.0 * one)
    at = ForwardPass(sequences=batch, new_tokens=one, cached_tokens=inputs + (outputs - 1.0) / 2.0)
    prefill = estimator.step(arch, hardware, start, first).time
    return prefill, outputs * estimator.step(arch, hardware, at, then).time


def predictor(rows: list[Cell], attention: float = BY_HEADS) -> Any:
    """``predict(estimator)``: seconds of the paper's own cells, in their order.

    MT-NLG, whose heads are many, is sharded over heads.
    """
    parts = []
    for name, arch, by in (("PaLM_540B", palm(), attention), ("MT_NLG_530B", megatron(), 0.0)):
        chosen = [i for i, c in enumerate(rows) if c.model == name]
        if chosen:
            parts.append((arch, ws_2d(attention=by), chosen, _table(rows, chosen)))
    column = jnp.asarray([_column(c) for c in rows])
    hardware = tpu()

    def predict(estimator: Partitioning) -> Array:
        times = jnp.zeros(len(rows))
        for arch, plan, chosen, table in parts:
            run = jax.vmap(lambda r, a=arch, p=plan: request(estimator, a, hardware, ws_2d(), p, r))
            first, then = run(table)
            which = column[np.asarray(chosen)]
            both = jnp.where(which == 0, first, jnp.where(which == 1, then, first + then))
            times = times.at[np.asarray(chosen)].set(both)
        return times

    return predict


def gpu_predictor(rows: list[Cell], hardware: Hardware) -> Any:
    """``predict(estimator)``: seconds of FasterTransformer cells, in their order.

    1-D weight-stationary over the GPUs of a stage. With stages, the batch passes in parts of at
    most 8192 tokens (FasterTransformer, src/fastertransformer/utils/nccl_utils.cc,
    getLocalBatchSize); generated tokens are fewer, so they pass in one.
    """
    parts = []
    for name, (chips, stages) in GPUS.items():
        chosen = [i for i, c in enumerate(rows) if c.gpu == name]
        if chosen:
            table = _table(rows, chosen)
            halvings = np.ceil(np.log2(np.maximum(table[0] * table[2] / 8192.0, 1.0)))
            split = 2.0**halvings if stages > 1 else np.ones(len(chosen))
            plan = Slice.of(x=1, y=1, z=chips, pp=stages, layout=0.0)
            parts.append((plan, chosen, (*table, split)))

    def predict(estimator: Partitioning) -> Array:
        times = jnp.zeros(len(rows))
        for plan, chosen, table in parts:

            def run(row: Any, plan: Slice = plan) -> Array:
                first = plan.replace(micro_batches=row[3])
                return sum(request(estimator, megatron(), hardware, first, plan, row[:3]))  # type: ignore[return-value]

            times = times.at[np.asarray(chosen)].set(jax.vmap(run)(table))
        return times

    return predict


def _table(rows: list[Cell], chosen: list[int]) -> tuple[np.ndarray, ...]:
    return tuple(
        np.asarray([getattr(rows[i], name) for i in chosen])
        for name in ("inputs", "outputs", "batch")
    )


def _column(cell: Cell) -> int:
    return {"prefill": 0, "generate": 1}.get(cell.series.split()[-1], 2)
