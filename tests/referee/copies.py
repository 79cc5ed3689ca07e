"""The referee of copies behind a router, and of two pools: engines with a clock each."""

import heapq
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from infer_jax.replays.reference import (
    ReferenceEngine as Engine,
    ReferenceRequest as Request,
    ReferenceServer as Server,
    one_token,
    route_plainly,
)


class Router:
    """Where the next request goes; ``names`` are those of the full blocks of each prompt."""

    def __init__(
        self,
        kind: str,
        names: Sequence[Sequence[Any]] = (),
        homes: Sequence[float] = (),
        windows: Sequence[tuple[float, float]] = (),
    ):
        self.kind, self.names, self.homes, self.windows = kind, names, homes, windows
        self.copy: list[int] = []  # of each request so far

    def choose(self, r: Request, copies: list[Server]) -> int:
        """A copy among those that take requests now, by its place in the list of these."""
        there = [k for k, (a, b) in enumerate(self.windows) if a <= r.arrival < b]
        there = there if self.windows else list(range(len(copies)))
        self.copy.append(there[self._among(r, [copies[k] for k in there])])
        return self.copy[-1]

    def _among(self, r: Request, copies: list[Server]) -> int:
        runs = [sum(x.last == inf for x in c.running) for c in copies]
        queue = [len(c.there) for c in copies]
        tokens = [sum(c.tokens.get(x.index, x.prompt) for x in c.there) for c in copies]
        block = copies[0].engine.block
        loads = {
            "round_robin": [(k - r.index) % len(copies) for k in range(len(copies))],
            "minimum_tokens": tokens,
            "weighted_queue": [4 * n - 3 * k for n, k in zip(queue, runs, strict=True)],
        }.get(self.kind, queue)
        k = loads.index(min(loads))
        if self.kind == "cache_aware" and not (
            max(queue) - min(queue) > 64 and max(queue) > 1.5 * min(queue)
        ):
            alike = [self._alike(r.index, i) for i in range(r.index)]
            if alike and max(alike) * block > 0.3 * r.prompt:
                k = self.copy[alike.index(max(alike))]
        if self.kind == "prefix_hash":
            home = int(self.homes[r.index] * len(copies))
            k = home if queue[home] <= 1.25 * (sum(queue) + 1) / len(copies) else k
        return k

    def _alike(self, one: int, other: int) -> int:
        """Blocks that two prompts begin with."""
        count = 0
        for a, b in zip(self.names[one], self.names[other], strict=False):
            if a != b:
                break
            count += 1
        return count


def serve(
    step: Callable[..., float],
    engines: Sequence[Engine],
    lengths: Sequence[tuple[float, int, int, int]],
    router: Router,
    concurrency: int | None = None,
) -> list[Request]:
    """What happens to requests of (arrival, prompt, output, cached)."""
    requests = [Request(i, *one) for i, one in enumerate(lengths)]
    copies = [Server(step, e) for e in engines]
    route_plainly(requests, copies, lambda r: copies[router.choose(r, copies)], concurrency)
    return requests


def serve_pools(
    prefill: Sequence[Server],
    decode: Sequence[Server],
    lengths: Sequence[tuple[float, int, int, int]],
    crossing: Callable[[int, float], float],
    router: float = 0.0,
    concurrency: int | None = None,
    yields: Callable[[], int] = one_token,
) -> list[tuple[Request, Request]]:
    """Every request in the pool that prefills and in the one that decodes, dealt in turn.

    It arrives at the first ``router`` seconds after it was sent.
    """
    both = [(Request(i, t + router, p, 1, c), Request(i, 0.0, p, o, p - 1, yields=yields))
            for i, (t, p, o, c) in enumerate(lengths)]  # fmt: skip
    known = len(both) if concurrency is None else min(concurrency, len(both))
    # when a request reaches a pool, and whether with its cache
    coming = [(both[i][0].arrival, False, i) for i in range(known)]
    handed = finished = 0
    while finished < len(both):
        first = min((*prefill, *decode), key=lambda server: server.time)
        if coming and coming[0][0] <= first.time:
            now, cached, i = heapq.heappop(coming)
            both[i][cached].arrival = now
            pool, turn = (decode, handed) if cached else (prefill, i)
            pool[turn % len(pool)].send(both[i][cached])
            handed += cached
            continue
        now = first.time
        for r in first.go():
            if first in prefill:
                assert r.admitted is not None
                after = crossing(r.prompt, now - r.admitted)
                heapq.heappush(coming, (now + after, True, r.index))
                continue
            finished += 1
            if known < len(both):
                heapq.heappush(coming, (now + router, False, known))
                known += 1
    return both
