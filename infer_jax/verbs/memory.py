"""``ij.memory``: what one GPU holds, and how many tokens and requests its cache takes."""

from collections.abc import Iterator, Mapping, Sequence
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
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Column, Notes, Part, Table
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


@dataclass(frozen=True, repr=False)
class MemoryResult(Pictured):
    """The memory of one GPU: ``memory`` in bytes, and what a batch fills where one is given."""

    asked: inputs.Given
    plan: Plan
    engine: EngineSettings
    memory: StartupMemory
    filled: Batch | None
    split_given: bool
    notes: Sequence[str]

    def fields(self) -> Mapping[str, object]:
        """Sizes in bytes, cache in tokens and requests."""
        held, filled = self.memory, self.filled
        batch: dict[str, object] = {}
        if filled is not None:
            batch = {
                "batch": filled.batch,
                "isl_tokens": filled.isl,
                "osl_tokens": filled.osl,
                "batch_cache_bytes": filled.cache,
                "used_bytes": filled.used,
                "batch_fits": filled.fits,
                "batch_cache_at_most_bytes": filled.most,
                "used_at_most_bytes": filled.used_most,
            }
        return {
            **self.asked.names,
            "tp": self.plan.tp,
            "pp": self.plan.pp,
            "ep": self.plan.ep,
            "gpu_memory_utilization": self.engine.utilization,
            "max_model_len_tokens": self.engine.context,
            "max_num_seqs": self.engine.sequences,
            "max_num_batched_tokens": self.engine.batched_tokens,
            "fits": bool(held.fits),
            "slack_bytes": held.slack,
            "weights": {f"{kind}_bytes": x for kind, x in held.weights.items()},
            "weights_bytes": held.weight_bytes,
            "visible_bytes": held.visible,
            "budget_bytes": held.budget,
            "activations_bytes": held.activations,
            "reserve_bytes": held.reserve,
            "available_bytes": held.available,
            "kv_per_token_bytes": held.token_bytes,
            "kv_per_request_bytes": held.request_bytes,
            "kv_blocks": held.blocks,
            "kv_cache_size_tokens": held.tokens,
            "maximum_concurrency": held.concurrency,
            **batch,
            "notes": list(self.notes),
        }

    def parts(self) -> Iterator[Part]:
        """Whether it fits, what vLLM prints at its start, and what fills the GPU."""
        held, plan, filled = self.memory, self.plan, self.filled
        why = "" if self.split_given else " (no --tp is given)"
        split = f"tp {float(plan.tp):g}{why}, pp {float(plan.pp):g}, ep {float(plan.ep):g}"
        context = f"{float(self.engine.context):,.0f}"
        yield f"{self.asked.model.name} on {self.asked.system.name}, {split}"
        yield ""
        if held.fits:
            yield f"GPU KV cache size: {float(held.tokens):,.0f} tokens"
            many = f"{float(held.concurrency):.2f}x"
            yield f"Maximum concurrency for {context} tokens per request: {many}"
        else:
            short = size(-float(held.slack))
            yield f"Does not fit: one request of {context} tokens is {short} a GPU short."
        if filled is not None:
            word = "fill" if filled.fits else "do not fit:"
            budget = float(held.budget)
            yield (
                f"{filled.batch:g} requests of {filled.isl:g} + {filled.osl:g} tokens {word} "
                f"{size(filled.used)} of {size(budget)} ({filled.used / budget:.0%}) on average, "
                f"{size(filled.used_most)} with all at their ends."
            )
        yield ""
        yield Table(
            (Column("one GPU", left=True), Column("size", "bytes"), Column("", "")),
            [[name, f"{float(x):,.0f}", size(x)] for name, x in self._sizes()],
        )
        yield Notes(self.notes)

    def _sizes(self) -> list[tuple[str, Array | float]]:
        held, filled = self.memory, self.filled
        batch: list[tuple[str, Array | float]] = []
        if filled is not None:
            requests = f"{filled.batch:g} requests"
            batch = [
                (f"cache of {requests}, on average", filled.cache),
                (f"filled with {requests}, on average", filled.used),
                ("the same with all at their ends", filled.used_most),
            ]
        return [
            *((f"weights: {kind}", x) for kind, x in held.weights.items() if float(x)),
            ("weights", held.weight_bytes),
            ("peak of activations", held.activations),
            ("reserve outside the cache", held.reserve),
            *batch,
            (FREE, held.available),
            ("budget", held.budget),
            ("cache of one token", held.token_bytes),
            ("cache of one request", held.request_bytes),
            ("slack beside one request", held.slack),
        ]

    def _figure(self) -> "Figure":
        """The memory of one GPU as a bar of its contents, in GB."""
        from infer_jax.plots.bars import Panel, plot_bars
        from infer_jax.plots.style import words

        held, filled, plan = self.memory, self.filled, self.plan
        cache = 0.0 if filled is None else filled.cache
        sizes = {
            **{f"weights: {kind}": float(x) for kind, x in held.weights.items()},
            "peak of activations": float(held.activations),
            "reserve outside the cache": float(held.reserve),
            **({} if filled is None else {f"KV cache of {filled.batch:g} requests": cache}),
            FREE: max(float(held.available) - cache, 0.0),
        }
        gigabytes = {name: x / 1e9 for name, x in sizes.items() if x > 0.0}
        ends = {"budget": float(held.budget) / 1e9, "visible": float(held.visible) / 1e9}
        split = f"TP{float(plan.tp):g} PP{float(plan.pp):g} EP{float(plan.ep):g}"
        where = f"one GPU of {self.asked.system.title}, {split}"
        title = words(f"{self.asked.model.name}: what fills {where}")
        panels = [Panel("", "GB", {"": gigabytes}, limits=ends)]
        return plot_bars(panels, free=FREE, title=title, caption=self._caption())

    def _caption(self) -> str:
        """What stands below the picture, with what budget and cache are."""
        held, filled = self.memory, self.filled
        load = "" if filled is None else f"{filled.isl:,.12g} tokens in, {filled.osl:,.12g} out. "
        short = "" if held.fits else f" One request is {size(-float(held.slack))} short."
        said = (
            f"{load}Memory as a vLLM server accounts for it; requests of up to "
            f"{float(self.engine.context):,.12g} tokens: the cache has room for "
            f"{max(float(held.tokens), 0.0):,.0f}.{short} Budget: what the server may use, "
            f"{float(self.engine.utilization):.0%} of the memory that the driver shows (visible). "
            "TP, PP, EP: GPUs that share a layer, stages, GPUs that share experts."
        )
        return pictures.caption(self.asked, None, "", said)


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
        raise refuse("--max-model-len", "missing", "the tokens of the longest request")
    if max_model_len is not None and max_model_len > longest:
        raise refuse("--max-model-len", max_model_len, f"at most {longest:.12g}{inputs.LONGER}")
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
    given = arch, asked.hardware, plan, engine, overheads, lengths, jnp.asarray(group)
    held, cache = once(_memory, *given)
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
