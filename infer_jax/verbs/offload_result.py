"""The answer of ``offload``: the best block, and the frontier of all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jax import Array

from infer_jax.compiling import once
from infer_jax.estimators import JobEstimate, Offload, Offloading, make
from infer_jax.estimators.known_errors import memory_note
from infer_jax.estimators.offloading.search import Blocks, Flags, round_policy
from infer_jax.plots.frontier import plot_tradeoff
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Answers, Column, Fact, Notes, Rows, Section, percent
from infer_jax.results.numbers import quantity, size
from infer_jax.results.problems import refuse
from infer_jax.specs import Architecture, Hardware, Workload
from infer_jax.verbs import inputs, pictures

TIERS = ("gpu", "cpu", "disk")
KINDS = ("weights", "cache", "hidden")

ESTIMATORS = ("offloading", "offloading.paper", "offloading.released")
RATE = "throughput_tokens_per_s"
NAMED = (0.0, 0.2, 0.5, 1.0)  # places on the frontier whose blocks are named in the picture
PLACEMENT = (
    Column("kept on", "", "kind"),
    *(Column(title, "%", tier, percent)
      for title, tier in zip(("GPU", "CPU", "disk"), TIERS, strict=True)),
)  # fmt: skip
TIMES = (
    Column("spent on", "", "term"),
    Column("prefill", "s", "prefill"),
    Column("one token", "s", "decode"),
)
PEAKS = (Column("peak of", "", "name"),
         *(Column(x, "", x, size) for x in ("prefill", "decode", "capacity")))  # fmt: skip


class BestBlock(NamedTuple):
    """The best block: its estimate, and FlexGen's flags for it where a rounding fits."""

    estimate: JobEstimate
    flags: Flags | None

    @property
    def placement(self) -> dict[str, dict[str, Array]]:
        """The share of weights, cache and hidden states on GPU, CPU and disk."""
        layout = self.estimate.decode.layout
        return {kind: {tier: layout[f"{kind}_{tier}"] for tier in TIERS} for kind in KINDS}

    def sections(self) -> Iterator[Section]:
        """Its rates, where its tensors live, where its time goes, FlexGen's flags."""
        answer, flags = self.estimate, self.flags
        layout, phases = answer.decode.layout, answer.passes
        decoding = answer.decode_throughput * answer.chips
        samples = f"{float(layout['gpu_batch']):g} x {float(layout['batches']):g}"
        yield {"gpu_batch": layout["gpu_batch"], "batches": layout["batches"]}
        facts = [
            Fact("", samples, "block", "samples"),
            Fact(RATE, answer.throughput * answer.chips, "throughput", "tokens/s"),
            Fact(f"decode_{RATE}", decoding, "of decoding alone", "tokens/s"),
            Fact("latency_s", answer.time, "latency of the block", "s"),
            Fact("prefill_s", answer.ttft, "its prefill", "s"),
            Fact("step_s", answer.tpot, "a token of each sample", "s"),
            Fact("tokens_per_usd", 1e6 / answer.cost, "tokens per dollar", "tokens/$"),
        ]
        yield Answers(facts)
        placed = [{"kind": kind, **shares} for kind, shares in self.placement.items()]
        yield Rows("", placed, PLACEMENT)
        spent = [
            {"term": name.replace("_", " "), **{x: p.terms[name] for x, p in phases.items()}}
            for name in answer.decode.terms
        ]
        yield Rows("", spent, TIMES)
        peaks = {x: {k: lim.fields(k) for k, lim in p.limits.items()} for x, p in phases.items()}
        yield {
            "placement": self.placement,
            "terms": {x: {f"{k}_s": t for k, t in p.terms.items()} for x, p in phases.items()},
            "peaks": peaks,
        }
        needs = [
            {"name": k, "capacity": limit.capacity}
            | {x: phase.limits[k].need for x, phase in phases.items()}
            for k, limit in answer.decode.limits.items()
            if k.endswith("memory")
        ]
        yield Rows("", needs, PEAKS)
        yield ""
        if flags is None:
            yield "No rounding to whole tensors and percentages fits this block."
            yield {"flexgen": None}
            return
        yield f"FlexGen: {flags.text}"
        yield f"Rounding to whole tensors loses {100 * flags.loss:.2g} %."
        flexgen = {
            "flags": flags.text,
            "weights_settle_at": dict(zip(TIERS, flags.weights, strict=True)),
            RATE: flags.throughput * answer.chips,
            "lost_to_rounding": flags.loss,
        }
        yield {"flexgen": flexgen}


@dataclass(frozen=True, repr=False)
class OffloadResult(FigureResult):
    """The block of most tokens/s and where its tensors live; ``grid`` has every block."""

    setup: inputs.Setup
    estimator: str
    workload: Workload
    gpus: float
    latency: float | None
    grid: Blocks
    block: BestBlock | None

    def rows(self) -> Sequence[Mapping[str, object]]:
        """The frontier of blocks, fastest first: none beats another in latency and throughput."""
        return self.grid.rows(self.grid.frontier())

    def sections(self) -> Iterator[Section]:
        """The block, or why there is none."""
        block, gpus = self.block, "" if self.block is None else f"{self.gpus:g} "
        yield f"{self.setup.model.name} on {gpus}{self.setup.system.name}"
        yield {
            **self.setup.names,
            "estimator": self.estimator,
            "isl_tokens": self.workload.isl,
            "osl_tokens": self.workload.osl,
            "gpus": self.gpus,
            "blocks": len(self.grid.time),
            "feasible": block is not None,
        }
        if block is None:
            yield from ("", self.why)
            yield {"why": self.why}
        else:
            yield from block.sections()
            yield Rows("frontier", self.rows())
        yield Notes(self.notes)

    @property
    def drawable(self) -> bool:
        """Whether there is a block to draw."""
        return self.block is not None

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
        return [
            f"Estimator: {self.estimator}; {blocks}",
            memory_note(make(self.estimator)),
            *self.setup.notes,
        ]

    def _figure(self) -> Figure:
        """The frontier of blocks: tokens/s against the latency of a block."""
        if self.block is None:
            raise refuse("latency", self.latency, "wider limits: no block is left to draw")
        grid, front = self.grid, self.grid.frontier()
        curve = {"": {"best blocks": (grid.time[front], grid.throughput[front])}}
        at = [front[round(share * (len(front) - 1))] for share in NAMED]
        sizes = {i: quantity(grid.gpu_batch[i] * grid.batches[i], "request") for i in at}
        requests = {(float(grid.time[i]), float(grid.throughput[i])): x for i, x in sizes.items()}
        dot = "A point is a block of requests with its best placement of weights, cache and states."
        caption = pictures.caption(self.setup, self.workload, self.estimator, dot)
        title = f"{self.setup.model.name} on {float(self.gpus):g} {self.setup.system.title}"
        return plot_tradeoff(curve, requests, title=title, caption=caption)


def best_block(
    model: Offloading, arch: Architecture, hardware: Hardware, work: Workload, plan: Offload
) -> BestBlock:
    """The block of ``plan`` with its tensors placed at their best, and FlexGen's flags for it."""
    answer: JobEstimate = once(Offloading.estimate, model, arch, hardware, work, plan)
    layout = answer.decode.layout
    shares = {f"{kind}_{tier}" for kind in KINDS for tier in TIERS[:2]}
    placed = plan.replace(**{share: layout[share] for share in shares})
    flags = round_policy(model, arch, hardware, work, placed, float(answer.throughput))
    return BestBlock(answer, flags)


def offloading(name: str, setup: inputs.Setup) -> Offloading:
    """The offloading estimator of that name with the system's coefficients.

    Raises:
        InputError: another estimator.
    """
    if name not in ESTIMATORS:
        raise refuse("estimator", name, ", ".join(ESTIMATORS))
    model = make(name, setup.system.coefficients)
    assert isinstance(model, Offloading)
    return model
