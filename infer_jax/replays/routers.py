"""Routers of requests to servers: in turn, to the server with the least to do, or by prefix."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.errors import InputError
from infer_jax.replays.prefixes import Prefixes
from infer_jax.replays.state import UNREACHED

BY_LOAD = ("round_robin", "shortest_queue", "minimum_tokens", "weighted_queue")
BY_PREFIX = ("cache_aware", "prefix_hash")
ROUTERS = (*BY_LOAD, *BY_PREFIX)

WAITING = 4  # a request that waits counts as this many that run
# of ``cache_aware``: the share of a prompt that must have been seen, and what loads count as uneven
MIN_SHARE, UNEVEN_REQUESTS, UNEVEN_RATIO = 0.3, 64, 1.5
# of ``prefix_hash``: tokens that are hashed, and the load over the mean that a server may have
HASHED_TOKENS, MAX_LOAD = 256, 1.25


class QueueLoad(NamedTuple):
    """What each server has, as its router knows."""

    waiting: Int[Array, " servers"]  # requests
    running: Int[Array, " servers"]
    tokens: Int[Array, " servers"]  # in the cache, and of prompts that wait; 0 where nobody asks


class Windows(NamedTuple):
    """When each server takes requests, s; after its end it finishes what it has, and leaves."""

    begin: Float[Array, " servers"]
    end: Float[Array, " servers"]

    def open_at(self, time: Array) -> Array:
        """Which servers take a request then."""
        return (self.begin <= time) & (time < self.end)


class Beginnings(NamedTuple):
    """How the prompt of each request begins, in whole blocks."""

    like: Int[np.ndarray, " n"]  # the first of the earlier ones with the longest equal beginning
    share: Float[np.ndarray, " n"]  # of its tokens that this one begins with
    home: Float[np.ndarray, " n"]  # where the hash of its first tokens falls, from 0 to 1

    @classmethod
    def of(cls, prefixes: Prefixes, prompt: ArrayLike) -> "Beginnings":
        """Those of prompts of ``prompt`` tokens, in the order in which they are sent.

        >>> p = Prefixes.of([[1, 2], [1, 3], [4]], [24, 24, 8], length=8, block=8)
        >>> Beginnings.of(p, [24, 24, 8]).share.round(2).tolist()
        [0.0, 0.33, 0.0]
        """
        parts, depth, sizes = (
            np.asarray(x) for x in (prefixes.parts, prefixes.depth, prefixes.blocks)
        )
        tokens, block = np.asarray(prompt), int(prefixes.block)
        first: dict[int, int] = {}
        homes: dict[tuple[str, int], float] = {}
        random = np.random.default_rng(0)
        columns = np.zeros((3, len(parts)))
        for i, row in enumerate(parts):
            like, seen, there = 0, 0, 0
            wanted = min(HASHED_TOKENS, int(tokens[i])) // block
            key = ("alone", i)
            for part in row[: depth[i]].tolist():
                if there < wanted <= there + sizes[part]:
                    key = ("part", part)
                there += int(sizes[part])
                if first.setdefault(part, i) < i:
                    like, seen = first[part], there
            home = homes.setdefault(key, random.random())
            columns[:, i] = like, seen * block / max(int(tokens[i]), 1), home
        return cls(columns[0].astype(np.int32), columns[1], columns[2])


def chosen(
    router: str,
    load: QueueLoad,
    at: Array,
    begins: Beginnings | None,
    rank: Array,
    there: Array | None = None,
) -> Array:
    """The server that gets the request of number ``at``; ``rank`` has those of the ones before it.

    ``there``: which servers take requests, all where it is None; turns and hashes go over these.

    ``round_robin``, ``shortest_queue`` (waiting and running requests) and ``minimum_tokens``:
    SGLang's ``--load-balance-method`` (sgl-project/sglang, python/sglang/srt/managers/
    data_parallel_controller.py at 000a3db). ``weighted_queue``: vLLM's, 4 times those that wait
    and those that run (vllm-project/vllm, vllm/v1/engine/core_client.py of 0.10.2,
    ``DPLBAsyncMPClient.get_core_engine_for_request``; a newer one at 00080ee counts all
    alike). The first of equal servers gets it.

    ``cache_aware``: SGLang's router (sgl-model-gateway/src/policies/cache_aware.rs at 053b63f and
    tree.rs at 03744db; the numbers of bindings/python/src/sglang_router/router_args.py at 05e589a).
    Where more than ``MIN_SHARE`` of a prompt has been sent before, it goes where the first of the
    prompts with the longest equal beginning went; else, and where loads are uneven, to the
    shortest queue. ``prefix_hash``: prefix_hash.rs at 065f331; where the hash of the first
    ``HASHED_TOKENS`` tokens falls, or to the shortest queue if that has over ``MAX_LOAD`` times the
    mean.
    """
    queue = load.waiting + load.running
    servers = len(queue) if there is None else jnp.sum(there, dtype=jnp.int32)

    def least_loaded(values: Array) -> Array:
        """The first server with the least, of those that take requests."""
        return jnp.argmin(values if there is None else jnp.where(there, values, UNREACHED))

    def numbered(k: Array) -> Array:
        """The server of that number among those that take requests."""
        return k if there is None else jnp.argsort(~there, stable=True)[k]

    if router == "round_robin":
        return numbered(jnp.remainder(at, servers))
    if router == "minimum_tokens":
        return least_loaded(load.tokens)
    if router == "weighted_queue":
        return least_loaded(WAITING * load.waiting + load.running)
    shortest = least_loaded(queue)
    if router == "shortest_queue":
        return shortest
    assert begins is not None
    if router == "cache_aware":
        here = True if there is None else there
        most = jnp.max(queue, initial=0, where=here)
        few = jnp.min(queue, initial=UNREACHED, where=here)
        uneven = (most - few > UNEVEN_REQUESTS) & (most > UNEVEN_RATIO * few)
        alike = rank[jnp.asarray(begins.like)[at]]
        known = (jnp.asarray(begins.share)[at] > MIN_SHARE) & ~uneven
        return jnp.where(known if there is None else known & there[alike], alike, shortest)
    home = numbered(jnp.floor(jnp.asarray(begins.home)[at] * servers).astype(shortest.dtype))
    total = jnp.sum(queue if there is None else jnp.where(there, queue, 0))
    # whole numbers on both sides of a tie
    return jnp.where(queue[home] * servers <= MAX_LOAD * (total + 1), home, shortest)


def check_servers(where: str, name: str, servers: int, router: str, names: Sequence[str]) -> None:
    """Check that there is a server at least, and a router of one of these ``names``.

    Raises:
        InputError: another router, or no whole number of servers.
    """
    if router not in names:
        raise InputError(where, "router", router, f"one of {', '.join(names)}")
    if servers != int(servers) or servers < 1:
        raise InputError(where, name, servers, "a whole number of at least 1")
