"""Replays two pools: prompts wait for a prefill instance, caches cross, outputs are decoded."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.errors import InputError
from infer_jax.replays.decode_run import StepTime
from infer_jax.replays.drafts import Drafts
from infer_jax.replays.log import Log
from infer_jax.replays.loops import serve
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules

# seconds between the end of a prompt's last pass and the pool that decodes: of its tokens, and of
# the seconds that it took to compute
Crossing = Callable[[np.ndarray, np.ndarray], ArrayLike]
MAX_ROUNDS = 10_000  # rounds of a closed loop


class Pool(NamedTuple):
    """Equal instances: the time of a pass, the scheduler's rules, and how many there are."""

    step: StepTime
    rules: Rules
    copies: int = 1


class Pooled(NamedTuple):
    """Seconds of every request in order of arrival, and the logs of all instances.

    ``fed``: the end of its prompt; ``handed``: when it reaches the pool that decodes; ``first``
    and ``last``: of its tokens, which that pool yields. ``prefill`` and ``decode``: the instance
    of each request. ``rounds``: replays of all instances, 1 where requests arrive by themselves.
    """

    arrival: Float[np.ndarray, " n"]
    admitted: Float[np.ndarray, " n"]
    fed: Float[np.ndarray, " n"]
    handed: Float[np.ndarray, " n"]
    first: Float[np.ndarray, " n"]
    last: Float[np.ndarray, " n"]
    preempted: Int[np.ndarray, " n"]
    prefill: Int[np.ndarray, " n"]
    decode: Int[np.ndarray, " n"]
    logs: tuple[list[Log], list[Log]]
    rounds: int = 1

    @property
    def ttft(self) -> Float[np.ndarray, " n"]:
        """Seconds from arrival to the first token."""
        return self.first - self.arrival


def serve_pools(
    prefill: Pool,
    decode: Pool,
    requests: Requests,
    crossing: Crossing,
    *,
    router: float = 0.0,
    concurrency: int | None = None,
) -> Pooled:
    """Serve all requests in two pools, with at most ``concurrency`` of them in flight.

    A router deals requests to the prefill instances in turn, ``router`` seconds after their
    arrival; each computes its prompts by its rules, as requests of a single token. After
    ``crossing`` seconds the pools' router deals them, in order, to the instances that decode, which
    have all of the prompt but its last token in the cache and yield every token. So vLLM's
    NixlConnector does (docs.vllm.ai/en/v0.12.0/features/nixl_connector_usage: the prefill
    instance is asked for one token, the proxy forwards the request). Drafts are of the pool that
    decodes: its rules have them, those of the other pool none.

    A pool that decodes does not act on the one before it but through arrivals, so that each
    instance is replayed by itself. With ``concurrency`` a request is sent when it arrives or an
    earlier one ends, whichever is later (in a closed loop all arrive at 0): rounds of replays
    follow each other until every arrival is such a time (waveform relaxation:
    Lelarasmee, Ruehli and Sangiovanni-Vincentelli 1982, IEEE Transactions on CAD 1). That is the
    loop itself: what happens until a time is decided by what happened before it. It takes about
    as many rounds as requests follow each other.

    Raises:
        InputError: a request that an instance never holds; a prefix cache.
    """
    if requests.prefixes is not None:
        raise InputError("serve_pools", "prefixes", "given", "none: they are of a single pool")
    count = int(requests.count)
    sent = np.asarray(requests.arrival, float)[:count]
    replay_round = partial(_replay_round, (prefill, decode), requests, crossing, router)
    if concurrency is not None and concurrency < 1:
        raise InputError("serve_pools", "concurrency", concurrency, "a whole number of at least 1")
    done = replay_round(sent)
    if concurrency is None:
        return done
    start = np.zeros(min(concurrency, count))
    for rounds in range(1, MAX_ROUNDS + 1):
        ends = np.sort(done.last)[: count - len(start)]
        arrival = np.maximum(sent, np.concatenate([start, ends]))
        if np.array_equal(arrival, done.arrival):
            return done._replace(rounds=rounds)
        done = replay_round(arrival)
    raise InputError("serve_pools", "concurrency", concurrency, "a loop that settles")


def _replay_round(
    pools: tuple[Pool, Pool],
    requests: Requests,
    crossing: Crossing,
    router: float,
    arrival: np.ndarray,
) -> Pooled:
    """Both pools with these arrivals."""
    (prefill, decode), count = pools, len(arrival)
    prompt, output, cached = (
        np.asarray(x)[:count] for x in (requests.prompt, requests.output, requests.cached)
    )
    first, early = _deal(prefill, (arrival + router, prompt, np.ones(count, int), cached))
    handed = first["last"] + np.asarray(crossing(prompt, first["last"] - first["admitted"]))
    order = np.argsort(handed, kind="stable")
    queue = [x[order] for x in (handed, prompt, output, prompt - 1)]
    drafts = None if requests.drafts is None else requests.drafts.of(order)
    second, late = _deal(decode, queue, drafts)
    back = np.argsort(order)
    second = {name: column[back] for name, column in second.items()}
    return Pooled(
        arrival=arrival, admitted=first["admitted"], fed=first["last"], handed=handed,
        first=second["first"], last=second["last"],
        preempted=first["preempted"].astype(int) + second["preempted"].astype(int),
        prefill=np.arange(count) % prefill.copies,
        decode=(np.arange(count) % decode.copies)[back], logs=(early, late),
    )  # fmt: skip


def _deal(
    pool: Pool, queue: Sequence[np.ndarray], drafts: Drafts | None = None
) -> tuple[dict[str, np.ndarray], list[Log]]:
    """What the instances of a pool do with requests in order, which they get in turn.

    ``queue``: arrival, prompt, output and cached tokens of each.
    """
    names = ("admitted", "first", "last", "preempted")
    columns = {name: np.zeros(len(queue[0])) for name in names}
    logs: list[Log] = []
    for copy in range(min(pool.copies, len(queue[0]))):
        own = slice(copy, None, pool.copies)
        dealt = None if drafts is None else drafts.of(own)
        requests = Requests.of(*(x[own] for x in queue), drafts=dealt)
        log: Log = jax.device_get(serve(pool.step, pool.rules, requests))
        for name, column in columns.items():
            column[own] = np.asarray(getattr(log, name))[: int(log.count)]
        logs.append(log)
    return columns, logs
