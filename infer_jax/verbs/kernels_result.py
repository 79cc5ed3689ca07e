"""The result of ``kernels``: TTFT, TPOT, tokens/s per GPU, and every kernel."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jax import Array

from infer_jax.estimators import Estimate
from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.kernels import Serving
from infer_jax.results import Column, Notes, Part, Result, Table
from infer_jax.results.numbers import digits
from infer_jax.specs import Workload
from infer_jax.verbs import inputs, limits, pictures
from infer_jax.verbs.kernel_rows import KernelRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAGES = ("prefill", "decode")


@dataclass(frozen=True, repr=False)
class KernelsResult(Result):
    """Both passes as sums of kernels; ``kernels`` has a row a kernel, by pass.

    ``prefill_tokens`` are of one pass in all groups, ``largest_batch`` is of requests that fit.
    """

    asked: inputs.Given
    estimator: str
    published: bool
    workload: Workload
    plan: Serving
    estimate: Estimate
    prefill_tokens: Array
    largest_batch: Array
    kernels: Mapping[str, Sequence[KernelRow]]

    def fields(self) -> Mapping[str, object]:
        """Times in ms, rates per GPU, and the kernels of one layer on one GPU."""
        answer, memory = self.estimate, self.estimate.decode.limits["memory"]
        return {
            **self.asked.names,
            "estimator": self.estimator,
            "gpus": answer.chips,
            "batch": float(self.workload.batch),
            "feasible": bool(answer.feasible),
            "ttft_ms": 1e3 * answer.ttft,
            "tpot_ms": 1e3 * answer.tpot,
            "prefill_tokens_per_s_per_gpu": self._prefill_rate,
            "decode_tokens_per_s_per_gpu": answer.throughput,
            "largest_batch": self.largest_batch,
            "memory": limits.limit_of("memory", memory),
            "balance_flop_per_byte": {f"{bits}_bit": x for bits, x in self._balance.items()},
            **{stage: list(self.kernels[stage]) for stage in STAGES},
            "notes": self.notes,
        }

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a kernel, of prefill and then of decode."""
        return [{"pass": stage, **row} for stage in STAGES for row in self.kernels[stage]]

    def parts(self) -> Iterator[Part]:
        """The times and rates, then the kernels of both passes."""
        answer = self.estimate
        yield f"{self.asked.model.name} on {float(answer.chips):g} {self.asked.system.name}"
        yield ""
        answers = (
            ("time to first token", 1e3 * answer.ttft, "ms"),
            ("time per output token", 1e3 * answer.tpot, "ms"),
            ("prefill per GPU", self._prefill_rate, "tokens/s"),
            ("decode per GPU", answer.throughput, "tokens/s"),
            ("largest batch that fits", self.largest_batch, "requests"),
        )
        columns = (Column("answer", left=True), Column("value"), Column("unit", left=True))
        yield Table(columns, [[title, digits(x, 4), unit] for title, x, unit in answers])
        for stage in STAGES:
            yield ""
            yield _table(stage, self.kernels[stage])
        balance = ", ".join(f"{float(x):.4g} at {bits} bits" for bits, x in self._balance.items())
        yield Notes([f"Balance of the chip, FLOP per byte: {balance}.", *self.notes])

    def plot(self, out: str | os.PathLike[str] | None = None) -> "Figure":
        """The kernels of both passes in all layers, the longest first; written to ``out`` if given.

        Raises:
            InputError: matplotlib is not installed; a file that cannot be written.
        """
        from infer_jax.plots.bars import Panel, plot_bars
        from infer_jax.plots.style import words

        panels = [Panel(stage, "ms", _bars(self.kernels[stage])) for stage in STAGES]
        gpus = f"{float(self.estimate.chips):g} {self.asked.system.title}"
        caption = pictures.caption(
            self.asked,
            self.workload,
            self.estimator,
            f"{float(self.workload.batch):.6g} requests in flight. A bar is a kernel of all layers "
            "on one GPU, for one micro-batch.",
        )
        title = words(f"{self.asked.model.name} on {gpus}")
        return plot_bars(panels, out, title=title, caption=caption)

    @property
    def notes(self) -> list[str]:
        """What was asked of the passes, whether the batch fits, and what was assumed."""
        tokens, plan, work = self.prefill_tokens, self.plan, self.workload
        memory = self.estimate.decode.limits["memory"]
        notes = [
            f"Prefill of {float(tokens / plan.ep):.6g} tokens in each of {float(plan.ep):g} groups "
            f"of {float(plan.tp):g} GPUs; decode of {float(work.batch):.6g} requests in all, at "
            f"{float(decode_context(work)):.6g} tokens of context.",
            "A kernel's row is one layer on one GPU for one micro-batch; its bound compares FLOP "
            "per byte with the chip's peak over its bandwidth.",
            "Efficiencies are fitted curves; their errors stand in the profile.",
        ]
        if self.published:
            notes.append("As published: units, reserves and quirks of the authors' program.")
        if memory.need > memory.capacity:
            short = float(memory.need - memory.capacity)
            needs = limits.broken("memory", memory)
            notes.append(f"Not feasible: {needs}, {short:,.0f} bytes on each GPU.")
        return [*notes, *self.asked.notes]

    @property
    def _prefill_rate(self) -> Array:
        return self.prefill_tokens / self.estimate.ttft / self.estimate.chips

    @property
    def _balance(self) -> dict[int, Array]:
        """FLOP per byte at which arithmetic and memory take as long, by the bits of numbers."""
        chip = self.asked.hardware.chip
        rates = {16: chip.flops_16, 8: chip.flops_8}
        return {bits: rate / chip.memory_bandwidth for bits, rate in rates.items()}


def _bars(kernels: Sequence[KernelRow]) -> dict[str, dict[str, float]]:
    """Milliseconds of each kernel in all layers, by what binds it, the longest first."""
    bars: dict[str, dict[str, float]] = {}
    for row in kernels:
        parts = bars.setdefault(row["kernel"], {})
        bound = f"bound by {row['bound']}"
        parts[bound] = parts.get(bound, 0.0) + 1e-3 * row["layers"] * row["time_us"]
    return dict(sorted(bars.items(), key=lambda item: -sum(item[1].values())))


def _table(stage: str, kernels: Sequence[KernelRow]) -> Table:
    columns = (
        Column(stage, left=True),
        Column("layers"),
        Column("time", "us"),
        Column("work", "GFLOP"),
        Column("moved", "MB"),
        Column("intensity", "FLOP/B"),
        Column("MFU", "%"),
        Column("bound", left=True),
    )
    cells = [
        [
            row["kernel"],
            digits(row["layers"]),
            digits(row["time_us"]),
            digits(row["flop"] / 1e9),
            digits(row["bytes"] / 1e6),
            digits(row["intensity_flop_per_byte"]),
            digits(100 * row["mfu"]),
            row["bound"],
        ]
        for row in kernels
    ]
    return Table(columns, cells)
