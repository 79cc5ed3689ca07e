"""Requests and engines in plain Python: what all schedulers have."""

from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from math import ceil, inf
from typing import NamedTuple


def one_token() -> int:
    """Tokens of a decode pass without drafts."""
    return 1


@dataclass(eq=False)
class ReferenceRequest:
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
    _: KW_ONLY
    yields: Callable[[], int] = one_token  # tokens that a decode pass gives it
    beyond: int = 0  # of them, tokens after its last one, which are thrown away
    got: int | None = None  # what its last pass gave, if it decoded
    sure: bool = True  # whether its last pass was wanted for one token alone
    news: int = 1  # tokens of its last pass that were wanted

    def decode(self) -> None:
        """The tokens of a pass; none for one that has its last."""
        left = self.output - self.built
        if not left:
            return
        self.got, self.sure = self.yields(), left == 1
        useful = min(self.got, left)
        self.computed, self.built = self.computed + useful, self.built + useful
        self.news = useful
        self.beyond += self.got - useful

    @property
    def tokens(self) -> int:
        """Prompt and output so far."""
        return self.prompt + self.built

    def decodes(self) -> bool:
        return self.computed >= self.prompt + self.lost


ReferenceRequests = list[ReferenceRequest]


class ReferencePass(NamedTuple):
    """What one pass feeds: requests that decode, and parts of prompts."""

    decodes: list[ReferenceRequest]
    parts: list[tuple[ReferenceRequest, int]]


@dataclass
class ReferenceEngine:
    """Sizes of a server; subclasses compose its passes."""

    budget: int
    slots: int
    blocks: int
    block: int = 16
    watermark: int = 0
    poll: int = 1
    overlap: bool = False  # a pass is put together while the one before it runs
    waiting: deque[ReferenceRequest] = field(default_factory=deque)
    running: list[ReferenceRequest] = field(default_factory=list)

    def size(self, tokens: int) -> int:
        return ceil(tokens / self.block)

    def free(self) -> int:
        return self.blocks - sum(r.held for r in self.running)

    def compose(self) -> ReferencePass:
        raise NotImplementedError

    def left(self, gone: list[ReferenceRequest], fed: ReferencePass) -> None:
        """What an engine notes when requests leave."""

    def rests(self) -> None:
        """What it notes when there is nothing to do."""

    def waits(self) -> float:
        """Seconds for which the pass that begins waits for blocks from elsewhere."""
        return 0.0

    def take_back(self, r: ReferenceRequest) -> None:
        self.running.remove(r)
        r.held, r.computed, r.lost, r.preempted = 0, 0, r.built, r.preempted + 1


@dataclass
class Vllm(ReferenceEngine):
    """vLLM V1's ``Scheduler.schedule``."""

    entire: bool = True  # scheduler_reserve_full_isl
    chunked: bool = True
    drafts: int = 0

    def lookahead(self, r: ReferenceRequest) -> int:
        """Tokens of room beside those that a pass feeds: drafts of the next, and doubtful ones."""
        if not r.decodes():
            return 0
        doubtful = self.overlap and r.got is not None
        return self.drafts + (1 + self.drafts - (r.got or 0) if doubtful else 0)

    def find(self, r: ReferenceRequest) -> tuple[int, int]:
        """Tokens of a request that waits in the cache, and blocks of them that others hold."""
        return r.cached, 0

    def hold(self, r: ReferenceRequest, tokens: int) -> None:
        """Take blocks for so many tokens of a request that runs."""
        r.held = max(r.held, self.size(tokens))

    def compose(self) -> ReferencePass:
        budget, fed, taken_back = self.budget, ReferencePass([], []), False
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
            new, ahead = min(r.tokens - r.computed + drafted, budget), self.lookahead(r)
            while self.size(r.computed + new + ahead) - r.held > self.free():
                victim = [v for v in self.running if v.built < v.output][-1]
                self.take_back(victim)
                self.waiting.appendleft(victim)
                taken_back = True
                if victim is r:
                    break
            else:
                self.hold(r, r.computed + new + ahead)
                budget -= self._feed(r, new, fed)
                index += 1
                continue
            break
        while not taken_back and self.waiting and budget > 0 and len(self.running) < self.slots:
            r = self.waiting[0]
            cached, shared = self.find(r)
            if not self.chunked and r.tokens - cached > budget:
                break
            new = min(r.tokens - cached, budget)
            wanted = self.size(r.tokens if self.entire else cached + new) - shared
            spare = self.watermark if self.running else 0
            if wanted > self.free() - spare:
                break
            self.running.append(self.waiting.popleft())
            r.computed = cached
            self.hold(r, cached + new)
            budget -= self._feed(r, new, fed)
        return fed

    def _feed(self, r: ReferenceRequest, new: int, fed: ReferencePass) -> int:
        if r.decodes():
            fed.decodes.append(r)
        else:
            fed.parts.append((r, new))
        return new


@dataclass
class Trtllm(ReferenceEngine):
    """TensorRT-LLM's capacity scheduler and the micro-batch scheduler after it."""

    evicts: bool = False  # MAX_UTILIZATION in place of GUARANTEED_NO_EVICT
    chunked: bool = True
    drafts: int = 0

    def compose(self) -> ReferencePass:
        fitting = self._utilised() if self.evicts else self._guaranteed()
        budget, fed = self.budget, ReferencePass([], [])
        for r in fitting:
            # else its last token is in flight, and the engine knows
            if r.decodes() and (r.built < r.output or not r.sure):
                fed.decodes.append(r)
        budget -= (1 + self.drafts) * len(fed.decodes)
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

    def _guaranteed(self) -> list[ReferenceRequest]:
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

    def _utilised(self) -> list[ReferenceRequest]:
        """In order of arrival while blocks last; else the last that has started is paused."""
        active = sorted([*self.running, *self.waiting], key=lambda r: r.index)
        fitting: list[ReferenceRequest] = []
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
