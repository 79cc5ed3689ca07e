"""The referee of SGLang's prefix cache: a radix tree of pages, in dictionaries."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from infer_jax.replays.reference import ReferencePass as Pass, ReferenceRequest as Request, Sglang


class Node:
    """A run of pages, and those that follow it; ``used`` is when it was last looked at."""

    def __init__(self, parent: "Node | None", pages: list[Hashable], used: float):
        self.parent, self.pages, self.used = parent, pages, used
        self.next: dict[Hashable, Node] = {}
        self.locks = 0


class RadixTree:
    """SGLang's ``RadixCache``: nodes are given up whole, leaves first, by when they were used."""

    def __init__(self) -> None:
        self.root = Node(None, [], 0.0)
        self.root.locks = 1
        self.clock = 0.0
        self.total = self.idle = 0  # pages, and those of nodes that nobody locks

    def now(self) -> float:
        self.clock += 1.0
        return self.clock

    def match(self, pages: Sequence[Hashable]) -> tuple[Node, int]:
        """The node at which the longest beginning of ``pages`` ends, and its pages."""
        node, found, time = self.root, 0, self.now()
        while found < len(pages) and pages[found] in node.next:
            child = node.next[pages[found]]
            child.used = time
            same = 0
            for mine, theirs in zip(pages[found:], child.pages, strict=False):
                if mine != theirs:
                    break
                same += 1
            found += same
            if same < len(child.pages):
                return self._split(child, same), found
            node = child
        return node, found

    def _split(self, child: Node, at: int) -> Node:
        """The upper part of a node, which is new; the lower one keeps what it was."""
        assert child.parent is not None
        upper = Node(child.parent, child.pages[:at], self.now())
        upper.locks = child.locks
        child.parent.next[upper.pages[0]] = upper
        child.parent, child.pages = upper, child.pages[at:]
        upper.next[child.pages[0]] = child
        return upper

    def insert(self, pages: list[Hashable]) -> None:
        node, found = self.match(pages)
        if found < len(pages):
            leaf = Node(node, pages[found:], self.now())
            node.next[leaf.pages[0]] = leaf
            self.total += len(leaf.pages)
            self.idle += len(leaf.pages)

    def lock(self, node: Node | None, more: int) -> None:
        """Lock the path to a node (``more`` 1), or unlock it (-1)."""
        while node is not None and node is not self.root:
            before, node.locks = node.locks, node.locks + more
            self.idle += len(node.pages) * ((node.locks == 0) - (before == 0))
            node = node.parent

    def unlocked(self, node: Node | None) -> int:
        """Pages on the path to a node that nobody locks."""
        count = 0
        while node is not None and node is not self.root:
            count += len(node.pages) * (node.locks == 0)
            node = node.parent
        return count

    def evict(self, pages: int) -> None:
        """Give up nodes until ``pages`` pages are free, or none is left to give up."""
        while pages > 0 and self.idle:
            leaves = [n for n in self._nodes() if not n.next and not n.locks]
            leaf = min(leaves, key=lambda n: n.used)
            assert leaf.parent is not None
            del leaf.parent.next[leaf.pages[0]]
            pages -= len(leaf.pages)
            self.total -= len(leaf.pages)
            self.idle -= len(leaf.pages)

    def _nodes(self) -> list[Node]:
        found, look = [], [self.root]
        while look:
            children = list(look.pop().next.values())
            found += children
            look += children
        return found


@dataclass
class RadixSglang(Sglang):
    """SGLang's scheduler with its tree; ``names`` has those of each prompt's full pages."""

    names: list[list[Hashable]] = field(default_factory=list)
    tree: RadixTree = field(default_factory=RadixTree)
    node: dict[int, tuple[Node, int]] = field(default_factory=dict)  # locked, and pages up to it
    once_more: set[int] = field(default_factory=set)  # those that decode after their last token

    def available(self) -> int:
        alone = sum(r.held - self.node[r.index][1] for r in self.running)
        return self.blocks - alone - self.tree.total

    def free(self) -> int:
        return self.available() + self.tree.idle

    def _lacks(self, batch: list[Request]) -> bool:
        return sum(self.size(r.tokens) - r.held for r in batch) > self.free()

    def _make_room(self, tokens: int, available: int) -> None:
        self.tree.evict(-((available * self.block - tokens) // self.block))

    def decodes_next(self, batch: list[Request]) -> None:
        """A page each is asked for, whether it is needed or not."""
        self._make_room(len(batch) * self.block, self.available())
        self.once_more = {r.index for r in batch if r.built == r.output}

    def take_back(self, r: Request) -> None:
        super().take_back(r)
        self.tree.lock(self.node.pop(r.index)[0], -1)
        left = sum(x.decodes() for x in self.running)
        self._make_room(left * self.ahead, self.available())

    def _pages(self, r: Request, tokens: int) -> list[Hashable]:
        own, count = self.names[r.index], tokens // self.block
        return [*own[:count], *(("own", r.index, i) for i in range(len(own), count))]

    def _stored(self, r: Request, tokens: int, *, stays: bool) -> None:
        """Put the pages of a request into the tree, and lock them if it ``stays``."""
        pages = self._pages(r, tokens)
        self.tree.insert(pages)
        self.tree.lock(self.node.pop(r.index)[0], -1)
        if stays:
            node, found = self.tree.match(pages)
            assert found == len(pages)
            self.tree.lock(node, 1)
            self.node[r.index] = node, found

    def read(self, done: list[tuple[Request, bool]], decoded: bool) -> None:
        """The results of a pass: what it computed is in the tree from now on."""
        for r, over in sorted(done, key=lambda x: x[0].index):
            if over:
                again = r.index in self.once_more
                self._stored(r, r.tokens - 1 + again, stays=False)
            elif not decoded:
                self._stored(r, r.prompt + r.lost, stays=True)

    def left(self, gone: list[Request], fed: Pass) -> None:
        super().left(gone, fed)
        whole = [r for r, _ in fed.parts if r.decodes()]
        self.read([(r, r in gone) for r in (*fed.decodes, *whole)], bool(fed.decodes))

    def _prefill(self) -> Pass:
        fed, budget, charged = Pass([], []), self.budget, 0.0
        self.once_more = set()
        if self.begun is not None:
            self._stored(self.begun, self.begun.computed, stays=True)
        decoding = [r for r in self.running if r.decodes()]
        coming = sum(
            min(r.output - self.read_tokens(r), self.clip) * self.now_ratio for r in decoding
        )
        if self.begun is not None:
            r = self.begun
            new = min(r.prompt + r.lost - r.computed, budget)
            charged += self._admit(r, new, fed) - self.pages(new)
            budget -= self.pages(new)
        while self.waiting and budget > 0:
            if len(self.running) >= self.slots:
                self.full = True
            if self.full:
                break
            r = self.waiting[0]
            node, found = self.tree.match(self._pages(r, r.tokens - 1))
            rest = (self.free() - self.tree.unlocked(node)) * self.block - coming - charged
            extend = r.tokens - found * self.block
            if extend + min(r.output - r.built, self.clip) >= rest:
                self.full = True
                break
            self.tree.lock(node, 1)
            self.node[r.index] = node, found
            self.running.append(self.waiting.popleft())
            r.computed = found * self.block
            if not r.preempted:
                r.cached = r.computed
            new = min(extend, budget)
            charged += self._admit(r, new, fed) - self.pages(new)
            budget -= self.pages(new)
        if fed.parts:
            before = self.available() + sum(self.size(n) for _, n in fed.parts)
            asked = sum(n for _, n in fed.parts)
            asked += len(fed.parts) * self.block * (self.block > 1)
            self._make_room(asked, before)
        return fed
