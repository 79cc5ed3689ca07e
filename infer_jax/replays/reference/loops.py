"""The engines' loops in plain Python: one pass after the other, requests in lists.

Written from what each engine does, pass by pass, and not from what the compiled replay makes of it:
no jumps, no closed forms, no arrays. ``step(decoding, context, new, pairs)`` is all they share.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from infer_jax.replays.reference.engine import (
    ReferenceEngine,
    ReferencePass,
    ReferenceRequest,
    ReferenceRequests,
    one_token,
)
from infer_jax.replays.reference.sglang import Sglang

PlainStep = Callable[[float, float, float, float], float]


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
    if engine.overlap and isinstance(engine, Sglang):
        return _one_behind(step, engine, requests, concurrency)
    if engine.overlap:
        return _overlapped(step, engine, requests, concurrency)
    coming, ends = deque(requests), []
    now, passes = 0.0, 0
    pending: deque[ReferenceRequest] = deque()  # have arrived and were not looked at
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


def ended(engine: ReferenceEngine, fed: ReferencePass, now: float) -> ReferenceRequests:
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
    coming: deque[ReferenceRequest], ends: list[float], now: float, concurrency: int | None
) -> Iterator[ReferenceRequest]:
    """The requests that are sent by ``now``; ``ends`` are the times at which others ended."""
    while coming and coming[0].arrival <= now:
        before = -1 if concurrency is None else coming[0].index - concurrency
        if before >= len(ends):
            return
        if before >= 0:
            coming[0].arrival = max(coming[0].arrival, ends[before])
        yield coming.popleft()


def _overlapped(
    step: PlainStep, engine: ReferenceEngine, requests: ReferenceRequests, concurrency: int | None
) -> ReferenceRequests:
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
    step: PlainStep, engine: Sglang, requests: ReferenceRequests, concurrency: int | None
) -> ReferenceRequests:
    """SGLang's ``event_loop_overlap``: a pass is launched, then the one before it is waited for.

    Who finishes in the pass that runs is not known when the next is put together, and decodes in it
    once more.
    """
    coming, ends = deque(requests), []
    now, free = 0.0, 0.0
    flight: tuple[float, list[tuple[ReferenceRequest, bool]], bool] | None = None
    while len(ends) < len(requests):
        engine.waiting.extend(_sent(coming, ends, now, concurrency))
        fed = engine.compose()
        launched = None
        if fed.decodes or fed.parts:
            begun = max(now, free)
            free = begun + began(step, engine, fed, begun)
            useful = [r for r in fed.decodes if r.built < r.output]
            firsts = computed(ReferencePass(useful, fed.parts))
            done = [(r, r.built == r.output) for r in (*useful, *firsts)]
            launched = free, done, bool(fed.decodes)
        if flight is not None:
            now, waited, decoded = flight
            waited = [(r, over) for r, over in waited if r in engine.flying]
            for r, over in waited:
                r.first = min(r.first, now)
                if over:
                    r.last = now
                    engine.running.remove(r)
                    engine.finished_some = True
                    ends.append(now)
            engine.read(waited, decoded)
        elif launched is None:
            engine.rests()
            if not engine.waiting:
                now = max(now, coming[0].arrival)
        engine.flying = [] if launched is None else [r for r, _ in launched[1]]
        flight = launched
    return requests
