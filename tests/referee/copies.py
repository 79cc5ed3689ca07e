"""The referee of several: copies behind a router, two pools, and attention ranks on one clock."""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from infer_jax.replays.reference import (
    ReferenceEngine as Engine,
    ReferencePass as Pass,
    ReferenceRequest as Request,
    ReferenceServer as Server,
    Sglang,
    Vllm,
    began,
    computed,
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


class RankRouter:
    """Requests that were sent to each rank, and where the next one goes."""

    def __init__(self, kind: str, ranks: int):
        self.kind, self.sent, self.loads = kind, [[] for _ in range(ranks)], [0.0] * ranks
        self.running: list[list[Request]] = [[] for _ in range(ranks)]  # in the pass that runs

    def look(self) -> None:
        """What each rank has now."""
        for k, line in enumerate(self.sent):
            there = [r for r in line if r.last == float("inf")]
            runs = sum(r in self.running[k] for r in there)
            self.loads[k] = {
                "shortest_queue": len(there),
                "minimum_tokens": sum(r.tokens for r in there),
                "weighted_queue": 4 * (len(there) - runs) + runs,
                "round_robin": 0,
            }[self.kind]

    def send(self, r: Request) -> int:
        count = len(self.sent)
        k = r.index % count if self.kind == "round_robin" else self.loads.index(min(self.loads))
        self.sent[k].append(r)
        more = {"minimum_tokens": r.tokens, "weighted_queue": 4}
        self.loads[k] += more.get(self.kind, 1)
        return k


def serve_ranks(
    own: Callable[..., float],
    common: Callable[..., float],
    engines: Sequence[Engine],
    lengths: Sequence[tuple[float, int, int, int]],
    kind: str,
    concurrency: int | None = None,
    drafts: int = 0,
    yields: Callable[[], int] = one_token,
) -> tuple[list[Request], RankRouter]:
    """What happens to requests of (arrival, prompt, output, cached) on ranks that run together."""
    requests = [Request(i, *one, yields=yields) for i, one in enumerate(lengths)]
    coming, ends, router = deque(requests), [], RankRouter(kind, len(engines))
    ahead: list[Pass | None] = [None] * len(engines)
    now = 0.0

    def send(until: float, held: bool) -> None:
        while coming and coming[0].arrival <= until:
            if concurrency is not None and coming[0].index - concurrency >= len(ends):
                return
            r = coming.popleft()
            r.arrival = until if held else r.arrival
            engines[router.send(r)].waiting.append(r)

    router.look()
    send(now, False)
    while len(ends) < len(requests):
        for k, e in enumerate(engines):
            # vLLM's rank that ran nothing along looks again when the pass ends; others' have
            # taken part in it, and look as the others do
            kept = ahead[k]
            if kept is None or (isinstance(e, Vllm) and not (kept.decodes or kept.parts)):
                ahead[k] = e.compose()
        if not any(fed and (fed.decodes or fed.parts) for fed in ahead):
            behind = [k for k, e in enumerate(engines) if e.overlap and not isinstance(e, Vllm)]
            for k in behind:
                ahead[k] = engines[k].compose()
        batches = [fed or Pass([], []) for fed in ahead]
        ran = [bool(fed.decodes or fed.parts) for fed in batches]
        if not any(ran):
            # SGLang's scheduler rests (``on_idle``) without a batch; one that runs along has one
            for e in engines:
                e.rests()
            ahead = [None] * len(engines)
            now = max(now, coming[0].arrival)
            router.running = [list(e.running) for e in engines]
            router.look()
            send(now, False)
            continue
        both = zip(engines, batches, strict=True)
        spent = [began(own, e, fed, now) if does else 0.0
                 for (e, fed), does in zip(both, ran, strict=True)]  # fmt: skip
        verified = [len(fed.decodes) * (1 + drafts) for fed in batches]
        both = zip(batches, verified, strict=True)
        fed_tokens = [n + sum(part for _, part in fed.parts) for fed, n in both]
        end = now + max(spent) + (common(fed_tokens, verified) if drafts else common(fed_tokens))
        router.running = [list(e.running) for e in engines]
        router.look()
        done = []
        for k, (e, fed) in enumerate(zip(engines, batches, strict=True)):
            useful = [r for r in fed.decodes if r.built < r.output]
            firsts = computed(Pass(useful, fed.parts))
            done.append((useful, firsts))
            ahead[k] = None
            if e.overlap:
                if isinstance(e, Sglang):
                    e.flying = [*useful, *firsts]
                if ran[k] or not isinstance(e, Vllm):
                    ahead[k] = e.compose()
        send(end, False)
        for e, (useful, firsts), fed in zip(engines, done, batches, strict=True):
            gone = []
            for r in (*useful, *firsts):
                if e.overlap and isinstance(e, Sglang) and r not in e.flying:
                    continue  # taken back: its token is thrown away
                r.first = min(r.first, end)
                if r.built == r.output:
                    gone.append(r)
            for r in gone:
                r.last = end
                e.running.remove(r)
                ends.append(end)
            if e.overlap and isinstance(e, Sglang):
                e.finished_some |= bool(gone)
                e.flying = []
            elif not e.overlap and (fed.decodes or fed.parts):
                e.left(gone, fed)
        now = end
        router.look()
        send(now, True)
    return requests, router
