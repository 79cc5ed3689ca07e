"""What the rest of the package asks an engine for."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from infer_jax.engines.launches import Instance, Launch, LaunchedService, Step, obstacles_of_any

if TYPE_CHECKING:
    from infer_jax.replays import Rules

BUDGET = 8192.0  # tokens of a pass where neither the plan nor the engine says


class Commands(NamedTuple):
    """Commands that start a plan, the files that they read, and notes."""

    steps: tuple[Step, ...]
    files: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()


class ServingEngine(NamedTuple):
    """One serving engine.

    ``name``: in options, profiles and coefficients; ``words``: what a framework's name has in files
    of measurements. ``version`` and ``source``: of the options in its ``commands``; ``obstacles``:
    why it cannot start a plan that others might. ``scheduling``: its own values of the scheduler's
    coefficients (``estimators.serving.Engine``). ``rules(tokens, block, caching, **sizes)``: of a
    replayed server with a cache of ``tokens`` tokens in blocks of ``block``; ``settings``: which of
    ``chunked`` and ``overlap`` it has; ``router``: by which it sends requests to attention ranks;
    ``host_memory``: whether blocks that leave the cache may go to the host; ``pools``: whether the
    hand-over between two pools is replayed; ``mixed_graphs``: whether passes with prompts are
    launched as CUDA graphs, as those that decode are.
    """

    name: str
    title: str
    words: tuple[str, ...]
    version: str
    source: str
    commands: Callable[[LaunchedService], Commands]
    obstacles: Callable[[LaunchedService], list[str]]
    scheduling: Mapping[str, float]
    rules: "Callable[..., Rules]"
    block: float
    router: str
    settings: tuple[str, ...] = ("chunked", "overlap")
    host_memory: bool = True
    pools: bool = False
    mixed_graphs: bool = False

    def launch(self, service: LaunchedService) -> Launch:
        """The commands that start a plan, or why there are none."""
        reasons = [*obstacles_of_any(service), *self.obstacles(service)]
        who = self.title, self.version, self.source
        if reasons:
            return Launch(*who, missing=tuple(reasons))
        return Launch(*who, *self.commands(service), comments=service.comments)


def pass_budget(
    instance: Instance, service: LaunchedService, scheduling: Mapping[str, float]
) -> int:
    """Tokens of a pass of one attention group, as the estimator counts its time and memory.

    The plan's, or the engine's own, with a whole prompt beside the tokens that decode where the
    engine takes it whole; never less than the tokens that decode, or the prompts of a prefill pool.
    """
    if instance.role == "prefill":
        decoding, prompts = 0, service.isl * instance.prompts
    else:
        decoding = instance.group_requests * (1 + instance.drafts)
        takes_whole = scheduling.get("whole") and not (instance.role or instance.arriving)
        prompts = service.isl if takes_whole else 0
    if instance.chunk < math.inf:
        return int(max(instance.chunk, decoding))
    return int(max(scheduling.get("budget", BUDGET), decoding + prompts))
