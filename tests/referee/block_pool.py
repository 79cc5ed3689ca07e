"""The referee of prefix caches: vLLM's blocks one by one, in an ordered dictionary."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from infer_jax.replays.reference import (
    ReferenceEngine as Engine,
    ReferencePass as Pass,
    ReferenceRequest as Request,
    Trtllm,
    Vllm,
)


class BlockPool:
    """vLLM's ``BlockPool`` since 0.24: blocks with users, and a queue of those without.

    A block whose name another one had when its request came is kept like any other, but is not
    found; else the newest of a name is. What leaves the cache goes to ``host`` blocks of host
    memory, which the oldest leave.
    """

    def __init__(self, blocks: int, host: int = 0):
        self.room = host
        self.host: OrderedDict[int, Hashable] = OrderedDict()
        self.away: dict[Hashable, int] = {}
        self.count = 0
        self.queue: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))
        self.users = [0] * blocks
        self.name: list[Hashable | None] = [None] * blocks
        self.named: dict[Hashable, int] = {}

    def take(self) -> int:
        block, _ = self.queue.popitem(last=False)
        name = self.name[block]
        known = name is not None and self.named.get(name) == block
        if known:
            del self.named[name]
        if name is not None and self.room:
            self.count += 1
            self.host[self.count] = name
            if known:
                self.away[name] = self.count
            if len(self.host) > self.room:
                self._drop(self.host.popitem(last=False))
        self.name[block] = None
        self.users[block] = 1
        return block

    def _drop(self, entry: tuple[int, Hashable]) -> None:
        if self.away.get(entry[1]) == entry[0]:
            del self.away[entry[1]]

    def bring(self, name: Hashable) -> None:
        """Take a block out of host memory."""
        count = self.away.pop(name)
        del self.host[count]

    def touch(self, block: int) -> None:
        self.queue.pop(block, None)
        self.users[block] += 1

    def call(self, block: int, name: Hashable, *, again: bool) -> None:
        if self.name[block] is None:
            self.name[block] = name
            if not again:
                self.away.pop(name, None)
                self.named[name] = block

    def free(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.users[block] -= 1
            if self.users[block] == 0:
                self.queue[block] = None
                if self.name[block] is None:
                    self.queue.move_to_end(block, last=False)


@dataclass
class Pooled(Engine):
    """An engine with a pool of blocks; ``names`` has those of each prompt's full blocks."""

    names: list[list[Hashable]] = field(default_factory=list)
    host: int = 0
    fetch: float = 0.0
    brought: int = 0
    again: dict[int, int] = field(default_factory=dict)  # the block found and computed anew
    fetched: int = 0  # in all
    pool: BlockPool = field(default_factory=lambda: BlockPool(0))
    held: dict[int, list[int]] = field(default_factory=dict)  # in order of admission
    holders: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.blocks, self.host)

    def waits(self) -> float:
        count, self.brought = self.brought, 0
        self.fetched += count
        return count * self.fetch

    def _take(self, r: Request, here: list[int], away: list[Hashable]) -> None:
        """Give a request that begins the blocks that are found of it."""
        self.holders.append(r)
        for block in here:
            self.pool.touch(block)
        for name in away:
            self.pool.bring(name)
        self.brought += len(away)
        self.held[r.index] = here

    def _name(self, r: Request, index: int) -> Hashable:
        own = self.names[r.index]
        return own[index] if index < len(own) else ("own", r.index, index)


@dataclass
class PooledVllm(Vllm, Pooled):
    """vLLM's scheduler with its prefix cache."""

    def free(self) -> int:
        return len(self.pool.queue)

    def take_back(self, r: Request) -> None:
        super().take_back(r)
        self._give(r)

    def _give(self, r: Request) -> None:
        self.holders.remove(r)
        self.pool.free(self.held.pop(r.index))

    def _there(self, r: Request) -> tuple[list[int], list[Hashable]]:
        """Blocks of the cache, and names of those of host memory behind them."""
        here: list[int] = []
        away: list[Hashable] = []
        while len(here) + len(away) < (r.tokens - 1) // self.block:
            name = self._name(r, len(here) + len(away))
            if name in self.pool.named and not away:
                here.append(self.pool.named[name])
            elif name in self.pool.away:
                away.append(name)
            else:
                break
        return here, away

    def find(self, r: Request) -> tuple[int, int]:
        here, away = self._there(r)
        count = len(here) + len(away)
        name = self._name(r, count)
        self.again[r.index] = count if name in {*self.pool.named, *self.pool.away} else -1
        return count * self.block, sum(self.pool.users[b] > 0 for b in here)

    def hold(self, r: Request, tokens: int) -> None:
        """Take what is found of one that begins, then blocks, and name those that are filled."""
        if r.index not in self.held:
            here, away = self._there(r)
            self._take(r, here, away)
            r.cached = r.computed if r.admitted is None else r.cached
        super().hold(r, tokens)
        held = self.held[r.index]
        while len(held) < self.size(tokens):
            held.append(self.pool.take())
        for i in range(tokens // self.block):
            self.pool.call(held[i], self._name(r, i), again=self.again.get(r.index) == i)

    def compose(self) -> Pass:
        for r in [r for r in self.holders if r not in self.running]:
            self._give(r)
        return super().compose()


@dataclass
class PooledTrtllm(Trtllm, Pooled):
    """TensorRT-LLM's schedulers with reuse of blocks.

    A request whose next block another one computes waits, and so do those behind it.
    """

    unread: list[Request] = field(default_factory=list)  # whose prompts are not to be found yet
    flying: list[Request] = field(default_factory=list)  # of these, in the pass put together last

    def _call(self, r: Request, blocks: range) -> None:
        for i in blocks:
            again = self.again[r.index] == i
            self.pool.call(self.held[r.index][i], self._name(r, i), again=again)

    def _found(self, r: Request) -> tuple[list[Hashable], bool]:
        """The names of blocks that are there, and whether the next one is being computed."""
        coming = {self._name(x, i) for x in self.unread for i in range(x.prompt // self.block)}
        found: list[Hashable] = []
        for i in range(r.prompt // self.block):
            name = self._name(r, i)
            if name not in self.pool.named and name not in self.pool.away:
                return found, name in coming
            found.append(name)
        return found, False

    def read(self) -> None:
        """What the engine does when the results of a pass are read: who has left goes first."""
        for r in [r for r in self.holders if r not in self.running]:
            self._call(r, range((r.tokens - 1) // self.block))
            blocks = self.held.pop(r.index)
            self.pool.call(blocks[-1], ("part", r.index), again=True)
            self.holders.remove(r)
            self.pool.free(blocks)
        for r in [r for r in self.unread if r.decodes() and r not in self.flying]:
            self.unread.remove(r)
            if r in self.holders:
                self._call(r, range(r.prompt // self.block))

    def compose(self) -> Pass:
        self.read()
        free = len(self.pool.queue)
        free -= sum(self.size(r.prompt + r.output) - len(self.held[r.index]) for r in self.running)
        budget, fed = self.budget, Pass([], [])
        fed.decodes.extend(r for r in self.running if r.decodes() and r.built < r.output)
        budget -= len(fed.decodes)
        for r in fed.decodes:
            if len(self.held[r.index]) < self.size(r.tokens):
                self.held[r.index].append(self.pool.take())
        begun = [r for r in self.running if not r.decodes()]
        for r in [*begun, *self.waiting]:
            new = r not in begun
            wanted = self.size(r.prompt + r.output)
            found, waits = self._found(r)
            if new and (waits or len(self.running) >= self.slots or wanted > free):
                break
            rest = r.prompt - r.computed
            if rest > budget and not self.chunked:
                break
            paid = rest if rest <= budget else budget // self.block * self.block
            if not paid:
                break
            if new:
                free -= wanted
                self.waiting.popleft()
                self.running.append(r)
                self._add(r, found)
            part = min(paid, r.prompt - r.computed)
            budget -= paid
            fed.parts.append((r, part))
            if r.computed + part < r.prompt:
                break
        self.flying = [r for r, n in fed.parts if r.computed + n == r.prompt and self.overlap]
        return fed

    def _add(self, r: Request, found: list[Hashable]) -> None:
        """Take the blocks of a prompt, those that are found and others."""
        most = (r.prompt - 1) // self.block
        self.again[r.index] = most if len(found) > most else -1
        found = found[:most]
        self.unread.append(r)
        here = [self.pool.named[n] for n in found if n in self.pool.named]
        self._take(r, here, [n for n in found if n not in self.pool.named])
        while len(here) < self.size(r.prompt):
            here.append(self.pool.take())
        self._call(r, range(len(found)))
        r.computed = r.cached = len(found) * self.block
