"""Host memory of a replayed server: how many blocks it holds, and the time to copy one."""

import jax.numpy as jnp

from infer_jax.engines import ENGINES
from infer_jax.physics.memory import tiers
from infer_jax.replays import has_prefix_cache
from infer_jax.verbs.inputs import Given
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.replay_server import ReplayedInstance

OPTION = "--kv-offloading-size"


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
    if not has_prefix_cache(server.rules) or not ENGINES[server.engine].host_memory:
        allowed = "with vllm's or trtllm's rules: host memory of sglang's tree is not replayed"
        raise refuse(OPTION, gib, allowed)
    link = float(asked.hardware.host.link_bandwidth)
    if not link > 0.0:
        how = "--set hardware.host.link_bandwidth=55e9 gives it one, in bytes/s"
        name = asked.system.name
        raise refuse(OPTION, gib, f"a system with a link to its host, not {name}: {how}")
    block = float(server.rules.block)
    tokens = jnp.asarray(max(mean_tokens, block))
    layers = server.pass_.context.shape.layers
    row, ranks = layers.attention, jnp.asarray(tp)
    each = jnp.sum(
        layers.count * (row.cache_bytes(tokens, ranks) + row.state_bytes(ranks)), axis=-1
    )
    held = each / tokens * block
    rules = server.rules.replace(
        host=jnp.floor(gib / tp * 2.0**30 / held), fetch=tiers.seconds(held, link)
    )
    return server._replace(rules=rules)
