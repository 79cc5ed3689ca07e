"""vLLM's scheduler in plain Python, pass by pass."""

from dataclasses import dataclass

from infer_jax.replays.reference.engine import ReferenceEngine, ReferencePass, ReferenceRequest


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

    def _feed(self, r: ReferenceRequest, new: int, fed: ReferencePass) -> int:
        if r.decodes():
            fed.decodes.append(r)
        else:
            fed.parts.append((r, new))
        return new
