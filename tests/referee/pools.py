"""The referee of two pools: servers that prefill and that decode, each with a clock of its own."""

import heapq
from collections.abc import Callable, Sequence

from infer_jax.replays.reference import (
    ReferenceRequest as Request,
    ReferenceServer as Server,
    one_token,
)


def serve(
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
