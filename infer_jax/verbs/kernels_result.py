"""The result of ``kernels``: TTFT, TPOT, tokens/s per GPU, and every kernel."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jax import Array

from infer_jax.estimators import Estimate
from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.kernels import KernelsPlan
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.results.numbers import counted, digits
from infer_jax.specs import Workload
from infer_jax.verbs import inputs, limits, pictures
from infer_jax.verbs.kernel_rows import KernelRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAGES = ("prefill", "decode")
OVERLAPPED = "hidden by overlap"
COMPUTED = ("attention", "feedforward", "head")  # terms whose times are those of kernels
BESIDE = {"network": "between GPUs"}  # words of terms that are no kernel's
KERNELS = {"output": "attention output", "head": "output head", "dense up": "dense layers up",
           "dense down": "dense layers down", "shared up": "shared expert up",
           "shared down": "shared expert down"}  # fmt: skip


@dataclass(frozen=True, repr=False)
class KernelsResult(Pictured):
    """Both passes as sums of kernels; ``kernels`` has a row a kernel, by pass.

    ``prefill_tokens`` are of one pass in all groups, ``largest_batch`` is of requests that fit.
    """

    asked: inputs.Given
    estimator: str
    published: bool
    workload: Workload
    plan: KernelsPlan
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
            "terms": {
                stage: {f"{name}_ms": x for name, x in terms.items()}
                for stage, terms in self._terms.items()
            },
            "notes": self.notes,
        }

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a kernel, of prefill and then of decode."""
        return [{"pass": stage, **row} for stage in STAGES for row in self.kernels[stage]]

    def parts(self) -> Iterator[Part]:
        """The times and rates, then the kernels of both passes."""
        answer = self.estimate
        yield f"{self.asked.model.name} on {float(answer.chips):g} {self.asked.system.name}"
        yield from self._short
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
        yield ""
        yield self._spent()
        for stage in STAGES:
            yield ""
            yield _table(stage, self.kernels[stage])
        balance = ", ".join(f"{float(x):.4g} at {bits} bits" for bits, x in self._balance.items())
        yield Notes([f"Balance of the chip, FLOP per byte: {balance}.", *self.notes])

    def _figure(self) -> "Figure":
        """The kernels of both passes in all layers, communication and scheduling."""
        from infer_jax.plots.bars import Panel, plot_bars
        from infer_jax.plots.style import words

        spent = self._terms
        panels = [
            Panel(
                f"{stage}: {digits(sum(spent[stage].values()))} ms in all",
                "ms",
                _bars(self.kernels[stage], spent[stage]),
            )
            for stage in STAGES
        ]
        hidden = any(OVERLAPPED in terms for terms in spent.values())
        overlap = " Bars overlap: a pass takes less than their sum." if hidden else ""
        gpus = f"{float(self.estimate.chips):g} {self.asked.system.title}"
        caption = pictures.caption(
            self.asked,
            self.workload,
            self.estimator,
            f"{float(self.workload.batch):.6g} requests in flight. A bar is a kernel of all layers "
            f"on one GPU; its colour is what limits it.{overlap}",
        )
        title = words(f"{self.asked.model.name} on {gpus}: where both passes spend their time")
        return plot_bars(panels, title=title, caption=caption)

    @property
    def notes(self) -> list[str]:
        """The passes, whether the batch fits, and assumptions."""
        tokens, plan, work = self.prefill_tokens, self.plan, self.workload
        where = f"on {counted(plan.tp, 'GPU')}"
        if plan.ep > 1:
            where = f"in each of {counted(plan.ep, 'group')} of {counted(plan.tp, 'GPU')}"
        notes = [
            f"Prefill of {float(tokens / plan.ep):.6g} tokens {where}; decode of "
            f"{counted(work.batch, 'request')} in all, at "
            f"{float(decode_context(work)):.6g} tokens of context.",
            "A kernel's row is one layer on one GPU for one micro-batch; its bound compares FLOP "
            "per byte with the chip's peak over its bandwidth.",
            "Efficiencies are fitted curves; their errors stand in the profile.",
        ]
        if self.published:
            notes.append("As published: units, reserves and quirks of the authors' program.")
        return [*self._short, *notes, *self.asked.notes]

    @property
    def _short(self) -> list[str]:
        """The memory that the batch lacks, if it does not fit."""
        memory = self.estimate.decode.limits["memory"]
        if memory.need <= memory.capacity:
            return []
        bytes_short = f"{float(memory.need - memory.capacity):,.0f} bytes on each GPU"
        return [f"Not feasible: {limits.broken('memory', memory)}, {bytes_short}."]

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

    def _spent(self) -> Table:
        """Both passes, all layers and micro-batches of them: the rows add up to the times."""
        spent = self._terms
        names = list(dict.fromkeys(name for terms in spent.values() for name in terms))
        rows = [[n, *(digits(spent[s][n], 4) if n in spent[s] else "" for s in STAGES)]
                for n in names]  # fmt: skip
        times = [digits(sum(spent[stage].values()), 4) for stage in STAGES]
        heads = [Column("a pass is spent on", left=True), *(Column(x, "ms") for x in STAGES)]
        return Table(heads, [*rows, ["time", *times]])

    @property
    def _prefill_rate(self) -> Array:
        return self.prefill_tokens / self.estimate.ttft / self.estimate.chips

    @property
    def _balance(self) -> dict[int, Array]:
        """FLOP per byte at which arithmetic and memory take as long, by the bits of numbers."""
        chip = self.asked.hardware.chip
        rates = {16: chip.flops_16, 8: chip.flops_8}
        return {bits: rate / chip.memory_bandwidth for bits, rate in rates.items()}


def _bars(kernels: Sequence[KernelRow], spent: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Milliseconds of each kernel in all layers, by what binds it, the longest first.

    Micro-batches are counted, so that the bars add up to the terms of the pass; those that are
    no kernel's, such as communication, have bars of their own.
    """
    bars: dict[str, dict[str, float]] = {}
    for row in kernels:
        parts = bars.setdefault(KERNELS.get(row["kernel"], row["kernel"]), {})
        bound = row["bound"]
        parts[bound] = parts.get(bound, 0.0) + 1e-3 * row["layers"] * row["time_us"]
    once = sum(sum(parts.values()) for parts in bars.values())
    computed = sum(x for name, x in spent.items() if name in COMPUTED)
    times = computed / once if once > 0.0 else 1.0
    bars = {name: {k: times * x for k, x in parts.items()} for name, parts in bars.items()}
    for name, x in spent.items():
        if name not in (*COMPUTED, OVERLAPPED):
            bars[BESIDE.get(name, name)] = {name: x}
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
