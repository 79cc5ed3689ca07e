"""Which rows of a grid are worth choosing: speed against cost, and the preferred point?"""

import numpy as np

from infer_jax.sweep.grid import Grid


def frontier(grid: Grid) -> Grid:
    """The rows no other row beats in both speed and cost, fastest first; one row a tie.

    Pass feasible rows: ``frontier(grid.under(demand=None))``.
    """
    order = np.lexsort((grid.cost, grid.time))
    ranked = grid.take(order)
    least = np.minimum.accumulate(ranked.cost)
    first = np.ones(len(least), bool)
    first[1:] = ranked.cost[1:] < least[:-1]
    return ranked.take(first)


def thresholds(grid: Grid, count: int = 1000, decades: float = 2.0) -> Grid:
    """The cheapest row within each of ``count`` latency limits, as the economics paper draws.

    Limits are evenly spaced in logarithm from the least time over ``decades`` decades.
    """
    front = frontier(grid)
    limits = front.time[0] * np.logspace(0.0, decades, count)
    limits[0] = front.time[0]
    return front.take(np.searchsorted(front.time, limits, side="right") - 1)


def preferred(front: Grid, preference: float = 3.0) -> int:
    """The row that maximises speed^preference / cost (Erdil 2025, Eq. 45)."""
    return int(np.argmax(front.speed**preference / front.cost))
