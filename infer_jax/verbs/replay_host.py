"""Host memory of a replayed server: how many blocks it holds, and the time to copy one."""

import jax.numpy as jnp

from infer_jax.physics.memory import tiers
from infer_jax.replays import keeps
from infer_jax.verbs.inputs import Given
from infer_jax.verbs.problems import check_name, refuse
from infer_jax.verbs.replay_server import ReplayedInstance

OFFLOADING, SWAPPING = "--kv-offloading-size", "--swap-space"
MODE, MODES = "--preemption-mode", ("recompute", "swap")
OTHERS = (
    "two pools",
    "--ep or --router",
    "--drafts",
    "--enable-prefix-caching",
    "--async-scheduling",
)
SWAP_SPACE = 4.0  # GiB of a GPU where not given: CacheConfig.swap_space of vLLM V0


def swap_of(mode: str | None, gib: float | None, engine: str, *others: object) -> float | None:
    """GiB of swap space of a GPU, where preempted requests are swapped out; None where not.

    ``others``: what is asked for of the options that do not go with it, in the order of ``OTHERS``.

    Raises:
        InputError: an unknown mode, swap space without swapping, an engine or option without it.
    """
    check_name(MODE, mode, MODES)
    if mode != "swap":
        if gib is not None:
            raise refuse(SWAPPING, gib, f"with {MODE} swap")
        return None
    if engine != "vllm":
        raise refuse(MODE, mode, f"with vllm's rules: those of {engine} compute anew")
    for option, there in zip(OTHERS, others, strict=True):
        if there:
            raise refuse(MODE, mode, f"without {option}")
    return SWAP_SPACE if gib is None else gib


def with_host(
    server: ReplayedInstance, gib: float | None, asked: Given, tp: float, mean_tokens: float
) -> ReplayedInstance:
    """The server with ``gib`` GiB of host memory for blocks that leave its cache.

    Each of ``tp`` GPUs has a link of its own and its part of a block, where KV heads and latent
    caches may be copies. Blocks are those of a request of ``mean_tokens`` tokens.

    Raises:
        InputError: rules that keep no prompts, or a system without a link to its host.
    """
    if gib is None:
        return server
    if not keeps(server.rules) or server.rules.tree:
        allowed = "with vllm's or trtllm's rules: host memory of sglang's tree is not replayed"
        raise refuse(OFFLOADING, gib, allowed)
    return _linked(server, OFFLOADING, gib, gib / tp, asked, tp, mean_tokens)


def with_swap(
    server: ReplayedInstance, gib: float | None, asked: Given, tp: float, mean_tokens: float
) -> ReplayedInstance:
    """The server with ``gib`` GiB of swap space for each of ``tp`` GPUs, as vLLM V0 counts it.

    Raises:
        InputError: a system without a link to its host.
    """
    if gib is None:
        return server
    return _linked(server, SWAPPING, gib, gib, asked, tp, mean_tokens)


def _linked(
    server: ReplayedInstance,
    option: str,
    value: float,
    gib: float,
    asked: Given,
    tp: float,
    mean_tokens: float,
) -> ReplayedInstance:
    """The server with ``gib`` GiB of host memory for each GPU, over the link of each.

    Raises:
        InputError: a system without a link to its host.
    """
    link = float(asked.hardware.host.link_bandwidth)
    if not link > 0.0:
        how = "--set hardware.host.link_bandwidth=55e9 gives it one, in bytes/s"
        name = asked.system.name
        raise refuse(option, value, f"a system with a link to its host, not {name}: {how}")
    block = float(server.rules.block)
    tokens = jnp.asarray(max(mean_tokens, block))
    layers = server.pass_.context.shape.layers
    row, ranks = layers.attention, jnp.asarray(tp)
    each = jnp.sum(
        layers.count * (row.cache_bytes(tokens, ranks) + row.state_bytes(ranks)), axis=-1
    )
    held = each / tokens * block
    rules = server.rules.replace(
        host=jnp.floor(gib * 2.0**30 / held), fetch=tiers.seconds(held, link)
    )
    return server._replace(rules=rules)
