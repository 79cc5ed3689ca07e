"""The referee: what happens to every request of a server, event by event, in NumPy.

An engine that batches continuously, as vLLM's scheduler does: a step feeds one token of every
decoding request and, with what is left of its token budget, chunks of prompts in the order of
arrival. A request is admitted when a slot and cache blocks for its whole life are free. The law
under test and this program share the step-time function and nothing else.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

StepTime = Callable[..., np.ndarray]  # (decoding, their cached tokens, new, pairs) -> seconds
STRETCH = 512  # decode steps taken at once where nothing else can happen


class Requests(NamedTuple):
    """Arrivals in order (seconds; zeros in a closed loop), and lengths."""

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray


class Engine(NamedTuple):
    """Tokens fed a step, requests running, cache blocks and their tokens."""

    budget: int
    slots: int
    blocks: int
    block: int = 16


class Log(NamedTuple):
    """Of every request: when it came, saw its first and its last token."""

    arrival: np.ndarray
    first: np.ndarray
    last: np.ndarray
    output: np.ndarray

    def settled(self, share: float = 0.2) -> "Log":
        """The requests that came after the first ``share`` of them, but for the last few."""
        n = len(self.arrival)
        return Log(*(x[int(share * n) : int(0.97 * n)] for x in self))

    @property
    def ttft(self) -> np.ndarray:
        return self.first - self.arrival

    @property
    def tpot(self) -> np.ndarray:
        """Seconds per token after the first, of requests that have one."""
        more = self.output > 1
        return (self.last - self.first)[more] / (self.output[more] - 1)

    @property
    def rate(self) -> float:
        """Requests that finish per second."""
        return (len(self.last) - 1) / float(np.ptp(np.sort(self.last)))


def serve(
    step: StepTime, engine: Engine, requests: Requests, concurrency: int | None = None
) -> Log:
    """Serve all requests; a closed loop keeps ``concurrency`` of them in flight."""
    return _Run(step, engine, requests, concurrency).run()


class _Run:
    def __init__(self, step, engine: Engine, requests: Requests, concurrency: int | None):
        self.step, self.engine, self.concurrency = step, engine, concurrency
        self.prompt = requests.prompt.astype(int).tolist()
        self.output = requests.output.astype(int).tolist()
        n = len(self.prompt)
        self.arrival = requests.arrival.astype(float).tolist()
        self.first, self.last = [0.0] * n, [0.0] * n
        self.free = engine.blocks
        self.waiting: deque[int] = deque()
        self.prefilling: deque[list[int]] = deque()  # [request, tokens left, tokens cached]
        self.ends: list[tuple[int, int]] = []  # (step of the last token, request)
        self.now, self.steps, self.context, self.running = 0.0, 0, 0, 0
        self.coming = 0 if concurrency is None else concurrency
        if concurrency is not None:
            self.waiting.extend(range(min(concurrency, n)))

    def run(self) -> Log:
        left = len(self.prompt)
        while left:
            self._arrive()
            self._admit()
            if self.prefilling:
                left -= self._mixed()
            elif self.ends:
                left -= self._decode()
            else:
                self.now = self.arrival[self.coming]
        return Log(*map(np.asarray, (self.arrival, self.first, self.last, self.output)))

    def _more(self) -> bool:
        return self.concurrency is None and self.coming < len(self.prompt)

    def _arrive(self) -> None:
        while self._more() and self.arrival[self.coming] <= self.now:
            self.waiting.append(self.coming)
            self.coming += 1

    def _admit(self) -> None:
        while self.waiting and self.running < self.engine.slots:
            r = self.waiting[0]
            if self._size(r) > self.free:
                assert self.running, "a request larger than the whole cache"
                break
            self.waiting.popleft()
            self.running += 1
            self.free -= self._size(r)
            self.prefilling.append([r, self.prompt[r], 0])

    def _mixed(self) -> int:
        """One step with prompts in it; how many requests it finished."""
        decoding = len(self.ends)
        room, fed, pairs, complete = max(self.engine.budget - decoding, 1), 0, 0.0, []
        while self.prefilling and room:
            chunk = self.prefilling[0]
            size = min(chunk[1], room)
            pairs += size * (chunk[2] + size / 2.0)
            fed, room = fed + size, room - size
            chunk[1], chunk[2] = chunk[1] - size, chunk[2] + size
            if not chunk[1]:
                complete.append(self.prefilling.popleft()[0])
        self.now += float(self.step(decoding, self.context, fed, pairs))
        self.steps += 1
        self.context += decoding
        done = self._finish()
        for r in complete:
            self.first[r] = self.now
            if self.output[r] == 1:
                done += self._leave(r)
            else:
                heapq.heappush(self.ends, (self.steps + self.output[r] - 1, r))
                self.context += self.prompt[r] + 1
        return done

    def _decode(self) -> int:
        """Decode steps until a request finishes or one can be admitted."""
        decoding = len(self.ends)
        count = min(self.ends[0][0] - self.steps, STRETCH)
        spent = self.step(decoding, self.context + decoding * np.arange(count), 0, 0.0)
        ends = self.now + np.cumsum(spent)
        waits = self._more() and self.running < self.engine.slots
        wake = self.arrival[self.coming] if waits else np.inf
        taken = min(int(np.searchsorted(ends, wake)) + 1, count)
        self.now = float(ends[taken - 1])
        self.steps += taken
        self.context += decoding * taken
        return self._finish()

    def _finish(self) -> int:
        done = 0
        while self.ends and self.ends[0][0] <= self.steps:
            r = heapq.heappop(self.ends)[1]
            self.context -= self.prompt[r] + self.output[r]
            done += self._leave(r)
        return done

    def _leave(self, r: int) -> int:
        self.last[r] = self.now
        self.running -= 1
        self.free += self._size(r)
        if self.concurrency is not None and self.coming < len(self.prompt):
            self.arrival[self.coming] = self.now
            self.waiting.append(self.coming)
            self.coming += 1
        return 1

    def _size(self, r: int) -> int:
        return -(-(self.prompt[r] + self.output[r]) // self.engine.block)
