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
