"""``ij.memory``: what one GPU holds, and how many tokens and requests its cache takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import jax.numpy as jnp
from jax import Array

from infer_jax.catalog import System
from infer_jax.compiling import once
from infer_jax.estimators.serving import Serving
from infer_jax.footprint import (
    EngineSettings,
    Filled,
    MeanLengths,
    Overheads,
    StartupMemory,
    account,
    filled as fill,
    printed,
)
from infer_jax.physics.memory.resident import Ranks, resident
from infer_jax.plots.rendering import FigureResult
from infer_jax.results import Answers, Column, Fact, Notes, Section, option
from infer_jax.results.numbers import size
from infer_jax.specs import UNBOUNDED, Architecture, Hardware, Plan
from infer_jax.verbs import inputs, options as opt, pictures
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option, either
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.split import check_split

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULTS = EngineSettings.of()
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

    asked: inputs.Given
    plan: Plan
    engine: EngineSettings
    memory: StartupMemory
    filled: Batch | None
    split_given: bool
    notes: Sequence[str]

    def sections(self) -> Iterator[Section]:
        """Whether it fits, what vLLM prints at its start, and what fills the GPU."""
        held, plan, engine, batch = self.memory, self.plan, self.engine, self.filled
        split = f"tp {float(plan.tp):g}, pp {float(plan.pp):g}, ep {float(plan.ep):g}"
        if not self.split_given:
            split = split.replace(",", f" (no {option('tp')} is given),", 1)
        yield f"{self.asked.model.name} on {self.asked.system.name}, {split}"
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
            **self.asked.names,
            "tp": plan.tp,
            "pp": plan.pp,
            "ep": plan.ep,
            "gpu_memory_utilization": engine.utilization,
            "max_model_len_tokens": engine.context,
            "max_num_seqs": engine.sequences,
            "max_num_batched_tokens": engine.batched_tokens,
            "fits": bool(held.fits),
            "weights": {f"{kind}_bytes": x for kind, x in held.weights.items()},
            "visible_bytes": held.visible,
            "kv_blocks": held.blocks,
            "kv_cache_size_tokens": held.tokens,
            "maximum_concurrency": held.concurrency,
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

    def _figure(self) -> "Figure":
        """The memory of one GPU as a bar of its contents, in GB."""
        from infer_jax.plots.bars import Panel, plot_bars

        held, batch, plan, engine = self.memory, self.filled, self.plan, self.engine
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
        split = f"TP{float(plan.tp):g} PP{float(plan.pp):g} EP{float(plan.ep):g}"
        return plot_bars(
            [Panel("", "GB", {"": gigabytes}, limits=ends)],
            free=FREE,
            title=f"{self.asked.model.name}: what fills one GPU of {self.asked.system.title}, "
            f"{split}",
            caption=pictures.caption(
                self.asked,
                None,
                "",
                "" if batch is None else f"{batch.isl:,.12g} tokens in, {batch.osl:,.12g} out.",
                "Memory as a vLLM server accounts for it; requests of up to "
                f"{float(engine.context):,.12g} tokens: the cache has room for "
                f"{max(float(held.tokens), 0.0):,.0f}.",
                "" if held.fits else f"One request is {size(-float(held.slack))} short.",
                f"Budget: what the server may use, {float(engine.utilization):.0%} of the memory "
                "that the driver shows (visible).",
                "TP, PP, EP: GPUs that share a layer, stages, GPUs that share experts.",
            ),
        )


@verb
def memory(
    config: opt.Config,
    hardware: opt.System,
    *,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    gpu_memory_utilization: opt.GpuMemory = None,
    max_model_len: Annotated[
        float | None,
        Option(
            "Longest request; the model's longest context where not given.", "TOKENS", opt.WHOLE
        ),
    ] = None,
    max_num_batched_tokens: opt.PassTokens = None,
    max_num_seqs: Annotated[
        float | None,
        Option(
            "Sequences of one pass at most; those of --batch, else 1,024, where not given.",
            "N",
            opt.WHOLE,
        ),
    ] = None,
    block_size: Annotated[float, Option("Tokens of a cache block.", "TOKENS", opt.WHOLE)] = float(
        DEFAULTS.block
    ),
    batch: opt.Batch = None,
    isl: opt.Isl = 4096,
    osl: opt.Osl = 512,
    set: opt.Changes = None,
) -> MemoryResult:
    """Does it fit: weights, KV cache, its tokens and requests, as a vLLM server prints them.

    Raises:
        InputError: a model or system that cannot be read, a split that no engine runs, no longest
            context where the model has none.

    >>> import infer_jax as ij
    >>> held = ij.memory("llama-3.1-8b", "h100_sxm", tp=1, max_model_len=8192)
    >>> bool(held.memory.fits), round(float(held.memory.token_bytes))
    (True, 131072)
    """
    asked = inputs.given(config, hardware, quant, kv_dtype, None, set)
    arch = asked.model.architecture
    split = [either(degree, 1.0) for degree in (tp, pp, ep)]
    check_split(arch, *split)
    plan = Plan.of(**dict(zip(("tp", "pp", "ep"), split, strict=True)))
    longest = float(arch.max_positions)
    if max_model_len is None and longest >= UNBOUNDED:
        raise refuse("max_model_len", "missing", "the tokens of the longest request")
    if max_model_len is not None and max_model_len > longest:
        raise refuse(
            "max_model_len", max_model_len, f"at most {longest:.12g}{inputs.context_hint()}"
        )
    if batch is not None:
        inputs.check_context(asked.model, inputs.workload(isl, osl, 0.0))
    engine, overheads = server_settings(asked.system)
    served = _serving(asked.system).chosen_engine
    group = either(batch, 1.0) / split[2]
    tokens = either(max_num_batched_tokens, float(served.budget))
    slots = min(float(engine.sequences), tokens) if batch is None else max(group, 1.0)
    slots = either(max_num_seqs, slots)
    if max_num_batched_tokens is None:  # of a server for these requests, as ``estimate`` has it
        prompt = isl + slots if batch is not None and float(served.whole) else slots
        tokens = max(tokens, prompt)
    engine = engine.with_(
        context=either(max_model_len, longest),
        batched_tokens=tokens,
        sequences=slots,
        block=block_size,
    )
    if gpu_memory_utilization is not None:
        engine = engine.with_(utilization=gpu_memory_utilization)
    lengths = MeanLengths(*(jnp.asarray(x) for x in (isl, osl, served.held_output, 0.0)))
    requests = jnp.asarray(group)
    held, cache = once(_memory, arch, asked.hardware, plan, engine, overheads, lengths, requests)
    filled = None if batch is None else _batch(batch, isl, osl, held, cache, group <= slots)
    notes = [
        f"Per GPU of a server of at most {slots:,.12g} sequences and {tokens:,.12g} tokens in a "
        "pass; cache tokens and concurrency are of one group of tp x pp GPUs.",
        *[note for note in asked.notes if "USD/h" not in note],
    ]
    if group > slots:
        notes.insert(0, f"At most {slots * split[2]:,.12g} of {batch:,.12g} requests run at once.")
    return MemoryResult(asked, plan, engine, held, filled, tp is not None, notes)


def server_settings(system: System) -> tuple[EngineSettings, Overheads]:
    """Settings and overheads of a server on a system, by its profile: every limit takes them."""
    model = _serving(system)
    engine = EngineSettings.of(visible=model.visible, utilization=model.usable_memory)
    return engine, model.overheads


def _serving(system: System) -> Serving:
    return Serving.of().fitted(system.coefficients.get("serving", {}))


def _batch(
    batch: float, isl: float, osl: float, held: StartupMemory, cache: Filled, runs: bool
) -> Batch:
    """What a batch fills; ``runs``: the server runs so many at once."""
    fixed, budget = float(held.budget - held.available), float(held.budget)
    average, most = float(cache.average), float(cache.most)
    used = fixed + average
    return Batch(batch, isl, osl, average, most, used, fixed + most, runs and used <= budget)


def _memory(
    arch: Architecture,
    hardware: Hardware,
    plan: Plan,
    engine: EngineSettings,
    overheads: Overheads,
    lengths: MeanLengths,
    requests: Array,
) -> tuple[StartupMemory, Filled]:
    """What a server prints at start-up, and the cache of these requests of an attention group."""
    ranks = Ranks(plan.tp, plan.ep, plan.pp)
    gpu = account(resident(arch), hardware, ranks, engine, overheads)
    return printed(gpu, engine), fill(gpu, requests, lengths)
