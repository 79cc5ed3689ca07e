"""SGLang's scheduler in plain Python, pass by pass."""

from dataclasses import dataclass, field

from infer_jax.replays.reference.engine import ReferenceEngine, ReferencePass, ReferenceRequest


@dataclass
class Sglang(ReferenceEngine):
    """SGLang's ``get_next_batch_to_run``: a batch of prompts if one can be had, else a decode."""

    block: int = 1
    ratio: float = 0.7
    least: float = 0.098
    decay: float = 600.0
    clip: int = 4096
    ahead: int = 20
    now_ratio: float = 0.7
    drafts: int = 0
    full: bool = False
    begun: ReferenceRequest | None = None
    finished_some: bool = False
    # requests whose tokens come in the pass that runs
    flying: list[ReferenceRequest] = field(default_factory=list)

    def compose(self) -> ReferencePass:
        if self.drafts and not self.overlap:  # what drafts took of the cache was given back
            for r in self.running:
                r.held = self.size(r.computed) if r.decodes() else r.held
        fed = self._prefill()
        if fed.parts:
            return fed
        batch = [r for r in self.running if r.decodes()]
        shrunk = self.finished_some
        self.finished_some = False
        kept = list(batch)
        over = [r for r in batch if r.built == r.output]  # its last token is in flight
        if self._lacks(kept) and len(kept) > len(over) + 1:
            order = [r for r in kept if r not in over]
            if not self.drafts:
                order.sort(key=lambda r: (self.read_tokens(r), -r.prompt, -r.index), reverse=True)
            while len(order) > 1 and self._lacks(order + over):
                victim = order.pop()
                self.take_back(victim)
                self.waiting.append(victim)
            shrunk = True
            so_far = sum(self.read_tokens(r) for r in order) + self.ahead * len(order)
            self.now_ratio = min(1.0, so_far / (sum(r.output for r in order) + 1))
            kept = [r for r in batch if r in order or r in over]
        elif batch:
            fall = (self.ratio - self.least) / self.decay
            self.now_ratio = max(self.now_ratio - fall, self.least)
        self.full &= not shrunk and (bool(batch) or not self.overlap)
        if kept:
            self.decodes_next(kept)
        for r in kept:
            r.held = self.reserved_blocks(r)
        return ReferencePass(kept, [])

    def reserved_blocks(self, r: ReferenceRequest) -> int:
        """Blocks that a request has in a decode pass.

        With drafts the first version of speculation finds room for k + 1 tokens beside those in the
        cache; the second, whose passes overlap, for 2 (k + 1) after those that it has read.
        """
        if not self.drafts:
            return self.size(r.tokens)
        if not self.overlap:
            return self.size(r.computed) + self.size(1 + self.drafts)
        flies = r.news if r in self.flying and r.got is not None else 0
        return self.size(r.computed - flies + 2 * (1 + self.drafts))

    def decodes_next(self, batch: list[ReferenceRequest]) -> None:
        """What it does before a pass that decodes takes its room."""

    def read(self, done: list[tuple[ReferenceRequest, bool]], decoded: bool) -> None:
        """What it does with the results of a pass: of each request, and whether that ended it."""

    def read_tokens(self, r: ReferenceRequest) -> int:
        """Output tokens of a request that the scheduler has seen."""
        return r.built - (r.news if r in self.flying else 0)

    def take_back(self, r: ReferenceRequest) -> None:
        if r in self.flying:  # its token is thrown away when it comes
            self.flying.remove(r)
            r.built -= r.news
        super().take_back(r)

    def _lacks(self, batch: list[ReferenceRequest]) -> bool:
        return sum(self.reserved_blocks(r) for r in batch) > self.blocks

    def _prefill(self) -> ReferencePass:
        fed, budget, charged = ReferencePass([], []), self.budget, 0.0
        decoding = [r for r in self.running if r.decodes()]
        coming = sum(
            min(r.output - self.read_tokens(r), self.clip) * self.now_ratio for r in decoding
        )
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

    def _admit(self, r: ReferenceRequest, new: int, fed: ReferencePass) -> float:
        """Feed a part; what it takes of the tokens that count as free."""
        fed.parts.append((r, new))
        whole = r.computed + new >= r.prompt + r.lost
        self.begun = None if whole else r
        r.held = self.size(r.computed + new)
        return self.pages(new) + self.block + (min(r.output - r.built, self.clip) if whole else 0)

    def pages(self, tokens: int) -> int:
        """Tokens of whole pages (``ceil_paged_tokens``)."""
        return self.size(tokens) * self.block

    def left(self, gone: list[ReferenceRequest], fed: ReferencePass) -> None:
        if fed.parts and gone:
            self.full = False
        elif gone:
            self.finished_some = True
        if not any(r.decodes() for r in self.running):
            self.full = False

    def rests(self) -> None:
        self.now_ratio, self.full = self.ratio, False
