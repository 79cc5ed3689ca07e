"""A Pareto frontier on the host: rows that no other row beats, merged a part at a time.

Rows are sorted by position of ``per`` and first objective. With two objectives a merge is a sort
and a scan: O(n log n) in the new rows, O(n) in the old ones. With more objectives, blocks of rows
are compared, and only blocks whose best corner could beat something. A merge ends within about a
second at the sizes that ``Pareto`` allows, so that a sweep can be saved and stopped after it.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from infer_jax.physics.pareto import descents
from infer_jax.sweeps.digits import to_index

BLOCK = 256  # rows compared with all others at a time
# (objective, values) -> values at which other rows are beaten
Push = Callable[[int, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Front:
    """Rows as columns: position of ``per``, objectives, ties, limbs of the index.

    Among rows equal in all objectives, the first by ties and index is kept. ``push`` gives a
    margin; without it the frontier is exact.
    """

    columns: tuple[np.ndarray, ...]
    keys: int
    limbs: int
    push: Push | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    def take(self, chosen: np.ndarray) -> "Front":
        """The chosen rows, in that order."""
        return dataclasses.replace(self, columns=tuple(c[chosen] for c in self.columns))

    @property
    def ids(self) -> np.ndarray:
        """The index of each row: an integer, or bytes where 64 bits do not hold it."""
        return ids(self.columns[-self.limbs :])

    def index(self) -> list[int]:
        """The indices in order of position, objectives, ties and index."""
        limbs = [c.tolist() for c in self.ordered().columns[-self.limbs :]]
        return [to_index(words) for words in zip(*limbs, strict=True)]

    def ordered(self) -> "Front":
        """All rows in the order of their columns, each index once."""
        rows = self.take(np.lexsort(self.columns[::-1]))
        _, first = np.unique(rows.ids, return_index=True)
        return rows if len(first) == len(rows) else rows.take(np.sort(first))

    def merged(self, fresh: "Front") -> "Front":
        """The frontier of these rows (already a frontier) and fresh ones in any order."""
        fresh = fresh.ordered()
        fresh = fresh.take(np.flatnonzero(~beaten(fresh, fresh)))
        if len(self):
            fresh = fresh.take(np.flatnonzero(~np.isin(fresh.ids, self.ids)))
            fresh = fresh.take(np.flatnonzero(~beaten(fresh, self)))
        if not len(fresh):
            return self
        held = self.take(np.flatnonzero(~beaten(self, fresh)))
        both = [np.concatenate(pair) for pair in zip(held.columns, fresh.columns, strict=True)]
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


def ids(limbs: Sequence[np.ndarray]) -> np.ndarray:
    """Indices by their limbs as one sortable column."""
    if len(limbs) <= 2:
        total = np.zeros(len(limbs[0]), np.uint64)
        for limb in limbs:
            total = total << np.uint64(32) | limb.astype(np.uint64)
        return total
    table = np.ascontiguousarray(np.stack(limbs, -1).astype(">u4"))
    return table.view(f"V{4 * len(limbs)}").ravel()


def beaten(rows: Front, by: Front) -> np.ndarray:
    """Which rows some row of ``by`` beats."""
    if not len(rows) or not len(by):
        return np.zeros(len(rows), bool)
    return _below_stairs(rows, by) if rows.keys == 2 else _in_blocks(rows, by)


def _paired(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two columns as complex numbers, which NumPy compares by the first and then by the second."""
    pair = np.empty(len(a), np.complex128)
    pair.real, pair.imag = a, b
    return pair


def _later(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> np.ndarray:
    """Whether a comes after b, column by column."""
    after, same = np.asarray(False), np.asarray(True)
    for x, y in zip(a, b, strict=True):
        after = after | (same & (x > y))
        same = same & (x == y)
    return after


def _below_stairs(rows: Front, by: Front) -> np.ndarray:
    owner, first, second, row = by.stairs()
    mine, x, y = rows.columns[:3]
    at = np.searchsorted(_paired(owner, first), _paired(mine, x), side="right") - 1
    last = np.maximum(at, 0)
    within = (at >= 0) & (owner[last] == mine) & (second[last] <= y)
    inside = np.flatnonzero(within)
    who = row[last[inside]]
    same = (by.columns[1][who] == x[inside]) & (by.columns[2][who] == y[inside])
    mine_ties = [c[inside] for c in rows.columns[3:]]
    first_comes = _later(mine_ties, [c[who] for c in by.columns[3:]])
    within[inside] = ~same | first_comes
    return within


def _in_blocks(rows: Front, by: Front) -> np.ndarray:
    pushed = [by.pushed(i) for i in range(by.keys)]
    keys = slice(1, 1 + rows.keys)
    left = np.arange(len(rows))  # rows not beaten so far
    for start in range(0, len(by), BLOCK):
        some = slice(start, start + BLOCK)
        near = np.ones(len(left), bool)
        for push, x in zip(pushed, rows.columns[keys], strict=True):
            near &= push[some].min() <= x[left]
        near &= (by.columns[0][some].min() <= rows.columns[0][left]) & (
            by.columns[0][some].max() >= rows.columns[0][left]
        )
        asked = left[near]
        if not len(asked):
            continue
        hit = by.columns[0][some][:, None] == rows.columns[0][asked]
        for push, x in zip(pushed, rows.columns[keys], strict=True):
            hit &= push[some][:, None] <= x[asked]
        at, lane = np.nonzero(hit)
        who, lane = at + start, asked[lane]
        same = np.ones(len(who), bool)
        for x, y in zip(rows.columns[keys], by.columns[keys], strict=True):
            same &= x[lane] == y[who]
        rest = slice(1 + rows.keys, None)
        ties = [c[lane] for c in rows.columns[rest]], [c[who] for c in by.columns[rest]]
        lost = lane[~same | _later(*ties)]
        left = left[~np.isin(left, lost)]
    gone = np.ones(len(rows), bool)
    gone[left] = False
    return gone
