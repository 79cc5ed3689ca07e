"""The fewest replicas of each layout that keep limits where requests arrive at a rate."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import jax
import numpy as np
from jax import Array

from infer_jax.compiling import SOME, once
from infer_jax.estimators.serving import Deployment, ServerEstimate, Serving, Shape
from infer_jax.planning.aggregated import LayoutEstimates, Positions, degrees, models
from infer_jax.planning.choose import PricedTable, Requirements, first_of_each, priced, worst_of
from infer_jax.planning.legal_layouts import Column, Layout
from infer_jax.specs import Architecture, Arrivals, Hardware, Workload
from infer_jax.typed_jax import trees

BLOCK = 64  # rows of one evaluation, so that one program serves any number of them
IDLE = 1e-6  # requests/s of an instance whose requests never meet
LEAP, TRIED = 64.0, 3  # numbers of replicas tried at once: so many, over a factor of at most LEAP
SPARE = (1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0)  # of a frontier, over the fewest there can be


class OpenLoop:
    """Instances of every layout with their share of the arrivals; each row is evaluated once."""

    def __init__(
        self,
        serving: Serving,
        arch: Architecture,
        hardware: Hardware,
        work: Workload,
        legal: Sequence[Layout],
        common: Deployment,
        rate: float,
        draft: Architecture | None = None,
    ) -> None:
        self.layouts, self.rate = legal, rate
        self.lengths = float(work.isl), float(work.osl)
        arrivals = work.arrivals or Arrivals.of(rate=rate)
        self._fixed = serving, *models(arch, draft), hardware, work, common, arrivals
        self._rows = dict[tuple[int, float], None]()  # layout and replicas, in order
        self._parts = list[ServerEstimate]()
        self.idle = float(np.ceil(rate / IDLE)) + 1.0
        self._evaluate((k, self.idle) for k in range(len(legal)))
        self.alone = self._table(slice(None))
        capacity = self.alone.estimates.decode.limits["arrivals"].capacity
        # a number that is whole except for rounding is not rounded up
        self.least = np.maximum(np.ceil(rate / np.asarray(capacity) * (1.0 - 1e-6)), 1.0)

    def table(self, asked: Requirements, count: int) -> LayoutEstimates:
        """The rows evaluated so far, among them the cheapest of ``count`` layouts within limits.

        More replicas are never slower: the fewest of a layout within limits are found by section.
        A layout is left alone once it must cost more than the last of ``count``. For a frontier,
        or where nothing is within limits, more than the fewest are tried of all layouts.
        """
        low = self.least - 1.0
        # the fewest known to keep the limits, or one more than there are GPUs for
        high = np.minimum(self.idle, np.floor(asked.chips / self.alone.chips) + 1.0)
        far = self._priced(self.alone, replace(asked, chips=np.inf))
        high[worst_of(far.rows.excess) > 0.0] = 0.0
        while True:
            found = self._priced(self._up_to(self.idle - 1.0), asked)
            self._narrow(found, low, high)
            dearest = np.inf if asked.frontier else _last(found, count)
            left = (high - low > 1.0) & (self.alone.chips * (low + 1.0) <= dearest)
            rows = np.flatnonzero(left)
            if not len(rows):
                break
            each = max(TRIED, BLOCK // len(rows))
            self._evaluate((int(k), n) for k in rows for n in _between(low[k], high[k], each))
        kept, fewest = found.within, np.full(len(self.layouts), np.inf)
        np.minimum.at(fewest, found.table.layout[kept], found.rows.replicas[kept])
        fewest = np.where(np.isfinite(fewest), fewest, self.least)
        if asked.frontier or not len(kept):
            more = [np.ceil(fewest * spare) for spare in SPARE]
            self._evaluate((k, float(n)) for each in more for k, n in enumerate(each))
        # the search leaps further than anybody would rent
        return self._up_to(np.ceil(SPARE[-1] * fewest))

    def evaluated(self, rows: Sequence[tuple[int, float]]) -> LayoutEstimates:
        """The rows of these layouts, by number, with so many replicas."""
        self._evaluate(rows)
        known = {row: i for i, row in enumerate(self._rows)}
        return self._table(np.array([known[row] for row in rows]))

    def _narrow(self, found: PricedTable, low: Column, high: Column) -> None:
        """Move the bounds to the rows that are known to break, and to keep, the limits."""
        layout, replicas = found.table.layout, found.rows.replicas
        fits = worst_of(found.rows.excess) <= 0.0
        np.minimum.at(high, layout[fits], replicas[fits])
        below = ~fits & (replicas < high[layout])
        np.maximum.at(low, layout[below], replicas[below])

    def _priced(self, table: LayoutEstimates, asked: Requirements) -> PricedTable:
        return priced("", 1.0, table, asked, *self.lengths)

    def _up_to(self, most: Column | float) -> LayoutEstimates:
        """The rows of at most so many replicas of a layout."""
        layout, replicas = np.array([*self._rows]).T
        most = np.broadcast_to(most, self.least.shape)
        return self._table(np.flatnonzero(replicas <= most[layout.astype(int)]))

    def _table(self, rows: slice | Positions) -> LayoutEstimates:
        layout = np.array([k for k, _ in self._rows], int)
        estimates = jax.tree.map(lambda *x: np.concatenate(x)[rows], *self._parts)
        return LayoutEstimates(
            self.layouts, layout[rows], np.asarray(estimates.in_flight), estimates
        )

    def _evaluate(self, rows: Iterable[tuple[int, float]]) -> None:
        """Add the estimates of layouts with so many replicas, but for those that are known."""
        new = [row for row in dict.fromkeys(rows) if row not in self._rows]
        self._rows.update(dict.fromkeys(new))
        for start in range(0, len(new), BLOCK):
            some = new[start : start + BLOCK]
            full = np.array([*some, *[some[-1]] * (BLOCK - len(some))])
            given = degrees(self.layouts, full[:, 0].astype(int)), self.rate / full[:, 1]
            block = once(_at_rates, *self._fixed, *given, points=SOME)
            self._parts.append(trees.take(block, slice(len(some))))


def _last(found: PricedTable, count: int) -> float:
    """GPUs of the last of ``count`` plans that would be shown; infinite where they are fewer."""
    first = first_of_each(found.table, found.within, count)
    if len(first) < count:
        return np.inf
    return float(found.rows.replicas[first[-1]] * found.table.chips[first[-1]])


def _between(low: float, high: float, count: int) -> Iterator[float]:
    """The next number after ``low``, and more up to ``high``, evenly in logarithms."""
    first = low + 1.0
    ends = np.geomspace(first, min(high, LEAP * first), count + 1)
    yield from (float(n) for n in np.unique(np.ceil(ends * (1.0 - 1e-12))) if n < high)


def _at_rates(
    serving: Serving,
    arch: Shape,
    draft: Shape | None,
    hardware: Hardware,
    work: Workload,
    common: Deployment,
    arrivals: Arrivals,
    given: dict[str, Array],
    rate: Array,
) -> ServerEstimate:
    def one(degrees: dict[str, Array], each: Array) -> ServerEstimate:
        asked = work.replace(arrivals=arrivals.replace(rate=each))
        return serving.serve(arch, hardware, asked, common.replace(**degrees), draft)

    return jax.vmap(one)(given, rate)
