"""A Pareto frontier on the host: rows that no other row beats, merged a part at a time.

Rows are sorted by position of ``per`` and first objective. With two objectives a merge is a sort
and a scan: O(n log n) in the new rows, O(n) in the old ones. With more objectives, blocks of rows
are compared, and only blocks whose best corner could beat something. A merge ends within about a
second at the sizes that ``Pareto`` allows, so that a sweep can be saved and stopped after it.
"""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from infer_jax.physics.pareto import descents
from infer_jax.sweeps.digits import before, to_index

BLOCK = 256  # rows compared with all others at a time
# (objective, values) -> values at which other rows are beaten
Push = Callable[[int, np.ndarray], np.ndarray]
Pairs = tuple[np.ndarray, np.ndarray]  # rows, and rows that beat them unless both are equal


@dataclasses.dataclass(frozen=True)
class Front:
    """Rows as columns: position of ``per``, objectives, ties, words of the index.

    Among rows equal in all objectives, the first by ties and index is kept. ``push`` gives a
    margin; without it the frontier is exact.
    """

    columns: tuple[np.ndarray, ...]
    keys: int
    words: int
    push: Push | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    def take(self, chosen: np.ndarray) -> "Front":
        """The chosen rows: by their numbers in that order, or those that a mask marks."""
        return dataclasses.replace(self, columns=tuple(c[chosen] for c in self.columns))

    @property
    def ids(self) -> np.ndarray:
        """The index of each row: an integer, or bytes where 64 bits do not hold it."""
        words = self.columns[-self.words :]
        if len(words) > 2:
            table = np.ascontiguousarray(np.stack(words, -1).astype(">u4"))
            return table.view(f"V{4 * len(words)}").ravel()
        total = np.zeros(len(self), np.uint64)
        for word in words:
            total = total << np.uint64(32) | word.astype(np.uint64)
        return total

    def index(self) -> list[int]:
        """The indices in order of position, objectives, ties and index."""
        columns = [c.tolist() for c in self.sort_rows().columns[-self.words :]]
        return [to_index(words) for words in zip(*columns, strict=True)]

    def sort_rows(self) -> "Front":
        """All rows in the order of their columns, each index once."""
        rows = self.take(np.lexsort(self.columns[::-1]))
        _, first = np.unique(rows.ids, return_index=True)
        return rows if len(first) == len(rows) else rows.take(np.sort(first))

    def merged(self, fresh: "Front") -> "Front":
        """The frontier of these rows (already a frontier) and fresh ones in any order."""
        fresh = fresh.sort_rows()
        fresh = fresh.take(~beaten(fresh, fresh))
        if len(self):
            fresh = fresh.take(~np.isin(fresh.ids, self.ids))
            fresh = fresh.take(~beaten(fresh, self))
        if not len(fresh):
            return self
        left = self.take(~beaten(self, fresh))
        both = [np.concatenate(pair) for pair in zip(left.columns, fresh.columns, strict=True)]
        rows = dataclasses.replace(self, columns=tuple(both))
        return rows.take(np.argsort(_paired(both[0], both[1]), kind="stable"))

    def pushed(self, at: int) -> np.ndarray:
        """By row, the value of an objective at and beyond which the row beats others."""
        return self.columns[1 + at] if self.push is None else self.push(at, self.columns[1 + at])

    def stairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The frontier of two objectives as steps; each beats what is at or beyond both its values.

        By step: position, first and second objective, and the row that has the second one.
        """
        first = self.pushed(0)
        order = np.argsort(_paired(self.columns[0], first), kind="stable")
        owner, first, second = self.columns[0][order], first[order], self.pushed(1)[order]
        new = descents(_paired(-owner, second))  # restarts with each position
        row = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
        return owner, first, second[row], order[row]


def beaten(rows: Front, by: Front) -> np.ndarray:
    """Which rows some row of ``by`` beats."""
    lost = np.zeros(len(rows), bool)
    if not len(rows) or not len(by):
        return lost
    keys, ties = slice(1, 1 + rows.keys), slice(1 + rows.keys, None)
    for lane, who in _below_stairs(rows, by) if rows.keys == 2 else _in_blocks(rows, by, lost):
        same = np.ones(len(lane), bool)
        for x, y in zip(rows.columns[keys], by.columns[keys], strict=True):
            same &= x[lane] == y[who]
        first = before([c[who] for c in by.columns[ties]], [c[lane] for c in rows.columns[ties]])
        lost[lane[~same | first]] = True
    return lost


def _paired(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two columns as complex numbers, which NumPy compares by the first and then by the second."""
    pair = np.empty(len(a), np.complex128)
    pair.real, pair.imag = a, b
    return pair


def _below_stairs(rows: Front, by: Front) -> Iterator[Pairs]:
    """Rows at or beyond the step before them, with the row of that step."""
    owner, first, second, row = by.stairs()
    mine, x, y = rows.columns[:3]
    at = np.searchsorted(_paired(owner, first), _paired(mine, x), side="right") - 1
    last = np.maximum(at, 0)
    lane = np.flatnonzero((at >= 0) & (owner[last] == mine) & (second[last] <= y))
    yield lane, row[last[lane]]


def _in_blocks(rows: Front, by: Front, lost: np.ndarray) -> Iterator[Pairs]:
    """Rows that are not lost, with a row at or before each in all objectives; block by block."""
    pushed, keys = [by.pushed(i) for i in range(by.keys)], slice(1, 1 + rows.keys)
    for start in range(0, len(by), BLOCK):
        some, left = slice(start, start + BLOCK), np.flatnonzero(~lost)
        owner, mine = by.columns[0][some], rows.columns[0][left]
        reached = (owner.min() <= mine) & (owner.max() >= mine)
        for push, x in zip(pushed, rows.columns[keys], strict=True):
            reached &= push[some].min() <= x[left]
        lanes = left[reached]
        hit = owner[:, None] == rows.columns[0][lanes]
        for push, x in zip(pushed, rows.columns[keys], strict=True):
            hit &= push[some][:, None] <= x[lanes]
        at, lane = np.nonzero(hit)
        yield lanes[lane], at + start
