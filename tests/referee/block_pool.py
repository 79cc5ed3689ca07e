"""The referee of prefix caches: vLLM's blocks one by one, in an ordered dictionary."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from .schedulers import Pass, Request, Vllm


class BlockPool:
    """vLLM's ``BlockPool`` since 0.24: blocks with users, and a queue of those without.

    A block whose name another block has already is kept like any other, but is not found.
    """

    def __init__(self, blocks: int):
        self.queue: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))
        self.users = [0] * blocks
        self.name: list[Hashable | None] = [None] * blocks
        self.named: dict[Hashable, int] = {}

    def take(self) -> int:
        block, _ = self.queue.popitem(last=False)
        name = self.name[block]
        if name is not None and self.named.get(name) == block:
            del self.named[name]
        self.name[block] = None
        self.users[block] = 1
        return block

    def touch(self, block: int) -> None:
        self.queue.pop(block, None)
        self.users[block] += 1

    def call(self, block: int, name: Hashable) -> None:
        if self.name[block] is None:
            self.name[block] = name
            self.named.setdefault(name, block)

    def free(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.users[block] -= 1
            if self.users[block] == 0:
                self.queue[block] = None
                if self.name[block] is None:
                    self.queue.move_to_end(block, last=False)


@dataclass
class PooledVllm(Vllm):
    """vLLM's scheduler with its prefix cache; ``names`` has those of each prompt's full blocks."""

    names: list[list[Hashable]] = field(default_factory=list)
    pool: BlockPool = field(default_factory=lambda: BlockPool(0))
    held: dict[int, list[int]] = field(default_factory=dict)  # in order of admission
    holders: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.blocks)

    def free(self) -> int:
        return len(self.pool.queue)

    def take_back(self, r: Request) -> None:
        super().take_back(r)
        self._give(r)

    def _give(self, r: Request) -> None:
        self.holders.remove(r)
        self.pool.free(self.held.pop(r.index))

    def _name(self, r: Request, index: int) -> Hashable:
        own = self.names[r.index]
        return own[index] if index < len(own) else ("own", r.index, index)

    def _extend(self, r: Request, tokens: int) -> None:
        """Take blocks for ``tokens`` tokens, and name those that they fill."""
        held = self.held[r.index]
        while len(held) < self.size(tokens):
            held.append(self.pool.take())
        for i in range(tokens // self.block):
            self.pool.call(held[i], self._name(r, i))

    def _found(self, r: Request) -> list[int]:
        result: list[int] = []
        while len(result) < (r.tokens - 1) // self.block:
            block = self.pool.named.get(self._name(r, len(result)))
            if block is None:
                break
            result.append(block)
        return result

    def compose(self) -> Pass:
        for r in [r for r in self.holders if r not in self.running]:
            self._give(r)
        budget, fed, taken_back = self.budget, Pass([], []), False
        index = 0
        while index < len(self.running) and budget > 0:
            r = self.running[index]
            if r.built == r.output:
                index += 1
                continue
            new = min(r.tokens - r.computed, budget)
            lost = False
            while self.size(r.computed + new) - len(self.held[r.index]) > self.free():
                victim = [v for v in self.running if v.built < v.output][-1]
                self.take_back(victim)
                self.waiting.appendleft(victim)
                taken_back = True
                lost = victim is r
                if lost:
                    break
            if lost:
                break
            self._extend(r, r.computed + new)
            budget -= self._feed(r, new, fed)
            index += 1
        while not taken_back and self.waiting and budget > 0 and len(self.running) < self.slots:
            r = self.waiting[0]
            result = self._found(r)
            cached = len(result) * self.block
            if not self.chunked and r.tokens - cached > budget:
                break
            new = min(r.tokens - cached, budget)
            wanted = self.size(r.tokens if self.entire else cached + new) - len(result)
            wanted += sum(self.pool.users[b] == 0 for b in result)
            if wanted > self.free() - (self.watermark if self.running else 0):
                break
            self.running.append(self.waiting.popleft())
            self.holders.append(r)
            for block in result:
                self.pool.touch(block)
            self.held[r.index] = result
            r.computed = cached
            if r.admitted is None:
                r.cached = cached
            self._extend(r, cached + new)
            budget -= self._feed(r, new, fed)
        return fed
