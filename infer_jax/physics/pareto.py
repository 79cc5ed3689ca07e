"""Which rows does no other row beat in both of two objectives? The Pareto frontier on the host.

A row beats another if it is no worse in both objectives, both minimised, and better in one. In the
order of the first objective only a new least value of the second is not beaten: one sort and one
running minimum, O(n log n). Source: Kung, Luccio and Preparata 1975, doi 10.1145/321906.321910.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int, Real, Shaped

Rows = Real[np.ndarray, " rows"]


def frontier_rows(
    first: Rows | Sequence[float], second: Rows | Sequence[float]
) -> Int[np.ndarray, " front"]:
    """Positions of the rows that no other row beats, by increasing ``first``; one row a tie.

    Of equal rows the first one stays.

    >>> frontier_rows([3.0, 1.0, 2.0, 2.5], [1.0, 4.0, 2.0, 2.0])
    array([1, 2, 0])
    """
    columns = np.asarray(second), np.asarray(first)
    order = np.lexsort(columns)
    return order[descents(columns[0][order])]


def descents(second: Shaped[np.ndarray, " rows"]) -> Bool[np.ndarray, " rows"]:
    """Whether a value is less than all before it; the first one is.

    >>> descents(np.array([3.0, 4.0, 1.0, 1.0])).tolist()
    [True, False, True, False]
    """
    least = np.minimum.accumulate(second)
    new = np.ones(len(least), bool)
    new[1:] = least[1:] < least[:-1]
    return new
