"""The referee of preemption by swapping: vLLM V0's queue of requests in host memory."""

from dataclasses import dataclass, field

from .schedulers import Pass, Request, Vllm


@dataclass
class SwappingVllm(Vllm):
    """Decodes first, parts of prompts beside them; blocks of the last request go to the host."""

    host: int = 0
    fetch: float = 0.0
    at_once: bool = True  # a prompt's blocks are taken when it is admitted
    away: dict[int, int] = field(default_factory=dict)  # blocks of those that are swapped out
    times: dict[int, int] = field(default_factory=dict)  # how often each was
    moved: int = 0  # blocks that the pass which begins waits for
    copied: int = 0  # in all, in both directions

    def waits(self) -> float:
        count, self.moved = self.moved, 0
        return count * self.fetch

    def room(self, r: Request, new: int) -> int:
        """Blocks that it has with ``new`` tokens more."""
        if self.at_once and not r.decodes():
            return self.size(r.prompt + r.lost)
        return self.size(r.computed + new)

    def preempt(self, r: Request) -> None:
        """Swap it out, or where the host is full, take it back to compute it anew."""
        if r.held > self.host - sum(self.away.values()):
            self.take_back(r)
            return
        self.running.remove(r)
        self.away[r.index] = r.held
        self.times[r.index] = self.times.get(r.index, 0) + 1
        self._copy(r.held)
        r.held, r.preempted = 0, r.preempted + 1

    def _copy(self, blocks: int) -> None:
        self.moved, self.copied = self.moved + blocks, self.copied + blocks

    def compose(self) -> Pass:
        budget, fed, preempted = self.budget, Pass([], []), False
        for r in list(self.running):
            if r not in self.running or budget <= 0:
                break
            new = min(r.tokens - r.computed, budget)
            while r in self.running and self.room(r, new) - r.held > self.free():
                victim = self.running[-1]
                self.preempt(victim)
                self.waiting.appendleft(victim)
                preempted = True
            if r not in self.running:
                break
            r.held = self.room(r, new)
            budget -= self._feed(r, new, fed)
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.slots:
            r = self.waiting[0]
            there = r.computed if r.index in self.away else r.cached
            new = min(r.tokens - there, budget)
            if not self.chunked and r.tokens - there > budget:
                break
            wanted = self.size(r.tokens if self.entire or self.at_once else there + new)
            if wanted > self.free() - (self.watermark if self.running else 0):
                break
            self.running.append(self.waiting.popleft())
            self._copy(self.away.pop(r.index, 0))
            r.computed = there
            r.held = self.room(r, new)
            budget -= self._feed(r, new, fed)
        return fed
