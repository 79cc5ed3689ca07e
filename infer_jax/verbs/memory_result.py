"""The answer of ``memory``: the account of one GPU, and what a batch fills of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from infer_jax.catalog import System
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.footprint import EngineSettings, Overheads, StartupMemory
from infer_jax.plots.bars import Panel, plot_bars
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Answers, Column, Fact, Notes, Section, option
from infer_jax.results.numbers import count, size
from infer_jax.verbs import inputs, pictures

FREE = "left for the cache"
SIZES = (
    Column("one GPU", "", "title"),
    Column("size", "bytes", "value", lambda x: f"{float(x):,.0f}"),
    Column("", "", "value", size),
)


class Batch(NamedTuple):
    """Memory of one GPU with a batch in it, in bytes.

    ``cache``: of requests in flight on average, as every memory limit counts them; ``most``: of all
    requests at their full length at once; ``fixed``: weights, activations and reserve; ``fits``:
    the server runs so many at once, and has the memory.
    """

    batch: float
    isl: float
    osl: float
    cache: float
    most: float
    fixed: float
    fits: bool

    @property
    def used(self) -> float:
        """Bytes in use, on average."""
        return self.fixed + self.cache

    @property
    def used_most(self) -> float:
        """Bytes in use with all requests at their full length at once."""
        return self.fixed + self.most

    def facts(self) -> list[Fact]:
        """What the batch is, and what it takes."""
        requests = f"{self.batch:g} requests"
        return [
            Fact("batch", self.batch),
            Fact("isl_tokens", self.isl),
            Fact("osl_tokens", self.osl),
            Fact("batch_fits", self.fits),
            Fact("batch_cache_at_most_bytes", self.most),
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
            "kv_blocks": jnp.maximum(held.blocks, 0.0),
            "kv_cache_size_tokens": jnp.maximum(held.tokens, 0.0),
            "maximum_concurrency": jnp.maximum(held.concurrency, 0.0),
        }
        facts = [
            *(Fact("", x, f"weights: {kind}") for kind, x in held.weights.items() if float(x)),
            Fact("weights_bytes", held.weight_bytes, "weights"),
            Fact("activations_bytes", held.activations, "peak of activations"),
            Fact("reserve_bytes", held.reserve, "reserve outside the cache"),
            *(batch.facts() if batch else ()),
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
        cache = {} if batch is None else {f"KV cache of {batch.batch:g} requests": batch.cache}
        sizes = {
            **{f"weights: {kind}": float(x) for kind, x in held.weights.items()},
            "peak of activations": float(held.activations),
            "reserve outside the cache": float(held.reserve),
            **cache,
            FREE: max(float(held.available) - sum(cache.values()), 0.0),
        }
        gigabytes = {name: x / 1e9 for name, x in sizes.items() if x > 0.0}
        ends = {"budget": float(held.budget) / 1e9, "visible": float(held.visible) / 1e9}
        sentences = (
            f"{count(batch.isl)} tokens in, {count(batch.osl)} out." if batch else "",
            f"The cache has room for {max(float(held.tokens), 0.0):,.0f} tokens.",
            "" if held.fits else f"One request is {size(-float(held.slack))} short.",
            f"Budget: {float(engine.utilization):.0%} of what the driver shows (visible).",
        )
        where = f"one GPU of {self.setup.system.title}, {self.layout or 'TP1'}"
        title = f"{self.setup.model.name}: what fills {where}"
        caption = pictures.caption(self.setup, None, "", *sentences)
        panels = [Panel("", "GB", {"": gigabytes}, limits=ends)]
        return plot_bars(panels, free=FREE, title=title, caption=caption)


def server_settings(system: System) -> tuple[EngineSettings, Overheads]:
    """Settings and overheads of a server on a system, by its profile: every limit takes them."""
    model = serving_of(system)
    engine = EngineSettings.of(visible=model.visible, utilization=model.usable_memory)
    return engine, model.overheads


def serving_of(system: System) -> Serving:
    """The serving estimator with the coefficients of a profile."""
    return Serving.of().fitted(system.coefficients.get("serving", {}))
