"""A plan as the servers it needs: degrees of ``planning.Choice`` as a ``LaunchedService``."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import TypedDict

from infer_jax.catalog import Model, System
from infer_jax.compiling import once
from infer_jax.engines import Instance, LaunchedService, ModelCheckpoint
from infer_jax.launch.checkpoints import checkpoint
from infer_jax.launch.commands import obstacles
from infer_jax.physics import attention as att
from infer_jax.planning import Degrees, Layout, machine, pools_of
from infer_jax.specs import UNBOUNDED, Architecture, Experts

SLOTS = 1024  # vLLM's default of max_num_seqs, as the estimator has it


def service(
    config: str | os.PathLike[str] | Model | Architecture,
    model: Model,
    systems: Sequence[System],
    degrees: Degrees,
    batch: float,
    lengths: tuple[float, float],
    formats: tuple[str | None, str | None] = (None, None),
    draft: str | None = None,
    most: float = 0.0,
    longest: tuple[float, str] | None = None,
    *,
    arriving: bool = False,
) -> LaunchedService:
    """A plan as the model, lengths and instances that servers are started with.

    ``config`` names the ``model``; ``systems``: of each pool; ``degrees``, ``batch``, ``most``,
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
    context = int(min(tokens, known["limit"])) if within else tokens
    running = instances(degrees, batch, machines, most, arriving=arriving)
    running = _sharing(running) if len(systems) == 1 else running
    return LaunchedService(
        load,
        running,
        isl=math.ceil(lengths[0]),
        context=context,
        comments=tuple(_comments(context, tokens, within, running[-1], batch)),
        draft=drafter.repository if drafter else "",
        **known,
    )


class Traits(TypedDict):
    """What an engine's options depend on; see ``LaunchedService``."""

    heads: bool
    experts: bool
    hybrid: bool
    limit: float


def traits(arch: Architecture) -> Traits:
    """What an engine's options depend on: draft heads, experts, kinds of cache, context."""
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
        self.engine, self.where = engine, where
        self.service = LaunchedService(
            load, (), isl=1, context=1, draft=draft, **traits(model.architecture)
        )

    def __call__(self, layout: Layout, role: str = "") -> bool:
        """Whether the engine starts the layout, if it starts the model at all.

        Without its drafts: where the user wants them they are searched, with a command or not.
        """
        weights = self.service.checkpoint._replace(cast="", cache="", missing="")
        return not self._obstacles(layout._replace(drafts=0.0), role, weights)

    def obstacle(self, degrees: Mapping[str, float], role: str = "") -> str:
        """Why no command starts the model by these degrees; "" where one does."""
        layout = Layout(**{name: x for name, x in degrees.items() if name in Layout._fields})
        return "; ".join(self._obstacles(layout, role, self.service.checkpoint))

    def _obstacles(self, layout: Layout, role: str, load: ModelCheckpoint) -> list[str]:
        one = Instance(
            *(int(x) for x in layout[:4]),
            drafts=int(layout.drafts), role=role, machine=self.where[0], maker=self.where[1],
        )  # fmt: skip
        return obstacles(self.service._replace(checkpoint=load, instances=(one,)), self.engine)


def instances(
    degrees: Degrees,
    batch: float,
    machines: Sequence[tuple[int, str]],
    most: float = 0.0,
    *,
    arriving: bool = False,
) -> tuple[Instance, ...]:
    """The instances of a plan: one kind, or a prefill and a decode pool.

    ``batch``: requests in flight in an instance (of two pools: in a decode instance). ``machines``:
    (GPUs of a machine, maker) of each pool. ``most``: the most requests that a group may run, where
    it is given; else its share of the batch, or vLLM's default where requests are ``arriving`` at
    random at one kind of instance.

    >>> degrees = {"tp": 2, "attention_dp": 1, "ep": 1, "pp": 1, "replicas": 4}
    >>> instances(degrees, 30, [(8, "")])[0].copies
    4
    """
    pools = pools_of(degrees)
    if len(pools) == 1:
        copies = pools[0].get("replicas", 1)
        return (_instance(pools[0], batch, copies, machines[0], most, arriving=arriving),)
    first, second = pools
    ends = machines[0], machines[-1]
    return (
        _instance(first, first["batch"], first["instances"], ends[0], most, role="prefill"),
        _instance(second, batch, second["instances"], ends[1], most, role="decode"),
    )


def _instance(
    degrees: Mapping[str, float],
    batch: float,
    copies: float,
    machine: tuple[int, str],
    most: float,
    *,
    role: str = "",
    arriving: bool = False,
) -> Instance:
    chunk = float(degrees.get("chunk", math.inf))
    chunk = chunk if chunk < UNBOUNDED else math.inf
    drafts = int(degrees.get("drafts", 0))
    if arriving and not most:  # no more than a pass has tokens for
        most = min(SLOTS, chunk // (1 + drafts))
    return Instance(
        tp=int(degrees["tp"]),
        groups=int(degrees["attention_dp"]),
        ep=int(degrees["ep"]),
        pp=int(degrees["pp"]),
        copies=int(copies),
        requests=max(math.ceil(batch - 1e-9), 1),
        chunk=chunk,
        drafts=drafts,
        role=role,
        machine=machine[0],
        maker=machine[1],
        most=int(most),
        arriving=arriving,
    )


def _sharing(running: tuple[Instance, ...]) -> tuple[Instance, ...]:
    """Assigns GPUs to both pools where one machine holds one instance of each."""
    gpus = [one.gpus for one in running]
    alone = any(one.copies > 1 or one.maker != "NVIDIA" for one in running)
    if len(running) == 1 or alone or sum(gpus) > running[0].machine:
        return running
    return running[0]._replace(first=0), running[1]._replace(first=gpus[0])


def _comments(held: int, tokens: int, within: str, one: Instance, batch: float) -> list[str]:
    """Comments on lengths and request limits of a command that differ from the plan's."""
    comments: list[str] = []
    if within and held < tokens:
        comments.append(f"context {held}: the model's; {within} take up to {tokens} tokens")
    elif within:
        comments.append(f"context {held}: {within} have at most as many tokens, prompt and output")
    if one.arriving:
        comments.append(
            f"at most {one.group_requests} requests run in a group; "
            f"{batch / one.groups:.3g} requests in flight in the mean"
        )
    return comments
