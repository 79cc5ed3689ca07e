"""The referee of two pools: instances that prefill and that decode, event by event, in Python.

All instances share one clock: an event is a request that reaches an instance, or the end of a pass.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from infer_jax.replays.reference import (
    PlainStep as StepTime,
    ReferenceEngine as Engine,
    ReferencePass as Pass,
    ReferenceRequest as Request,
    began,
    ended,
    one_token,
)


@dataclass
class Instance:
    """An engine, the time of its passes, and the pass that runs."""

    engine: Engine
    step: StepTime
    came: list[Request] = field(default_factory=list)
    runs: Pass | None = None

    def begin(self, now: float) -> float | None:
        """Put a pass together; when it ends, or None where there is nothing to do."""
        self.engine.waiting.extend(self.came)
        self.came.clear()
        fed = self.engine.compose()
        if not fed.decodes and not fed.parts:
            self.engine.rests()
            return None
        self.runs = fed
        return now + began(self.step, self.engine, fed, now)

    def end(self, now: float) -> list[Request]:
        """Those that have their last token."""
        assert self.runs is not None
        fed, self.runs = self.runs, None
        return ended(self.engine, fed, now)


def serve(
    prefill: Sequence[Instance],
    decode: Sequence[Instance],
    lengths: Sequence[tuple[float, int, int, int]],
    crossing: Callable[[int, float], float],
    router: float = 0.0,
    concurrency: int | None = None,
    yields: Callable[[], int] = one_token,
) -> list[tuple[Request, Request]]:
    """Every request in the pool that prefills and in the one that decodes, dealt in turn."""
    both = [(Request(i, t, p, 1, c), Request(i, 0.0, p, o, p - 1, yields=yields))
            for i, (t, p, o, c) in enumerate(lengths)]  # fmt: skip
    asked = [t for t, *_ in lengths]
    order, events = count(), []
    known = len(both) if concurrency is None else min(concurrency, len(both))
    for i in range(known):
        heapq.heappush(events, (asked[i] + router, 0, i, "prompt", i))
    handed = finished = 0
    while finished < len(both):
        now = events[0][0]
        while events and events[0][0] <= now:
            _, _, _, kind, what = heapq.heappop(events)
            if kind == "prompt":
                prefill[what % len(prefill)].came.append(both[what][0])
            elif kind == "cache":
                decode[handed % len(decode)].came.append(both[what][1])
                handed += 1
            else:
                for r in what.end(now):
                    if any(what is one for one in prefill):
                        assert r.admitted is not None
                        at = now + crossing(r.prompt, now - r.admitted)
                        both[r.index][1].arrival = at
                        heapq.heappush(events, (at, 1, r.index, "cache", r.index))
                        continue
                    finished += 1
                    if known < len(both):
                        both[known][0].arrival = now
                        heapq.heappush(events, (now + router, 0, known, "prompt", known))
                        known += 1
        for one in (*prefill, *decode):
            end = one.begin(now) if one.runs is None else None
            if end is not None:
                heapq.heappush(events, (end, 2, next(order), "pass", one))
    return both
