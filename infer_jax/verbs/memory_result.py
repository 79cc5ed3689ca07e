"""The answer of ``memory``: the account of one GPU, and what a batch fills of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from infer_jax.catalog import System
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.footprint import (
    EngineSettings,
    Filled,
    MeanLengths,
    Overheads,
    StartupMemory,
    account,
    bytes_of_requests as fill,
    startup_figures,
)
from infer_jax.physics.memory.resident import Ranks, resident
from infer_jax.plots.bars import Panel, plot_bars
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Answers, Column, Fact, Notes, Section, option
from infer_jax.results.numbers import count, size
from infer_jax.specs import Architecture, Hardware
from infer_jax.verbs import inputs, pictures

FREE = "left for the cache"
SIZES = (
    Column("one GPU", "", "title"),
    Column("size", "bytes", "value", lambda x: f"{float(x):,.0f}"),
    Column("", "", "value", size),
)


@dataclass(frozen=True, repr=False)
class Batch:
    """Memory that a batch takes on one GPU, in bytes.

    ``cache``: of requests in flight on average, as every memory limit counts them; ``most``: of all
    requests at their full length at once. ``used``, ``used_most``: the same with weights,
    activations and reserve.
    """

    batch: float
    isl: float
    osl: float
    cache: float
    most: float
    used: float
    used_most: float
    fits: bool

    @classmethod
    def of(
        cls, batch: float, isl: float, osl: float, held: StartupMemory, cache: Filled, runs: bool
    ) -> "Batch":
        """What a batch fills; ``runs``: the server runs so many at once."""
        fixed, budget = float(held.budget - held.available), float(held.budget)
        average, most = float(cache.average), float(cache.most)
        used = fixed + average
        return cls(batch, isl, osl, average, most, used, fixed + most, runs and used <= budget)

    def fields(self) -> dict[str, object]:
        """What JSON has of the batch, apart from its sizes."""
        lengths = {"isl_tokens": self.isl, "osl_tokens": self.osl}
        return {"batch": self.batch, **lengths, "batch_fits": self.fits,
                "batch_cache_at_most_bytes": self.most}  # fmt: skip

    def sizes(self) -> list[Fact]:
        """What the batch takes."""
        requests = f"{self.batch:g} requests"
        return [
            Fact("batch_cache_bytes", self.cache, f"cache of {requests}, on average"),
            Fact("used_bytes", self.used, f"filled with {requests}, on average"),
            Fact("used_at_most_bytes", self.used_most, "the same with all at their ends"),
        ]

    def sentence(self, budget: float) -> str:
        """Whether the batch fits into ``budget`` bytes, and what it fills of them."""
        return (
            f"{self.batch:g} requests of {self.isl:g} + {self.osl:g} tokens "
            f"{'fill' if self.fits else 'do not fit:'} {size(self.used)} of {size(budget)} "
            f"({self.used / budget:.0%}) on average, {size(self.used_most)} with all at their ends."
        )


@dataclass(frozen=True, repr=False)
class MemoryResult(FigureResult):
    """The memory of one GPU: ``memory`` in bytes, and what a batch fills where one is given."""

    setup: inputs.Setup
    plan: Deployment
    engine: EngineSettings
    memory: StartupMemory
    filled: Batch | None
    layout: str  # "" where none was given
    notes: Sequence[str]

    def sections(self) -> Iterator[Section]:
        """Whether it fits, what vLLM prints at its start, and what fills the GPU."""
        held, plan, engine, batch = self.memory, self.plan, self.engine, self.filled
        layout = self.layout or f"TP1 (no {option('tp')} is given)"
        yield f"{self.setup.model.name} on {self.setup.system.name}, {layout}"
        yield ""
        context = f"{float(engine.context):,.0f}"
        if held.fits:
            yield f"GPU KV cache size: {float(held.tokens):,.0f} tokens"
            requests = f"{float(held.concurrency):.2f}x"
            yield f"Maximum concurrency for {context} tokens per request: {requests}"
        else:
            short = size(-float(held.slack))
            yield f"Does not fit: one request of {context} tokens is {short} a GPU short."
        if batch is not None:
            yield batch.sentence(float(held.budget))
        places = {
            "kv_blocks": held.blocks,
            "kv_cache_size_tokens": held.tokens,
            "maximum_concurrency": held.concurrency,
        }
        yield {
            **self.setup.names,
            "tp": plan.tp,
            "pp": plan.pp,
            "ep": plan.ep,
            "attention_dp": plan.attention_dp,
            "gpu_memory_utilization": engine.utilization,
            "max_model_len_tokens": engine.context,
            "max_num_seqs": engine.sequences,
            "max_num_batched_tokens": engine.batched_tokens,
            "fits": bool(held.fits),
            "weights": {f"{kind}_bytes": x for kind, x in held.weights.items()},
            "visible_bytes": held.visible,
            **{name: jnp.maximum(x, 0.0) for name, x in places.items()},
            **({} if batch is None else batch.fields()),
        }
        facts = [
            *(Fact("", x, f"weights: {kind}") for kind, x in held.weights.items() if float(x)),
            Fact("weights_bytes", held.weight_bytes, "weights"),
            Fact("activations_bytes", held.activations, "peak of activations"),
            Fact("reserve_bytes", held.reserve, "reserve outside the cache"),
            *([] if batch is None else batch.sizes()),
            Fact("available_bytes", held.available, FREE),
            Fact("budget_bytes", held.budget, "budget"),
            Fact("kv_per_token_bytes", held.token_bytes, "cache of one token"),
            Fact("kv_per_request_bytes", held.request_bytes, "cache of one request"),
            Fact("slack_bytes", held.slack, "slack beside one request"),
        ]
        yield Answers(facts, SIZES)
        yield Notes(self.notes)

    def _figure(self) -> Figure:
        """The memory of one GPU as a bar of its contents, in GB."""
        held, batch, engine = self.memory, self.filled, self.engine
        cache = 0.0 if batch is None else batch.cache
        sizes = {
            **{f"weights: {kind}": float(x) for kind, x in held.weights.items()},
            "peak of activations": float(held.activations),
            "reserve outside the cache": float(held.reserve),
            **({} if batch is None else {f"KV cache of {batch.batch:g} requests": cache}),
            FREE: max(float(held.available) - cache, 0.0),
        }
        gigabytes = {name: x / 1e9 for name, x in sizes.items() if x > 0.0}
        ends = {"budget": float(held.budget) / 1e9, "visible": float(held.visible) / 1e9}
        return plot_bars(
            [Panel("", "GB", {"": gigabytes}, limits=ends)],
            free=FREE,
            title=f"{self.setup.model.name}: what fills one GPU of {self.setup.system.title}, "
            f"{self.layout or 'TP1'}",
            caption=pictures.caption(
                self.setup,
                None,
                "",
                "" if batch is None else f"{count(batch.isl)} tokens in, {count(batch.osl)} out.",
                f"The cache has room for {max(float(held.tokens), 0.0):,.0f} tokens.",
                "" if held.fits else f"One request is {size(-float(held.slack))} short.",
                f"Budget: {float(engine.utilization):.0%} of what the driver shows (visible).",
            ),
        )


def server_settings(system: System) -> tuple[EngineSettings, Overheads]:
    """Settings and overheads of a server on a system, by its profile: every limit takes them."""
    model = serving_of(system)
    engine = EngineSettings.of(visible=model.visible, utilization=model.usable_memory)
    return engine, model.overheads


def serving_of(system: System) -> Serving:
    """The serving estimator with the coefficients of a profile."""
    return Serving.of().fitted(system.coefficients.get("serving", {}))


def account_of(
    arch: Architecture,
    hardware: Hardware,
    plan: Deployment,
    engine: EngineSettings,
    overheads: Overheads,
    lengths: MeanLengths,
    requests: Array,
) -> tuple[StartupMemory, Filled]:
    """What a server prints at start-up, and the cache of ``requests`` of an attention group."""
    ranks = Ranks(plan.tp, plan.attention_dp, plan.pp)
    gpu = account(resident(arch), hardware, ranks, engine, overheads)
    return startup_figures(gpu, engine), fill(gpu, requests, lengths)
