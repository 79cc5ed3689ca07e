"""The engines' loops in plain Python: one pass after the other, requests in lists.

Written from what each engine does, pass by pass, and not from what the compiled replay makes of it:
no jumps, no closed forms, no arrays. ``step(decoding, context, new, pairs)`` is all they share.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import inf

from infer_jax.replays.reference.engine import (
    ReferenceEngine,
    ReferencePass,
    ReferenceRequest,
    ReferenceRequests,
    one_token,
)
from infer_jax.replays.reference.sglang import Sglang

PlainStep = Callable[[float, float, float, float], float]
RunningPass = tuple[ReferenceRequests, dict[int, int]]


def serve_plainly(
    step: PlainStep,
    engine: ReferenceEngine,
    lengths: Iterable[tuple[float, int, int] | tuple[float, int, int, int]],
    concurrency: int | None = None,
    yields: Callable[[int], Callable[[], int]] = lambda index: one_token,
) -> ReferenceRequests:
    """What happens to requests of (arrival, prompt, output[, cached]), in order of arrival.

    With ``concurrency`` one that arrives while as many are in flight is sent when one of them ends.
    ``yields``: of the request of an index, what draws the tokens of its decode passes.
    """
    requests = [
        ReferenceRequest(i, arrival, *tokens) for i, (arrival, *tokens) in enumerate(lengths)
    ]
    for r in requests:
        r.yields = yields(r.index)
    server = ReferenceServer(step, engine)
    route_plainly(requests, [server], lambda r: server, concurrency)
    return requests


def route_plainly(
    requests: ReferenceRequests,
    servers: "list[ReferenceServer]",
    route: "Callable[[ReferenceRequest], ReferenceServer]",
    concurrency: int | None = None,
) -> None:
    """Serve requests by servers, each with a clock of its own, of which the first goes on.

    Each is sent to the server that ``route`` chooses at that moment.
    """
    coming, now, ends = deque(requests), 0.0, 0
    while ends < len(requests):
        first = min(servers, key=lambda server: server.time)
        held = coming and concurrency is not None and coming[0].index - concurrency >= ends
        if coming and not held and coming[0].arrival <= first.time:
            r = coming.popleft()
            now = r.arrival = max(now, r.arrival)
            route(r).send(r)
        else:
            now = first.time
            ends += len(first.go())


class ReferenceServer:
    """An engine's loop, which goes on from one moment to the next at which others may act.

    ``time`` is that moment, infinite while it rests. ``there`` are the requests that were sent and
    have not ended, ``running`` those of the pass that runs, ``tokens`` what all had as it began.
    """

    def __init__(self, step: PlainStep, engine: ReferenceEngine):
        self.step, self.engine = step, engine
        self.line: deque[ReferenceRequest] = deque()  # sent, and not polled yet
        self.there: ReferenceRequests = []
        self.running: ReferenceRequests = []
        self.tokens: dict[int, int] = {}
        self._ends: ReferenceRequests = []
        if not engine.overlap:
            self._loop = self._one_by_one()
        else:
            behind = isinstance(engine, Sglang)
            self._loop = self._one_behind(engine) if behind else self._two_in_flight()
        self.time = next(self._loop)

    def go(self) -> ReferenceRequests:
        """Go on to the next moment; the requests that end at this one."""
        self._ends = []
        self.time = next(self._loop)
        return self._ends

    def send(self, r: ReferenceRequest) -> None:
        """A request that arrives now."""
        self.line.append(r)
        self.there.append(r)
        if self.time == inf:
            self.time = r.arrival

    def _poll(self, now: float) -> None:
        while self.line and self.line[0].arrival <= now:
            self.engine.waiting.append(self.line.popleft())

    def _end(self, r: ReferenceRequest, now: float) -> None:
        r.last = now
        self.engine.running.remove(r)
        self.there.remove(r)
        self._ends.append(r)

    def _tokens(self) -> dict[int, int]:
        return {r.index: r.tokens for r in self.there}

    def _begin(self) -> RunningPass:
        return list(self.engine.running), self._tokens()

    def _rest(self) -> Iterator[float]:
        """Until a request comes."""
        self.running, self.tokens = [], self._tokens()
        while not self.line:
            yield inf

    def _one_by_one(self) -> Iterator[float]:
        """Time goes on with passes: their end, and a poll of the queue before the next."""
        now, passes, e = 0.0, 0, self.engine
        while True:
            yield now
            if passes % e.poll == 0 or not (e.running or e.waiting):
                self._poll(now)
            fed = e.compose()
            if not (fed.decodes or fed.parts):
                e.rests()
                if not e.waiting:
                    yield from self._rest()
                    now = max(now, self.line[0].arrival)
                continue
            self.running, self.tokens = self._begin()
            now += began(self.step, e, fed, now)
            passes += 1
            yield now
            for r in computed(fed):
                r.first = min(r.first, now)
            gone = [r for r in e.running if r.built == r.output]
            for r in gone:
                self._end(r, now)
            e.left(gone, fed)
            self.tokens = self._tokens()

    def _two_in_flight(self) -> Iterator[float]:
        """The engine's loop with two passes in flight (vLLM's ``step_with_batch_queue``).

        A pass is put together as soon as fewer than two are in flight, before the oldest is waited
        for; tokens count as computed from then on, requests leave when their last pass has ended.
        """
        now, free, e = 0.0, 0.0, self.engine
        flight: deque[tuple[float, ReferenceRequests, ReferenceRequests, RunningPass]] = deque()
        while True:
            yield now
            if flight:
                self.running, self.tokens = flight[0][3]
            self._poll(now)
            after = self._tokens()  # of the pass that runs
            fed = e.compose()
            if fed.decodes or fed.parts:
                begun, runs = max(now, free), self._begin()
                free = begun + began(self.step, e, fed, begun)
                useful = [r for r in fed.decodes if r.built < r.output]
                firsts = computed(fed)
                gone = [r for r in (*useful, *firsts) if r.built == r.output]
                flight.append((free, firsts, gone, runs))
                if len(flight) < 2:
                    continue
            if not flight:
                yield from self._rest()
                now = max(now, self.line[0].arrival)
                continue
            yield flight[0][0]
            now, firsts, gone, _ = flight.popleft()
            self.tokens = after
            for r in firsts:
                r.first = min(r.first, now)
            for r in gone:
                self._end(r, now)

    def _one_behind(self, e: Sglang) -> Iterator[float]:
        """SGLang's ``event_loop_overlap``: a pass is launched, then the one before is waited for.

        Who finishes in the pass that runs is not known when the next is put together, and decodes
        in it once more.
        """
        now, free = 0.0, 0.0
        flight: tuple[float, list[tuple[ReferenceRequest, bool]], bool, RunningPass] | None = None
        while True:
            yield now
            if flight is not None:
                self.running, self.tokens = flight[3]
            self._poll(now)
            after = self._tokens()  # of the pass that runs
            fed, launched = e.compose(), None
            if fed.decodes or fed.parts:
                begun, runs = max(now, free), self._begin()
                free = begun + began(self.step, e, fed, begun)
                useful = [r for r in fed.decodes if r.built < r.output]
                firsts = computed(ReferencePass(useful, fed.parts))
                done = [(r, r.built == r.output) for r in (*useful, *firsts)]
                launched = free, done, bool(fed.decodes), runs
            if flight is not None:
                yield flight[0]
                now, waited, decoded, _ = flight
                self.tokens = after
                waited = [(r, over) for r, over in waited if r in e.flying]
                for r, over in waited:
                    r.first = min(r.first, now)
                    if over:
                        self._end(r, now)
                        e.finished_some = True
                e.read(waited, decoded)
            elif launched is None:
                e.rests()
                if not e.waiting:
                    yield from self._rest()
                    now = max(now, self.line[0].arrival)
            e.flying = [] if launched is None else [r for r, _ in launched[1]]
            flight = launched


def began(step: PlainStep, engine: ReferenceEngine, fed: ReferencePass, now: float) -> float:
    """Admit those who run as a pass begins; its seconds."""
    for r in engine.running:
        r.admitted = now if r.admitted is None else r.admitted
    new = sum(n for _, n in fed.parts)
    pairs = sum(n * (r.computed + n / 2.0) for r, n in fed.parts)
    context = sum(r.tokens + r.beyond for r in fed.decodes)
    return float(step(len(fed.decodes), context, new, pairs)) + engine.waits()


def computed(fed: ReferencePass) -> ReferenceRequests:
    """Count the tokens of a pass; the requests whose prompt it ends."""
    for r in fed.decodes:
        r.decode()
    firsts: ReferenceRequests = []
    for r, n in fed.parts:
        r.computed += n
        if r.computed == r.prompt + r.lost:
            r.built, r.got, r.sure, r.news = r.built + 1, None, True, 1
            firsts.append(r)
    return firsts
