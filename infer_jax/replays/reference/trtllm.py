"""TensorRT-LLM's schedulers in plain Python, pass by pass."""

from dataclasses import dataclass

from infer_jax.replays.reference.engine import ReferenceEngine, ReferencePass, ReferenceRequest


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
