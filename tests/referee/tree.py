"""The referee's cache: blocks shared by their prefix, the least recently used given up first.

A block id stands for its content and all that comes before it (a chained hash), so equal ids
are equal paths from the root of a radix tree. Blocks in use are pinned. Of the others the
longest unused goes first, and of one request's the last block: leaves before their parents.
What the device gives up goes to the host tier, if there is one.
"""

from collections import OrderedDict

import numpy as np


class Tree:
    """Cache blocks of a device, and of a host tier below it."""

    def __init__(self, blocks: int, host_blocks: int = 0):
        self.free, self.host_room = blocks, host_blocks
        self.pins: dict[int, int] = {}  # users of a block
        self.idle: OrderedDict[int, None] = OrderedDict()  # cached, unused; longest first
        self.host: OrderedDict[int, None] = OrderedDict()

    def reserve(self, size: int) -> tuple[int, int] | None:
        """Blocks without content to share, or None where too few are free."""
        if size > self.free:
            return None
        self.free -= size
        return 0, 0

    def take(self, ids: np.ndarray, size: int, most: int) -> tuple[int, int] | None:
        """Pin a request's blocks; how many leading ones were cached: on device, then on host.

        ``ids`` name its full blocks, prompt and output; ``size`` counts one that is not full,
        too; at most ``most`` blocks count as found. None where there is no room.
        """
        names = ids.tolist()
        result = 0
        while result < most and (names[result] in self.pins or names[result] in self.idle):
            result += 1
        fetched = result
        while fetched < most and names[fetched] in self.host:
            fetched += 1
        new = [b for b in names if b not in self.pins and b not in self.idle]
        loose = size - len(names)
        mine = sum(b in self.idle for b in names)
        if len(new) + loose > self.free + len(self.idle) - mine:
            return None
        for b in names:
            self.idle.pop(b, None)
        for b in names:
            self.pins[b] = self.pins.get(b, 0) + 1
            self.host.pop(b, None)
        self._make_room(len(new) + loose)
        self.free -= len(new) + loose
        return result, fetched - result

    def release(self, ids: np.ndarray | None, size: int) -> None:
        """Unpin a request's blocks; they stay cached until their room is needed."""
        if ids is None:
            self.free += size
            return
        self.free += size - len(ids)
        for b in ids.tolist()[::-1]:
            self.pins[b] -= 1
            if not self.pins[b]:
                del self.pins[b]
                self.idle[b] = None

    def _make_room(self, needed: int) -> None:
        while self.free < needed:
            block, _ = self.idle.popitem(last=False)
            self.free += 1
            if self.host_room:
                self.host[block] = None
                if len(self.host) > self.host_room:
                    self.host.popitem(last=False)
