"""The answer of ``kernels``: time, work and bound of each kernel of both passes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jax import Array

from infer_jax.compiling import once
from infer_jax.estimators import Estimate
from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.kernels import Kernels, KernelsPlan
from infer_jax.estimators.kernels.model import account, rows
from infer_jax.plots.bars import Panel, plot_bars
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import (
    Answers,
    Column,
    Fact,
    Notes,
    Row,
    Rows,
    Section,
    number,
    percent,
    scaled_format,
)
from infer_jax.results.numbers import digits, quantity
from infer_jax.specs import Workload
from infer_jax.verbs import inputs, limits, pictures

STAGES = ("prefill", "decode")
OVERLAPPED = "hidden by overlap"
COMPUTED = ("attention", "feedforward", "head")  # terms whose times are those of kernels
OUTSIDE = {"network": "between GPUs"}  # words of terms that are no kernel's
KERNELS = {"output": "attention output", "head": "output head", "dense up": "dense layers up",
           "dense down": "dense layers down", "shared up": "shared expert up",
           "shared down": "shared expert down"}  # fmt: skip
TERMS = (
    Column("a pass is spent on", "", "term"),
    *(Column(stage, "ms", stage, number, left=False) for stage in STAGES),
)
COLUMNS = (
    Column("layers", "", "layers"),
    Column("time", "us", "time_us"),
    Column("work", "GFLOP", "flop", scaled_format(1e-9)),
    Column("moved", "MB", "bytes", scaled_format(1e-6)),
    Column("intensity", "FLOP/B", "intensity_flop_per_byte"),
    Column("MFU", "%", "mfu", percent),
    Column("bound", "", "bound"),
)


@dataclass(frozen=True, repr=False)
class KernelsResult(FigureResult):
    """Both passes as sums of kernels; ``kernels`` has a row a kernel, by pass.

    ``prefill_tokens`` are of one pass in all groups, ``largest_batch`` is of requests that fit.
    """

    setup: inputs.Setup
    estimator: str
    published: bool
    workload: Workload
    plan: KernelsPlan
    estimate: Estimate
    prefill_tokens: Array
    largest_batch: Array
    kernels: Mapping[str, Sequence[Row]]

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a kernel, of prefill and then of decode."""
        return [{"pass": stage, **row} for stage in STAGES for row in self.kernels[stage]]

    def sections(self) -> Iterator[Section]:
        """The times and rates, then the kernels of one layer on one GPU, of both passes."""
        answer, memory = self.estimate, self.estimate.decode.limits["memory"]
        yield f"{self.setup.model.name} on {float(answer.chips):g} {self.setup.system.name}"
        yield from self._shortage
        yield {
            **self.setup.names,
            "estimator": self.estimator,
            "gpus": answer.chips,
            "batch": float(self.workload.batch),
            "feasible": bool(answer.feasible),
            "memory": memory.fields("memory"),
            "balance_flop_per_byte": {f"{bits}_bit": x for bits, x in self._balance.items()},
            "terms": {
                stage: {f"{name}_ms": x for name, x in terms.items()}
                for stage, terms in self._terms.items()
            },
        }
        rate = self.prefill_tokens / answer.ttft / answer.chips
        facts = [
            Fact("ttft_ms", 1e3 * answer.ttft, "time to first token", "ms"),
            Fact("tpot_ms", 1e3 * answer.tpot, "time per output token", "ms"),
            Fact("prefill_tokens_per_s_per_gpu", rate, "prefill per GPU", "tokens/s"),
            Fact("decode_tokens_per_s_per_gpu", answer.throughput, "decode per GPU", "tokens/s"),
            Fact("largest_batch", self.largest_batch, "largest batch that fits", "requests"),
        ]
        yield Answers(facts)
        yield Rows("", self._times(), TERMS)
        for stage in STAGES:
            yield Rows(stage, self.kernels[stage], (Column(stage, "", "kernel"), *COLUMNS))
        yield Notes(self.notes)

    def _times(self) -> list[dict[str, object]]:
        """Both passes by what they are spent on; the rows add up to the times."""
        spent = self._terms
        names = dict.fromkeys(name for terms in spent.values() for name in terms)
        rows = [{"term": n, **{stage: spent[stage].get(n) for stage in STAGES}} for n in names]
        return [*rows, {"term": "time", **{s: sum(spent[s].values()) for s in STAGES}}]

    @property
    def _terms(self) -> dict[str, dict[str, float]]:
        """Milliseconds of both passes by what they are spent on; a negative one is hidden."""
        spent = {}
        for stage, phase in ((x, getattr(self.estimate, x)) for x in STAGES):
            terms = {name: 1e3 * float(x) for name, x in phase.terms.items() if x > 0}
            time = 1e3 * float(phase.time)
            rest = time - sum(terms.values())
            spent[stage] = terms | ({OVERLAPPED: rest} if abs(rest) > 1e-9 * time else {})
        return spent

    @property
    def _balance(self) -> dict[int, Array]:
        """FLOP per byte at which arithmetic and memory take as long, by the bits of numbers."""
        chip = self.setup.hardware.chip
        rates = {16: chip.flops_16, 8: chip.flops_8}
        return {bits: rate / chip.memory_bandwidth for bits, rate in rates.items()}

    @property
    def _shortage(self) -> list[str]:
        """The memory that the batch lacks, if it does not fit."""
        memory = self.estimate.decode.limits["memory"]
        if memory.need <= memory.capacity:
            return []
        bytes_short = f"{float(memory.need - memory.capacity):,.0f} bytes on each GPU"
        return [f"Not feasible: {limits.broken('memory', memory)}, {bytes_short}."]

    @property
    def notes(self) -> list[str]:
        """The balance of the chip, the passes, whether the batch fits, and assumptions."""
        plan, work = self.plan, self.workload
        where = f"on {quantity(plan.tp, 'GPU')}"
        if plan.ep > 1:
            where = f"in each of {quantity(plan.ep, 'group')} of {quantity(plan.tp, 'GPU')}"
        balance = ", ".join(f"{float(x):.4g} at {bits} bits" for bits, x in self._balance.items())
        return [
            f"Balance of the chip, FLOP per byte: {balance}.",
            f"Prefill of {float(self.prefill_tokens / plan.ep):.6g} tokens {where}; decode of "
            f"{quantity(work.batch, 'request')} in all, at "
            f"{float(decode_context(work)):.6g} tokens of context.",
            "A kernel's row is one layer on one GPU for one micro-batch.",
            "Efficiencies are fitted curves; their errors stand in the profile.",
            *["As published: units, reserves and quirks of the authors' program."] * self.published,
            *self.setup.notes,
        ]

    def _figure(self) -> Figure:
        """The kernels of both passes in all layers, communication and scheduling."""
        spent = self._terms
        panels = []
        for stage in STAGES:
            title = f"{stage}: {digits(sum(spent[stage].values()))} ms in all"
            panels.append(Panel(title, "ms", _bars(self.kernels[stage], spent[stage])))
        hidden = any(OVERLAPPED in terms for terms in spent.values())
        gpus = f"{float(self.estimate.chips):g} {self.setup.system.title}"
        facts = self.setup, self.workload, self.estimator
        load = f"{float(self.workload.batch):.6g} requests in flight."
        bars = "A bar is a kernel of all layers on one GPU; its colour is what limits it."
        sums = "Bars overlap: a pass takes less than their sum." * hidden
        caption = pictures.caption(*facts, load, bars, sums)
        title = f"{self.setup.model.name} on {gpus}: where both passes spend their time"
        return plot_bars(panels, title=title, caption=caption)


def _bars(kernels: Sequence[Row], spent: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Milliseconds of each kernel in all layers, by what binds it, the longest first.

    Micro-batches are counted, so that the bars add up to the terms of the pass; those that are
    no kernel's, such as communication, have bars of their own.
    """
    bars: dict[str, dict[str, float]] = {}
    for row in kernels:
        kernel, bound = str(row["kernel"]), row["bound"]
        parts = bars.setdefault(KERNELS.get(kernel, kernel), {})
        parts[bound] = parts.get(bound, 0.0) + 1e-3 * row["layers"] * row["time_us"]
    once = sum(sum(parts.values()) for parts in bars.values())
    computed = sum(x for name, x in spent.items() if name in COMPUTED)
    times = computed / once if once > 0.0 else 1.0
    bars = {name: {k: times * x for k, x in parts.items()} for name, parts in bars.items()}
    for name, x in spent.items():
        if name not in (*COMPUTED, OVERLAPPED):
            bars[OUTSIDE.get(name, name)] = {name: x}
    return dict(sorted(bars.items(), key=lambda item: -sum(item[1].values())))


def kernels_result(
    setup: inputs.Setup, name: str, estimator: Kernels, work: Workload, plan: KernelsPlan
) -> KernelsResult:
    """Both passes of a workload, by kernels."""
    arch = setup.model.architecture
    answer, tokens, largest, profiles = once(account, estimator, arch, setup.hardware, work, plan)
    kernels = {stage: rows(arch, profiles[stage]) for stage in STAGES}
    published = bool(estimator.published)
    return KernelsResult(setup, name, published, work, plan, answer, tokens, largest, kernels)
