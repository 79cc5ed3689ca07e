"""A plan as the servers it needs: their weights, their commands, and why an engine has none.

The commands are those of a named version of each engine (``engines``).
"""

import math
import os
from collections.abc import Sequence
from typing import Any

from infer_jax.catalog import Model, System, load_model
from infer_jax.catalog.models import HUB
from infer_jax.compiling import once
from infer_jax.engines import (
    ENGINES,
    Instance,
    Launch,
    LaunchedService,
    ModelCheckpoint,
    Step as Step,
)
from infer_jax.physics import attention as att
from infer_jax.planning import Layout, PlanPool, machine
from infer_jax.specs import UNBOUNDED, Architecture, Experts

CACHE = "; KV cache "  # between the formats of weights and cache in ``Model.quantisation``
# Repositories of the same publisher that hold a model in another format, by our name of it. Qwen's
# FP8 builds are scaled in blocks of 128 (qwen.readthedocs.io, "Quantization"; their model cards:
# "fine-grained fp8, block size 128"), its AWQ builds in groups of 128.
STORED: dict[str, dict[str, str]] = {
    "Qwen/Qwen3-0.6B": {"fp8_block": "Qwen/Qwen3-0.6B-FP8"},
    "Qwen/Qwen3-1.7B": {"fp8_block": "Qwen/Qwen3-1.7B-FP8"},
    "Qwen/Qwen3-8B": {"fp8_block": "Qwen/Qwen3-8B-FP8", "awq": "Qwen/Qwen3-8B-AWQ"},
    "Qwen/Qwen3-32B": {"fp8_block": "Qwen/Qwen3-32B-FP8", "awq": "Qwen/Qwen3-32B-AWQ"},
    "Qwen/Qwen3-30B-A3B": {"fp8_block": "Qwen/Qwen3-30B-A3B-FP8"},
    "Qwen/Qwen3-235B-A22B": {"fp8_block": "Qwen/Qwen3-235B-A22B-FP8"},
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": {"fp8_block": "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"},
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {"fp8_block": "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8"},
}
# Repositories whose model cards ask for their own code when they are served.
CODE = ("moonshotai/", "XiaomiMiMo/MiMo-V2-Flash")
NO_NAME = "the model is given as numbers: its name or config.json says which weights to load"
# Tokens that are left for a chat template and BOS: servers refuse a prompt and an output that are
# longer together than their context (github.com/vllm-project/vllm/issues/16420, 6 tokens too many)
TEMPLATE = 128
SLOTS = 1024  # vLLM's default of max_num_seqs, as the estimator has it


def launches(service: LaunchedService, engine: str | None = None) -> list[Launch]:
    """The plan for each engine, or for one of them."""
    return [own.launch(service) for name, own in ENGINES.items() if engine in (None, name)]


def budget(instance: Instance, service: LaunchedService, engine: str) -> int:
    """Tokens of a pass of one attention group of an instance, by an engine's rules."""
    return ENGINES[engine].budget(instance, service)


def checkpoint(
    config: str | os.PathLike[str] | Model | Architecture,
    quant: str | None = None,
    kv_dtype: str | None = None,
) -> ModelCheckpoint:
    """The weights of a model (a name, or a config.json) in the formats of a plan.

    It is the repository that the name stands for, or another one of the same publisher that holds
    the same weights in the requested format.

    >>> checkpoint("qwen3-32b", "fp8_block").repository
    'Qwen/Qwen3-32B-FP8'
    >>> checkpoint("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8").repository
    'Qwen/Qwen3-235B-A22B-Instruct-2507-FP8'
    >>> found = checkpoint("llama-3.1-8b", "fp8", "fp8")
    >>> found.repository, found.cast, found.cache, found.missing, found.code
    ('meta-llama/Llama-3.1-8B-Instruct', 'fp8', 'fp8', '', False)
    >>> checkpoint("deepseek-r1", "nvfp4").missing.partition(", and ")[2]
    'no repository of it in nvfp4 is known here'
    """
    if isinstance(config, Model | Architecture):
        return ModelCheckpoint("", missing=NO_NAME)
    own, requested = load_model(config), load_model(config, quant=quant, kv_dtype=kv_dtype)
    name = own.repository
    if not name:
        missing = f"no public weights of {own.name} are known"
        if own.source.startswith(HUB):
            missing = f"{config} names no publisher: give the model's whole id on Hugging Face"
        return ModelCheckpoint("", missing=missing)
    stored, cached = own.quantisation.split(CACHE)
    weights, cache = requested.quantisation.split(CACHE)
    coded = any(word.startswith(CODE) for word in (name, own.source.removeprefix(HUB)))
    load = ModelCheckpoint(name, cache="" if cache == cached else cache, code=coded)
    # "bfloat16 (2 bytes...); the rest bfloat16" is "bfloat16"
    first, _, rest = weights.partition(" (")
    same = weights == stored or (first == stored and rest.endswith(f"the rest {stored}"))
    if quant is None or same:
        return load
    if repository := STORED.get(name, {}).get(quant):
        return load._replace(repository=repository)
    form = stored.split(" (")[0]
    if form in ("bfloat16", "float16"):
        return load._replace(cast=quant)
    return load._replace(
        missing=f"{name} is stored in {form}, and no repository of it in {quant} is known here"
    )


def service(
    config: str | os.PathLike[str] | Model | Architecture,
    model: Model,
    systems: Sequence[System],
    pools: Sequence[PlanPool],
    lengths: tuple[float, float],
    formats: tuple[str | None, str | None] = (None, None),
    draft: str | None = None,
    max_requests: float = 0.0,
    longest: tuple[float, str] | None = None,
    *,
    arriving: bool = False,
) -> LaunchedService:
    """A plan as the model, lengths and instances that servers are started with.

    ``config`` names the ``model``; ``systems``: of each pool; ``pools``, ``max_requests``,
    ``arriving``: see ``instances``; ``lengths``: tokens of prompt and output; ``formats``:
    requested for weights and cache; ``draft``: the draft model; ``longest``: tokens of the longest
    request, and in words which share of requests is no longer ("" where all are equal); None:
    isl + osl.
    """
    machines = [machine(system.hardware, system.title) for system in systems]
    load, drafter = checkpoint(config, *formats), checkpoint(draft) if draft else None
    if drafter is not None and drafter.missing and not load.missing:
        load = load._replace(missing=drafter.missing)
    known = traits(model.architecture)
    tokens, within = longest or (sum(lengths), "")
    tokens = math.ceil(tokens - 1e-6)
    beyond = tokens > known["limit"] and not within  # no server takes such requests
    context = tokens if beyond else int(min(tokens + TEMPLATE, known["limit"]))
    running = instances(pools, machines, max_requests, arriving=arriving)
    spare = f", and {context - tokens} for a chat template" if context > tokens else ""
    longest_of = (
        f"{within} have at most {tokens} tokens" if within else f"{tokens} tokens of a request"
    )
    comments = [f"context {context}: {longest_of}{spare}"]
    if context < tokens:
        comments = [f"context {context}: the model's; {within} take up to {tokens} tokens"]
    if running[-1].arriving:
        comments.append(
            f"at most {running[-1].group_requests} requests run in a group; "
            f"{pools[-1].batch / running[-1].groups:.3g} requests in flight in the mean"
        )
    return LaunchedService(
        load,
        _sharing(running) if len(systems) == 1 else running,
        isl=math.ceil(lengths[0]),
        context=context,
        comments=tuple(comments),
        draft=drafter.repository if drafter else "",
        **known,
    )


def traits(arch: Architecture) -> dict[str, Any]:
    """What an engine's options depend on, as ``LaunchedService`` names it.

    Draft heads, experts, kinds of cache, context.
    """
    mixers = [block.attention for block in arch.blocks if block.attention is not None]
    caches = once(att.caches, mixers, arch)
    return {
        "heads": float(arch.draft_layers) > 0,
        "experts": any(isinstance(block.feedforward, Experts) for block in arch.blocks),
        "hybrid": att.several_caches(mixers, caches),
        "limit": float(arch.max_positions),
    }


class Starter:
    """Whether an engine starts a model by a layout, and why not."""

    def __init__(
        self, engine: str, model: Model, where: tuple[int, str], load: ModelCheckpoint, draft: str
    ):
        """``where``: (GPUs of a machine, maker); ``load``: the weights; ``draft``: the drafter."""
        self.engine, self.where = ENGINES[engine], where
        self.service = LaunchedService(
            load, (), isl=1, context=1, draft=draft, **traits(model.architecture)
        )

    def __call__(self, layout: Layout, role: str = "") -> bool:
        """Whether the engine starts the layout, if it starts the model at all.

        Without its drafts: where the user wants them they are searched, with a command or not.
        """
        weights = self.service.checkpoint._replace(cast="", cache="", missing="")
        return not self.obstacle(layout._replace(drafts=0.0), role, weights)

    def obstacle(
        self, layout: Layout, role: str = "", weights: ModelCheckpoint | None = None
    ) -> str:
        """Why no command starts the model by this layout; "" where one does.

        ``weights``: in place of the model's.
        """
        size, maker = self.where
        degrees = (int(x) for x in layout[:4])
        instance = Instance(
            *degrees, drafts=int(layout.drafts), role=role, machine=size, maker=maker
        )
        service = self.service._replace(
            checkpoint=weights or self.service.checkpoint, instances=(instance,)
        )
        return "; ".join(self.engine.obstacles(service))


def instances(
    pools: Sequence[PlanPool],
    machines: Sequence[tuple[int, str]],
    max_requests: float = 0.0,
    *,
    arriving: bool = False,
) -> tuple[Instance, ...]:
    """The instances of a plan: one kind, or a prefill and a decode pool.

    ``machines``: (GPUs of a machine, maker) of each pool. ``max_requests``: the most requests that
    a group may run, where it is given; else its share of the batch, or vLLM's default where
    requests are ``arriving`` at random at one kind of instance.

    >>> instances([PlanPool(Layout(2, 1, 1, 1), 4, 30)], [(8, "")])[0].copies
    4
    """
    alone = len(pools) == 1
    ends = zip(pools, (machines[0], machines[-1]), ("prefill", "decode"), strict=False)
    running: list[Instance] = []
    for (layout, copies, batch), (size, maker), role in ends:
        chunk, most = layout.chunk if layout.chunk < UNBOUNDED else math.inf, max_requests
        if alone and arriving and not most:  # no more than a pass has tokens for
            most = min(SLOTS, chunk // (1 + int(layout.drafts)))
        degrees = (int(x) for x in layout[:4])
        running.append(
            Instance(
                *degrees,
                copies=int(copies),
                requests=max(math.ceil(batch - 1e-9), 1),
                chunk=chunk,
                drafts=int(layout.drafts),
                role="" if alone else role,
                machine=size,
                maker=maker,
                most=int(most),
                arriving=alone and arriving,
            )
        )
    return tuple(running)


def _sharing(running: tuple[Instance, ...]) -> tuple[Instance, ...]:
    """Assigns GPUs to both pools where one machine holds one instance of each."""
    gpus = [one.gpus for one in running]
    separate = any(one.copies > 1 or one.maker != "NVIDIA" for one in running)
    if len(running) == 1 or separate or sum(gpus) > running[0].machine:
        return running
    return running[0]._replace(first=0), running[1]._replace(first=gpus[0])
