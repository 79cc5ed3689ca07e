"""Routers of requests to attention ranks: in turn, or to the rank with the least to do."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Int

from infer_jax.replays.requests import Requests
from infer_jax.replays.state import NEVER, State

ROUTERS = ("round_robin", "shortest_queue", "minimum_tokens", "weighted_queue")
WAITING = 4  # a request that waits counts as this many that run


class RankLoad(NamedTuple):
    """What each rank has, as its router knows."""

    waiting: Int[Array, " ranks"]  # requests
    running: Int[Array, " ranks"]
    tokens: Int[Array, " ranks"]  # in the cache, and of prompts that wait; 0 where nobody asks


def score(router: str) -> Callable[[RankLoad, Array], Array]:
    """What is least of the rank that gets the next request, of its load and the number before it.

    ``round_robin``, ``shortest_queue`` (waiting and running requests) and ``minimum_tokens``:
    SGLang's ``--load-balance-method`` (sgl-project/sglang, python/sglang/srt/managers/
    data_parallel_controller.py at 000a3db). ``weighted_queue``: vLLM's, 4 times those that wait
    and those that run (vllm-project/vllm, vllm/v1/engine/core_client.py of 0.10.2,
    ``DPLBAsyncMPClient.get_core_engine_for_request``; a newer one at 00080ee counts all
    alike). The first of equal ranks gets it.
    """
    laws = {
        "round_robin": lambda load, at: jnp.remainder(
            jnp.arange(load.waiting.shape[0]) - at, load.waiting.shape[0]
        ),
        "shortest_queue": lambda load, _: load.waiting + load.running,
        "minimum_tokens": lambda load, _: load.tokens,
        "weighted_queue": lambda load, _: WAITING * load.waiting + load.running,
    }
    return laws[router]


def load_of(router: str, each: State, lines: Requests) -> RankLoad:
    """The load of all ranks, each with the requests that were sent to it."""
    waiting = lines.count - each.finished - each.running
    tokens = jnp.zeros_like(waiting)
    if router == "minimum_tokens":
        sent = jnp.arange(lines.prompt.shape[-1]) < lines.count[:, None]
        ahead = sent & (each.last[:, : lines.prompt.shape[-1]] == NEVER)
        wanted = jnp.where(ahead, lines.prompt + each.produced, 0)
        # prompts that end in the pass that runs are in no context yet
        ends = jnp.where(each.fresh, 0, each.joined_tokens - each.joined)
        tokens = each.context + ends + jnp.sum(wanted, axis=-1, dtype=jnp.int32)
    return RankLoad(waiting, each.running, tokens)
