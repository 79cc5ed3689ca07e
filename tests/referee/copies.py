"""The referee of copies behind a router: engines in plain Python, each with a clock of its own."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

from infer_jax.replays.reference import (
    ReferenceEngine as Engine,
    ReferencePass as Pass,
    ReferenceRequest as Request,
    Sglang,
    began,
    computed,
    ended,
)


class View(NamedTuple):
    """What runs in a pass, and the tokens that requests have when it begins."""

    running: list[Request]
    tokens: dict[int, int]


class Copy:
    """An engine that goes on by itself from one moment to the next at which others may act."""

    def __init__(self, step: Callable[..., float], engine: Engine):
        self.step, self.engine = step, engine
        self.line: deque[Request] = deque()  # sent, and not looked at
        self.there: list[Request] = []  # all that were sent
        self.view = View([], {})
        lives = self._plain
        if engine.overlap:
            lives = self._one_behind if isinstance(engine, Sglang) else self._overlapped
        self._life = lives()
        self.time = next(self._life)

    def go(self) -> None:
        self.time = next(self._life)

    def sent(self, r: Request) -> None:
        self.line.append(r)
        self.there.append(r)
        if self.time == inf:
            self.time = r.arrival

    def waiting(self) -> list[Request]:
        return [r for r in self.there if r.last == inf and r not in self.view.running]

    def running(self) -> list[Request]:
        return [r for r in self.view.running if r.last == inf]

    def tokens(self) -> int:
        there = (r for r in self.there if r.last == inf)
        return sum(self.view.tokens.get(r.index, r.prompt) for r in there)

    def _look(self, now: float) -> None:
        while self.line and self.line[0].arrival <= now:
            self.engine.waiting.append(self.line.popleft())

    def _tokens(self) -> dict[int, int]:
        return {r.index: r.tokens for r in self.there}

    def _seen(self) -> View:
        return View(list(self.engine.running), self._tokens())

    def _rest(self, now: float) -> Iterator[float]:
        """Until a request comes."""
        self.view = View([], self._tokens())
        while not self.line:
            yield inf

    def _plain(self) -> Iterator[float]:
        """Time goes on with passes: their end, and a look at the queue before the next."""
        now, e = 0.0, self.engine
        while True:
            yield now
            self._look(now)
            fed = e.compose()
            if not (fed.decodes or fed.parts):
                e.rests()
                if not e.waiting:
                    yield from self._rest(now)
                    now = max(now, self.line[0].arrival)
                continue
            self.view = self._seen()
            now += began(self.step, e, fed, now)
            yield now
            ended(e, fed, now)
            self.view = View(self.view.running, self._tokens())

    def _overlapped(self) -> Iterator[float]:
        """Two passes in flight, as in ``infer_jax.replays.reference``."""
        now, free, e = 0.0, 0.0, self.engine
        flight: deque[tuple[float, list[Request], list[Request], View]] = deque()
        while True:
            yield now
            if flight:
                self.view = flight[0][3]
            self._look(now)
            after = self._tokens()  # of the pass that runs
            fed = e.compose()
            if fed.decodes or fed.parts:
                begun, view = max(now, free), self._seen()
                free = begun + began(self.step, e, fed, begun)
                useful = [r for r in fed.decodes if r.built < r.output]
                firsts = computed(fed)
                gone = [r for r in (*useful, *firsts) if r.built == r.output]
                flight.append((free, firsts, gone, view))
                if len(flight) < 2:
                    continue
            if not flight:
                yield from self._rest(now)
                now = max(now, self.line[0].arrival)
                continue
            yield flight[0][0]
            now, firsts, gone, _ = flight.popleft()
            self.view = View(self.view.running, after)
            for r in firsts:
                r.first = min(r.first, now)
            for r in gone:
                r.last = now
                e.running.remove(r)

    def _one_behind(self) -> Iterator[float]:
        """SGLang's, as in ``infer_jax.replays.reference``."""
        now, free, e = 0.0, 0.0, self.engine
        assert isinstance(e, Sglang)
        flight: tuple[float, list[tuple[Request, bool]], View] | None = None
        while True:
            yield now
            if flight is not None:
                self.view = flight[2]
            self._look(now)
            after = self._tokens()  # of the pass that runs
            fed, launched = e.compose(), None
            if fed.decodes or fed.parts:
                begun, view = max(now, free), self._seen()
                free = begun + began(self.step, e, fed, begun)
                useful = [r for r in fed.decodes if r.built < r.output]
                firsts = computed(Pass(useful, fed.parts))
                launched = free, [(r, r.built == r.output) for r in (*useful, *firsts)], view
            if flight is not None:
                yield flight[0]
                now, waited, _ = flight
                self.view = View(self.view.running, after)
                self._read(now, waited)
            elif launched is None:
                e.rests()
                if not e.waiting:
                    yield from self._rest(now)
                    now = max(now, self.line[0].arrival)
            e.flying = [] if launched is None else [r for r, _ in launched[1]]
            flight = launched

    def _read(self, now: float, waited: list[tuple[Request, bool]]) -> None:
        """The results of a pass that has ended."""
        e = self.engine
        assert isinstance(e, Sglang)
        for r, over in waited:
            if r not in e.flying:
                continue
            r.first = min(r.first, now)
            if over:
                r.last = now
                e.running.remove(r)
                e.finished_some = True


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

    def send(self, r: Request, copies: list[Copy], block: int) -> int:
        """A copy among those that take requests now, by its place in the list of these."""
        there = [k for k, (a, b) in enumerate(self.windows) if a <= r.arrival < b]
        there = there if self.windows else list(range(len(copies)))
        self.copy.append(there[self._choose(r, [copies[k] for k in there], block)])
        return self.copy[-1]

    def _choose(self, r: Request, copies: list[Copy], block: int) -> int:
        queue = [len(c.waiting()) + len(c.running()) for c in copies]
        loads = {
            "round_robin": [(k - r.index) % len(copies) for k in range(len(copies))],
            "minimum_tokens": [c.tokens() for c in copies],
            "weighted_queue": [4 * len(c.waiting()) + len(c.running()) for c in copies],
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
    """What happens to requests of (arrival, prompt, output, cached); the first copy goes on."""
    requests = [Request(i, *one) for i, one in enumerate(lengths)]
    copies, coming = [Copy(step, e) for e in engines], deque(requests)

    def due() -> float:
        if not coming:
            return inf
        over = sum(r.last < inf for r in requests)
        held = concurrency is not None and coming[0].index - concurrency >= over
        return inf if held else coming[0].arrival

    now = 0.0
    while any(r.last == inf for r in requests):
        first = min(copies, key=lambda c: c.time)
        if due() <= first.time:
            now = max(now, due())
            r = coming.popleft()
            r.arrival = now
            copies[router.send(r, copies, engines[0].block)].sent(r)
            continue
        now = first.time
        first.go()
    return requests
