"""Prompts that begin alike, as a radix tree of blocks: which parts are shared, and by whom."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Int
from numpy.typing import ArrayLike

from infer_jax.errors import InputError


class Prefixes(NamedTuple):
    """The shared parts of each prompt, first to last, and the size of each part.

    A part is a run of blocks that the same requests share; what one request has alone is in none.
    ``parts`` has a row for each request, filled up with the last part, which has no block.
    """

    parts: Int[Array, "n depth"]
    depth: Int[Array, " n"]  # parts of a request
    covered: Int[Array, " n"]  # blocks of these
    # whether the last part is the last block of the prompt, which is full: that part is this block
    # alone, and is computed anew, for its last token is needed
    ends: Int[Array, " n"]
    blocks: Int[Array, " p"]  # of each part
    block: Int[Array, ""]  # tokens

    @classmethod
    def of(
        cls, hashes: Sequence[Sequence[int]], prompt: ArrayLike, *, length: int, block: int
    ) -> "Prefixes":
        """The parts of prompts of ``prompt`` tokens, of which each ``length`` have a hash.

        A hash stands for these tokens and all before them. Only blocks of ``block`` tokens that are
        full count.

        >>> one = Prefixes.of([[1, 2], [1, 3], [4]], [20, 16, 8], length=8, block=4)
        >>> one.blocks[one.parts[:3]].tolist()  # two blocks are shared by the first two prompts
        [[2], [2], [0]]

        Raises:
            InputError: fewer rows of hashes than prompts.
        """
        tokens = np.asarray(prompt)
        if len(hashes) != len(tokens):
            sizes = f"{len(hashes)} rows of hashes, {len(tokens)} prompts"
            raise InputError("Prefixes", "hashes", sizes, "a row of hashes for each prompt")
        nodes, walked, wholes = _Nodes(), [], []
        for row, count in zip(hashes, tokens.astype(int).tolist(), strict=True):
            # full blocks up to the end of each hash, and whether the last ends the prompt
            full = count // block
            ends = [min(length * (i + 1) // block, full) for i in range(len(row))]
            wholes.append(bool(ends) and ends[-1] == full and count == full * block)
            walked.append(nodes.walk(row, ends, wholes[-1]))
        return nodes.parts(walked, wholes, block)

    def padded(self, count: int) -> "Prefixes":
        """The same with rows for ``count`` requests: those behind share nothing."""
        more = count - len(self.parts)
        none = np.full((more, self.parts.shape[1]), len(self.blocks) - 1, np.int32)
        rest = {
            x: np.pad(np.asarray(getattr(self, x)), (0, more)) for x in ("depth", "covered", "ends")
        }
        return self._replace(parts=np.concatenate([self.parts, none]), **rest)


class _Nodes:
    """A tree of hashes, with the blocks at which some prompt ends within each."""

    def __init__(self) -> None:
        self.child: dict[tuple[int, int], int] = {}
        self.ends: dict[int, Counter[int]] = {}  # of prompts that go no further in a node
        self.alone: dict[int, set[int]] = {}  # last blocks of prompts that they fill

    def walk(self, row: Sequence[int], ends: list[int], whole: bool) -> list[tuple[int, int, int]]:
        """Node, first and last block of each hash of a prompt that has a block."""
        at, begin, walked = -1, 0, []
        for name, end in zip(row, ends, strict=True):
            if end == begin:
                continue
            at = self.child.setdefault((at, name), len(self.child))
            self.ends.setdefault(at, Counter())[end] += 1
            walked.append((at, begin, end))
            begin = end
        if whole and walked:
            self.alone.setdefault(at, set()).add(begin)
        return walked

    def parts(
        self, walked: list[list[tuple[int, int, int]]], wholes: list[bool], block: int
    ) -> Prefixes:
        """Pieces between ends, joined where the same requests have them."""
        number: dict[tuple[int, int], int] = {}
        sizes: list[int] = []
        rows: list[list[int]] = []
        ends: list[bool] = []
        for steps, whole in zip(walked, wholes, strict=True):
            row: list[int] = []
            before = 0
            final = False
            for node, begin, end in steps:
                for low, high, count, alone in self._pieces(node, begin, end):
                    if count == 1:
                        break
                    key = (node, high)
                    if key not in number:
                        joins = count == before and not alone and row
                        number[key] = row[-1] if joins else len(sizes)
                        if not joins:
                            sizes.append(0)
                        sizes[number[key]] += high - low
                    if not row or row[-1] != number[key]:
                        row.append(number[key])
                    before = count
                    final = whole and high == steps[-1][2]
            rows.append(row)
            ends.append(final)
        return _arrays(rows, sizes, ends, block)

    def _pieces(self, node: int, begin: int, end: int) -> list[tuple[int, int, int, bool]]:
        """First and last block of each piece up to ``end``, requests that have it, if it is one."""
        ends, alone = self.ends[node], self.alone.get(node, set())
        cuts = sorted({*ends, *(x - 1 for x in alone if x - 1 > begin)})
        pieces, low = [], begin
        for high in cuts:
            if high > end:
                break
            pieces.append((low, high, sum(n for e, n in ends.items() if e >= high), high in alone))
            low = high
        return pieces


def _arrays(rows: list[list[int]], sizes: list[int], ends: list[bool], block: int) -> Prefixes:
    """Rows and parts filled up to powers of two, so that few programs are compiled."""
    depth, count = (power_of_two(x) for x in (max(map(len, rows), default=1), len(sizes) + 1))
    parts = np.full((len(rows), depth), count - 1, np.int32)
    for row, own in zip(parts, rows, strict=True):
        row[: len(own)] = own
    blocks = np.zeros(count, np.int32)
    blocks[: len(sizes)] = sizes
    depths = np.asarray([len(row) for row in rows], np.int32)
    covered = blocks[parts].sum(axis=1).astype(np.int32)
    last = np.asarray(ends, np.int32)
    return Prefixes._make((parts, depths, covered, last, blocks, np.asarray(block, np.int32)))


def power_of_two(value: float) -> int:
    """The power of two from ``value`` on, 1 at least."""
    return 2 ** int(np.ceil(np.log2(max(float(value), 1.0))))
