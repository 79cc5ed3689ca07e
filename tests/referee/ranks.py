"""The referee of attention ranks: engines with queues of their own, one clock, pass after pass."""

from collections import deque
from collections.abc import Callable, Sequence

from infer_jax.replays.reference import (
    ReferenceEngine as Engine,
    ReferencePass as Pass,
    ReferenceRequest as Request,
    Sglang,
    Vllm,
    began,
    computed,
    one_token,
)


class Router:
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


def serve(
    own: Callable[..., float],
    common: Callable[..., float],
    engines: Sequence[Engine],
    lengths: Sequence[tuple[float, int, int, int]],
    kind: str,
    concurrency: int | None = None,
    drafts: int = 0,
    yields: Callable[[], int] = one_token,
) -> tuple[list[Request], Router]:
    """What happens to requests of (arrival, prompt, output, cached) on ranks that run together."""
    requests = [Request(i, *one, yields=yields) for i, one in enumerate(lengths)]
    coming, ends, router = deque(requests), [], Router(kind, len(engines))
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
