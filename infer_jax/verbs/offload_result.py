"""The result of ``offload``: throughput, placement and times of the best block."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jax import Array

from infer_jax.estimators import JobEstimate, make
from infer_jax.estimators.known_errors import memory_note
from infer_jax.estimators.offloading.flags import Flags
from infer_jax.estimators.offloading.search import Blocks
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.results.numbers import counted, digits, size
from infer_jax.specs import Workload
from infer_jax.verbs import inputs, limits, pictures
from infer_jax.verbs.problems import refuse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIERS = ("gpu", "cpu", "disk")
KINDS = ("weights", "cache", "hidden")
PHASES = ("prefill", "decode")


class BestBlock(NamedTuple):
    """The best block: its estimate, and FlexGen's flags for it where a rounding fits."""

    estimate: JobEstimate
    flags: Flags | None

    @property
    def placement(self) -> dict[str, dict[str, Array]]:
        """The share of weights, cache and hidden states on GPU, CPU and disk."""
        layout = self.estimate.decode.layout
        return {kind: {tier: layout[f"{kind}_{tier}"] for tier in TIERS} for kind in KINDS}


MARKED = (0.0, 0.2, 0.5, 1.0)  # places on the frontier whose blocks are named in the picture


@dataclass(frozen=True, repr=False)
class OffloadResult(Pictured):
    """The block of most tokens/s and where its tensors live; ``grid`` has every block."""

    asked: inputs.Given
    estimator: str
    workload: Workload
    gpus: float
    latency: float | None
    grid: Blocks
    block: BestBlock | None

    def fields(self) -> Mapping[str, object]:
        """Times in s, sizes in bytes, the placement in shares."""
        return {
            **self.asked.names,
            "estimator": self.estimator,
            "isl_tokens": self.workload.isl,
            "osl_tokens": self.workload.osl,
            "gpus": self.gpus,
            "blocks": len(self.grid.time),
            "feasible": self.block is not None,
            **({"why": self.why} if self.block is None else self._answers(self.block)),
            "notes": self.notes,
        }

    def rows(self) -> Sequence[Mapping[str, object]]:
        """The frontier of blocks, fastest first: none beats another in latency and throughput."""
        grid = self.grid
        return [
            {
                "latency_s": grid.time[i],
                "throughput_tokens_per_s": grid.throughput[i],
                "gpu_batch": grid.gpu_batch[i],
                "batches": grid.batches[i],
            }
            for i in grid.frontier()
        ]

    def parts(self) -> Iterator[Part]:
        """The block, its rates, where its tensors live, where its time goes, FlexGen's flags."""
        model, system, block = self.asked.model.name, self.asked.system.name, self.block
        if block is None:
            yield f"{model} on {system}"
            yield ""
            yield self.why
        else:
            yield f"{model} on {self.gpus:g} {system}"
            yield ""
            yield _rates(block)
            for table in (_placement(block), _times(block.estimate), _peaks(block.estimate)):
                yield ""
                yield table
            yield ""
            yield from _flexgen(block.flags)
        yield Notes(self.notes)

    def _figure(self) -> "Figure":
        """The frontier of blocks: tokens/s against the latency of a block."""
        if self.block is None:
            raise refuse("--latency", self.latency, "wider limits: no block is left to draw")
        from infer_jax.plots.style import words
        from infer_jax.plots.tradeoff import plot_tradeoff

        front = self.grid.frontier()
        grid = self.grid
        curve = {"": {"best blocks": (grid.time[front], grid.throughput[front])}}
        gpus = f"{float(self.gpus):g} {self.asked.system.title}"
        title = words(f"{self.asked.model.name} on {gpus}")
        more = (
            "A job is a block of requests that run together; a point is a block with its best "
            "placement of weights, cache and states."
        )
        caption = pictures.caption(self.asked, self.workload, self.estimator, more)
        at = [front[round(share * (len(front) - 1))] for share in MARKED]
        said = {
            (float(grid.time[i]), float(grid.throughput[i])): counted(
                grid.gpu_batch[i] * grid.batches[i], "request"
            )
            for i in at
        }
        return plot_tradeoff(curve, title=title, caption=caption, said=said)

    @property
    def why(self) -> str:
        """Why no block is left."""
        if not self.grid.feasible.any():
            return f"Nothing fits: {self.grid.why}."
        least = float(self.grid.time[self.grid.feasible].min())
        return f"No block takes at most {self.latency:g} s: the fastest takes {least:.4g} s."

    @property
    def notes(self) -> list[str]:
        """How many blocks were tried, and what was assumed."""
        blocks = f"{len(self.grid.time)} blocks, each with its exact best placement."
        notes = [
            f"Estimator: {self.estimator}; {blocks}",
            memory_note(make(self.estimator)),
            *self.asked.notes,
        ]
        return notes

    def _answers(self, block: BestBlock) -> dict[str, object]:
        answer, flags = block.estimate, block.flags
        phases = {name: getattr(answer, name) for name in PHASES}
        flexgen = None
        if flags is not None:
            flexgen = {
                "flags": flags.text,
                "weights_settle_at": dict(zip(TIERS, flags.weights, strict=True)),
                "throughput_tokens_per_s": flags.throughput * answer.chips,
                "lost_to_rounding": flags.loss,
            }
        return {
            "gpu_batch": answer.decode.layout["gpu_batch"],
            "batches": answer.decode.layout["batches"],
            "placement": block.placement,
            "throughput_tokens_per_s": answer.throughput * answer.chips,
            "decode_throughput_tokens_per_s": answer.decode_throughput * answer.chips,
            "latency_s": answer.time,
            "prefill_s": answer.ttft,
            "step_s": answer.tpot,
            "tokens_per_usd": 1e6 / answer.cost,
            "terms": {
                name: {f"{k}_s": x for k, x in phase.terms.items()}
                for name, phase in phases.items()
            },
            "peaks": {
                name: {k: limits.limit_of(k, x) for k, x in phase.limits.items()}
                for name, phase in phases.items()
            },
            "flexgen": flexgen,
            "frontier": self.rows(),
        }


def _rates(block: BestBlock) -> Table:
    answer = block.estimate
    layout = answer.decode.layout
    samples = f"{float(layout['gpu_batch']):g} x {float(layout['batches']):g}"
    rates = answer.throughput * answer.chips, answer.decode_throughput * answer.chips
    columns = (Column("answer", left=True), Column("value"), Column("unit", left=True))
    rows = [
        ["block", samples, "samples"],
        ["throughput", digits(rates[0], 4), "tokens/s"],
        ["of decoding alone", digits(rates[1], 4), "tokens/s"],
        ["latency of the block", digits(answer.time, 4), "s"],
        ["its prefill", digits(answer.ttft, 4), "s"],
        ["a token of each sample", digits(answer.tpot, 4), "s"],
        ["tokens per dollar", digits(1e6 / answer.cost, 4), "tokens/$"],
    ]
    return Table(columns, rows)


def _placement(block: BestBlock) -> Table:
    columns = (Column("kept on", left=True), *(Column(t, "%") for t in ("GPU", "CPU", "disk")))
    rows = [
        [kind, *(digits(100 * float(at[tier])) for tier in TIERS)]
        for kind, at in block.placement.items()
    ]
    return Table(columns, rows)


def _times(answer: JobEstimate) -> Table:
    columns = (Column("spent on", left=True), Column("prefill", "s"), Column("one token", "s"))
    prefill, decode = answer.prefill.terms, answer.decode.terms
    rows = [[k.replace("_", " "), digits(prefill[k]), digits(decode[k])] for k in decode]
    return Table(columns, rows)


def _peaks(answer: JobEstimate) -> Table:
    columns = (Column("peak of", left=True), *map(Column, ("prefill", "decode", "capacity")))
    rows = []
    for k, limit in answer.decode.limits.items():
        if k.endswith("memory"):
            sizes = [answer.prefill.limits[k].need, limit.need, limit.capacity]
            rows.append([k, *(size(x) for x in sizes)])
    return Table(columns, rows)


def _flexgen(flags: Flags | None) -> Iterator[Part]:
    if flags is None:
        yield "No rounding to whole tensors and percentages fits this block."
        return
    yield f"FlexGen: {flags.text}"
    yield f"Rounding to whole tensors loses {100 * flags.loss:.2g} %."
