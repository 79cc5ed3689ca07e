"""The referee of engines' own rules: one pass after the other, requests in lists, in plain Python.

Written from what each engine's scheduler does, pass by pass, and not from what the replay makes of
it: no jumps, no closed forms, no arrays. ``step(decoding, context, new, pairs)`` is all they share.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil, inf
from typing import NamedTuple

StepTime = Callable[[float, float, float, float], float]


def one_token() -> int:
    """Tokens of a decode pass without drafts."""
    return 1


@dataclass(eq=False)
class Request:
    """One request and what happened to it."""

    index: int
    arrival: float
    prompt: int
    output: int
    cached: int = 0  # prompt tokens that need not be computed
    built: int = 0  # output tokens so far
    computed: int = 0  # tokens in the cache
    lost: int = 0  # output tokens that are computed anew with the prompt
    held: int = 0  # blocks
    admitted: float | None = None
    first: float = inf
    last: float = inf
    preempted: int = 0
    yields: Callable[[], int] = field(
        default=one_token, kw_only=True
    )  # tokens that a decode pass gives it
    beyond: int = field(
        default=0, kw_only=True
    )  # of them, tokens after its last one, which are thrown away
    got: int | None = field(default=None, kw_only=True)  # what its last pass gave, if it decoded
    sure: bool = field(
        default=True, kw_only=True
    )  # whether its last pass was wanted for one token alone

    def decode(self) -> None:
        """The tokens of a pass; none for one that has its last."""
        left = self.output - self.built
        if not left:
            return
        self.got, self.sure = self.yields(), left == 1
        useful = min(self.got, left)
        self.computed, self.built = self.computed + useful, self.built + useful
        self.beyond += self.got - useful

    @property
    def tokens(self) -> int:
        """Prompt and output so far."""
        return self.prompt + self.built

    def decodes(self) -> bool:
        return self.computed >= self.prompt + self.lost


class Pass(NamedTuple):
    """What one pass feeds: requests that decode, and parts of prompts."""

    decodes: list[Request]
    parts: list[tuple[Request, int]]


@dataclass
class Engine:
    """Sizes of a server; subclasses compose its passes."""

    budget: int
    slots: int
    blocks: int
    block: int = 16
    watermark: int = 0
    poll: int = 1
    overlap: bool = False  # a pass is put together while the one before it runs
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)

    def size(self, tokens: int) -> int:
        return ceil(tokens / self.block)

    def free(self) -> int:
        return self.blocks - sum(r.held for r in self.running)

    def compose(self) -> Pass:
        raise NotImplementedError

    def left(self, gone: list[Request], fed: Pass) -> None:
        """What an engine notes when requests leave."""

    def rests(self) -> None:
        """What it notes when there is nothing to do."""

    def waits(self) -> float:
        """Seconds for which the pass that begins waits for blocks from elsewhere."""
        return 0.0

    def take_back(self, r: Request) -> None:
        self.running.remove(r)
        r.held, r.computed, r.lost, r.preempted = 0, 0, r.built, r.preempted + 1


@dataclass
class Vllm(Engine):
    """vLLM V1's ``Scheduler.schedule``."""

    entire: bool = True  # scheduler_reserve_full_isl
    chunked: bool = True
    drafts: int = 0

    def ahead(self, r: Request) -> int:
        """Tokens of room beside those that a pass feeds: drafts of the next, and doubtful ones."""
        if not r.decodes():
            return 0
        doubtful = self.overlap and r.got is not None
        return self.drafts + (1 + self.drafts - (r.got or 0) if doubtful else 0)

    def compose(self) -> Pass:
        budget, fed, taken_back = self.budget, Pass([], []), False
        index = 0
        while index < len(self.running) and budget > 0:
            r = self.running[index]
            if r.built == r.output:  # its last token is in flight
                index += 1
                if not r.sure:  # nobody knows
                    fed.decodes.append(r)
                    budget -= 1 + self.drafts
                continue
            drafted = self.drafts if r.decodes() else 0
            new, ahead = min(r.tokens - r.computed + drafted, budget), self.ahead(r)
            while self.size(r.computed + new + ahead) - r.held > self.free():
                victim = [v for v in self.running if v.built < v.output][-1]
                self.take_back(victim)
                self.waiting.appendleft(victim)
                taken_back = True
                if victim is r:
                    break
            else:
                r.held = max(r.held, self.size(r.computed + new + ahead))
                budget -= self._feed(r, new, fed)
                index += 1
                continue
            break
        while not taken_back and self.waiting and budget > 0 and len(self.running) < self.slots:
            r = self.waiting[0]
            if not self.chunked and r.tokens - r.cached > budget:
                break
            new = min(r.tokens - r.cached, budget)
            wanted = self.size(r.tokens if self.entire else r.cached + new)
            spare = self.watermark if self.running else 0
            if wanted > self.free() - spare:
                break
            self.running.append(self.waiting.popleft())
            r.computed = r.cached
            r.held = self.size(r.cached + new)
            budget -= self._feed(r, new, fed)
        return fed

    def _feed(self, r: Request, new: int, fed: Pass) -> int:
        if r.decodes():
            fed.decodes.append(r)
        else:
            fed.parts.append((r, new))
        return new


@dataclass
class Trtllm(Engine):
    """TensorRT-LLM's capacity scheduler and the micro-batch scheduler after it."""

    evicts: bool = False  # MAX_UTILIZATION in place of GUARANTEED_NO_EVICT
    chunked: bool = True

    def compose(self) -> Pass:
        fitting = self._utilised() if self.evicts else self._guaranteed()
        budget, fed = self.budget, Pass([], [])
        for r in fitting:
            if r.decodes() and r.built < r.output:  # else its last token is in flight
                fed.decodes.append(r)
        budget -= len(fed.decodes)
        for r in fitting:
            rest = r.prompt + r.lost - r.computed
            if r.decodes():
                continue
            if rest > budget and not self.chunked:
                break
            new = rest if rest <= budget else budget // self.block * self.block
            budget -= new
            if new:
                fed.parts.append((r, new))
            if new < rest:
                break  # the engine goes on to prompts that fit what is left of a unit: see the docs
        # a request that no pass has begun is not started
        begun = {id(r) for r, _ in fed.parts}
        for r in fitting:
            if r not in self.running and id(r) in begun:
                self.waiting.remove(r)
                self.running.append(r)
        self.running.sort(key=lambda r: r.index)
        return fed

    def _guaranteed(self) -> list[Request]:
        """Those that run, and of the others all up to the first whose whole life does not fit."""
        fitting, free = list(self.running), self.blocks
        free -= sum(self.size(r.prompt + r.output) for r in fitting)
        for r in self.waiting:
            wanted = self.size(r.prompt + r.output)
            if len(fitting) >= self.slots or wanted > free:
                break
            fitting.append(r)
            free -= wanted
        return fitting

    def _utilised(self) -> list[Request]:
        """In order of arrival while blocks last; else the last that has started is paused."""
        active = sorted([*self.running, *self.waiting], key=lambda r: r.index)
        fitting: list[Request] = []
        used, index, end = 0, 0, len(active)
        while index < end:
            r = active[index]
            wanted = self.size(r.tokens if r.decodes() else r.prompt + r.lost)
            others = sum(s.held for s in active[index + 1 : end] if s in self.running)
            if len(fitting) < self.slots and used + wanted + others <= self.blocks:
                fitting.append(r)
                r.held, used, index = wanted, used + wanted, index + 1
                continue
            started = [i for i in range(index, end) if active[i] in self.running]
            if not started:
                break
            end = started[-1]
            self.take_back(active[end])
            self.waiting.appendleft(active[end])
        return fitting


@dataclass
class Sglang(Engine):
    """SGLang's ``get_next_batch_to_run``: a batch of prompts if one can be had, else a decode."""

    block: int = 1
    ratio: float = 0.7
    least: float = 0.098
    decay: float = 600.0
    clip: int = 4096
    ahead: int = 20
    now_ratio: float = 0.7
    full: bool = False
    begun: Request | None = None
    finished_some: bool = False
    flying: list[Request] = field(default_factory=list)  # a token each in the pass that runs

    def compose(self) -> Pass:
        fed = self._prefill()
        if fed.parts:
            return fed
        batch = [r for r in self.running if r.decodes()]
        shrunk = self.finished_some
        self.finished_some = False
        kept = list(batch)
        over = [r for r in batch if r.built == r.output]  # its last token is in flight
        if self._lacks(kept) and len(kept) > len(over) + 1:
            order = sorted(
                (r for r in kept if r not in over),
                key=lambda r: (self.known(r), -r.prompt, -r.index),
                reverse=True,
            )
            while len(order) > 1 and self._lacks(order + over):
                victim = order.pop()
                self.take_back(victim)
                self.waiting.append(victim)
            shrunk = True
            so_far = sum(self.known(r) for r in order) + self.ahead * len(order)
            self.now_ratio = min(1.0, so_far / (sum(r.output for r in order) + 1))
            kept = [r for r in batch if r in order or r in over]
        elif batch:
            fall = (self.ratio - self.least) / self.decay
            self.now_ratio = max(self.now_ratio - fall, self.least)
        self.full &= not shrunk and (bool(batch) or not self.overlap)
        for r in kept:
            r.held = self.size(r.tokens)
        return Pass(kept, [])

    def known(self, r: Request) -> int:
        """Output tokens of a request that the scheduler has seen."""
        return r.built - (r in self.flying)

    def take_back(self, r: Request) -> None:
        if r in self.flying:  # its token is thrown away when it comes
            self.flying.remove(r)
            r.built -= 1
        super().take_back(r)

    def _lacks(self, batch: list[Request]) -> bool:
        return sum(self.size(r.tokens) for r in batch) > self.blocks

    def _prefill(self) -> Pass:
        fed, budget, charged = Pass([], []), self.budget, 0.0
        decoding = [r for r in self.running if r.decodes()]
        coming = sum(min(r.output - self.known(r), self.clip) * self.now_ratio for r in decoding)
        free = self.free() * self.block - coming
        if self.begun is not None:
            r = self.begun
            new = min(r.prompt + r.lost - r.computed, budget)
            charged += self._admit(r, new, fed)
            budget -= self.pages(new)
        while self.waiting and budget > 0:
            if len(self.running) >= self.slots:
                self.full = True
            if self.full:
                break
            r = self.waiting[0]
            if r.tokens + min(r.output - r.built, self.clip) >= free - charged:
                self.full = True
                break
            self.running.append(self.waiting.popleft())
            new = min(r.tokens, budget)
            charged += self._admit(r, new, fed)
            budget -= self.pages(new)
        return fed

    def _admit(self, r: Request, new: int, fed: Pass) -> float:
        """Feed a part; what it takes of the tokens that count as free."""
        fed.parts.append((r, new))
        whole = r.computed + new >= r.prompt + r.lost
        self.begun = None if whole else r
        r.held = self.size(r.computed + new)
        return self.pages(new) + self.block + (min(r.output - r.built, self.clip) if whole else 0)

    def pages(self, tokens: int) -> int:
        """Tokens of whole pages (``ceil_paged_tokens``)."""
        return self.size(tokens) * self.block

    def left(self, gone: list[Request], fed: Pass) -> None:
        if fed.parts and gone:
            self.full = False
        elif gone:
            self.finished_some = True
        if not any(r.decodes() for r in self.running):
            self.full = False

    def rests(self) -> None:
        self.now_ratio, self.full = self.ratio, False


def serve(
    step: StepTime,
    engine: Engine,
    lengths: Iterable[tuple[float, int, int] | tuple[float, int, int, int]],
    concurrency: int | None = None,
    yields: Callable[[int], Callable[[], int]] = lambda index: one_token,
) -> list[Request]:
    """What happens to requests of (arrival, prompt, output[, cached]), in order of arrival.

    With ``concurrency`` one that arrives while as many are in flight is sent when one of them ends.
    ``yields``: of the request of an index, what draws the tokens of its decode passes.
    """
    requests = [Request(i, arrival, *tokens) for i, (arrival, *tokens) in enumerate(lengths)]
    for r in requests:
        r.yields = yields(r.index)
    if engine.overlap and isinstance(engine, Sglang):
        return _one_behind(step, engine, requests, concurrency)
    if engine.overlap:
        return _overlapped(step, engine, requests, concurrency)
    coming, ends = deque(requests), []
    now, passes = 0.0, 0
    pending: deque[Request] = deque()  # have arrived and were not looked at
    while len(ends) < len(requests):
        pending.extend(_sent(coming, ends, now, concurrency))
        if passes % engine.poll == 0 or not (engine.running or engine.waiting):
            engine.waiting.extend(pending)
            pending.clear()
        fed = engine.compose()
        if not fed.decodes and not fed.parts:
            engine.rests()
            if not pending and not engine.waiting:
                now = max(now, coming[0].arrival)
            continue
        now += began(step, engine, fed, now)
        passes += 1
        ends += [now] * len(ended(engine, fed, now))
    return requests


def began(step: StepTime, engine: Engine, fed: Pass, now: float) -> float:
    """Admit those who run as a pass begins; its seconds."""
    for r in engine.running:
        r.admitted = now if r.admitted is None else r.admitted
    new = sum(n for _, n in fed.parts)
    pairs = sum(n * (r.computed + n / 2.0) for r, n in fed.parts)
    context = sum(r.tokens + r.beyond for r in fed.decodes)
    return float(step(len(fed.decodes), context, new, pairs)) + engine.waits()


def computed(fed: Pass) -> list[Request]:
    """Count the tokens of a pass; the requests whose prompt it ends."""
    for r in fed.decodes:
        r.decode()
    firsts: list[Request] = []
    for r, n in fed.parts:
        r.computed += n
        if r.computed == r.prompt + r.lost:
            r.built, r.got, r.sure = r.built + 1, None, True
            firsts.append(r)
    return firsts


def ended(engine: Engine, fed: Pass, now: float) -> list[Request]:
    """End a pass; those that have their last token, which leave."""
    for r in computed(fed):
        r.first = min(r.first, now)
    gone = [r for r in engine.running if r.built == r.output]
    for r in gone:
        r.last = now
        engine.running.remove(r)
    engine.left(gone, fed)
    return gone


def _sent(
    coming: deque[Request], ends: list[float], now: float, concurrency: int | None
) -> Iterator[Request]:
    """The requests that are sent by ``now``; ``ends`` are the times at which others ended."""
    while coming and coming[0].arrival <= now:
        before = -1 if concurrency is None else coming[0].index - concurrency
        if before >= len(ends):
            return
        if before >= 0:
            coming[0].arrival = max(coming[0].arrival, ends[before])
        yield coming.popleft()


def _overlapped(
    step: StepTime, engine: Engine, requests: list[Request], concurrency: int | None
) -> list[Request]:
    """The engine's loop with two passes in flight (vLLM's ``step_with_batch_queue``).

    A pass is put together as soon as fewer than two are in flight, before the oldest is waited for;
    tokens count as computed from then on, requests leave when their last pass has ended.
    """
    coming, flight, ends = deque(requests), deque(), []
    now, free = 0.0, 0.0
    while len(ends) < len(requests):
        engine.waiting.extend(_sent(coming, ends, now, concurrency))
        fed = engine.compose()
        if fed.decodes or fed.parts:
            begun = max(now, free)
            free = begun + began(step, engine, fed, begun)
            useful = [r for r in fed.decodes if r.built < r.output]
            firsts = computed(fed)
            gone = [r for r in (*useful, *firsts) if r.built == r.output]
            flight.append((free, firsts, gone))
            if len(flight) < 2:
                continue
        if not flight:
            now = max(now, coming[0].arrival)
            continue
        now, firsts, gone = flight.popleft()
        for r in firsts:
            r.first = min(r.first, now)
        for r in gone:
            r.last = now
            engine.running.remove(r)
            ends.append(now)
    return requests


def _one_behind(
    step: StepTime, engine: Sglang, requests: list[Request], concurrency: int | None
) -> list[Request]:
    """SGLang's ``event_loop_overlap``: a pass is launched, then the one before it is waited for.

    Who finishes in the pass that runs is not known when the next is put together, and decodes in it
    once more.
    """
    coming, ends = deque(requests), []
    now, free = 0.0, 0.0
    flight: tuple[float, list[tuple[Request, bool]]] | None = None
    while len(ends) < len(requests):
        engine.waiting.extend(_sent(coming, ends, now, concurrency))
        fed = engine.compose()
        launched = None
        if fed.decodes or fed.parts:
            begun = max(now, free)
            free = begun + began(step, engine, fed, begun)
            useful = [r for r in fed.decodes if r.built < r.output]
            firsts = computed(Pass(useful, fed.parts))
            launched = free, [(r, r.built == r.output) for r in (*useful, *firsts)]
        if flight is not None:
            now, waited = flight
            for r, over in waited:
                if r not in engine.flying:
                    continue
                r.first = min(r.first, now)
                if over:
                    r.last = now
                    engine.running.remove(r)
                    engine.finished_some = True
                    ends.append(now)
        elif launched is None:
            engine.rests()
            if not engine.waiting:
                now = max(now, coming[0].arrival)
        engine.flying = [] if launched is None else [r for r, _ in launched[1]]
        flight = launched
    return requests
