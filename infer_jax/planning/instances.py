"""Estimates of instances of one kind: every layout at every batch, or with its share of arrivals.

One compiled program evaluates all rows of a table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from jax import Array

from infer_jax.compiling import SOME, once
from infer_jax.estimators.serving import Deployment, Pass, ServerEstimate, Serving, Shape, shape
from infer_jax.planning.choice import PlanSpace, Requirements, Side
from infer_jax.planning.layout import Column, Layout
from infer_jax.planning.pricing import (
    ROUNDING,
    LayoutEstimates,
    Positions,
    first_of_each,
    priced,
    worst_of,
)
from infer_jax.specs import Arrivals, ForwardPass, Hardware, Workload
from infer_jax.typed_jax import trees

SINGLE_STEPS, GROWTH, MAX_BATCH = 64, 1.05, 4096  # batches of a group: all up to 64, then 5 % apart
BLOCK = 64  # rows of one evaluation under arrivals, so that one program serves any number of them
IDLE = 1e-6  # requests/s of an instance whose requests never meet
LEAP, SECTIONS = 64.0, 3  # numbers of replicas tried at once, over a factor of at most LEAP
SPARE = (1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0)  # of a frontier, over the fewest there can be
Answer = TypeVar("Answer")


def batches() -> Column:
    """The numbers of requests in flight in one attention group that are tried."""
    octaves = np.log(MAX_BATCH / SINGLE_STEPS) / np.log(GROWTH)
    beyond = SINGLE_STEPS * np.power(GROWTH, np.arange(1.0, octaves + 1.0))
    steps = np.arange(1.0, SINGLE_STEPS + 1.0)
    return np.unique(np.round(np.concatenate([steps, beyond, [MAX_BATCH]])))


def shares(concurrency: float) -> Column:
    """Requests in flight in each replica where 1, 2, 3 ... replicas share ``concurrency``."""
    replicas = batches()
    return concurrency / replicas[replicas <= concurrency]


def degrees(legal: Sequence[Layout], index: Positions) -> dict[str, Column]:
    """The degrees of rows of layouts, by name."""
    rows = np.asarray(legal, np.float64).reshape(-1, len(Layout._fields))[index]
    return dict(zip(Layout._fields, rows.T, strict=True))


def by_rows(program: Callable[..., Answer], fixed: Sequence[object], *rows: object) -> Answer:
    """The outputs of a program for ``rows``, padded to a power of two to save compilations."""
    count = len(jax.tree.leaves(rows)[0])
    padded = np.minimum(np.arange(1 << (count - 1).bit_length()), count - 1)  # by the last row
    return trees.take(once(program, *fixed, *trees.take(rows, padded)), slice(count))


class PlannedServer(NamedTuple):
    """A model and its requests on a system, with the settings that all instances share.

    ``models``: the model and its draft model.
    """

    serving: Serving
    models: tuple[Shape, Shape | None]
    hardware: Hardware
    work: Workload
    common: Deployment

    def estimate(self, degrees: dict[str, Array], load: Array) -> ServerEstimate:
        """One instance at its load: requests per second where they arrive, else in flight."""
        plan, work, (model, draft) = self.common.replace(**degrees), self.work, self.models
        if work.arrivals is None:
            requests = work.replace(batch=load)
        else:
            requests = work.replace(arrivals=work.arrivals.replace(rate=load))
        return self.serving.estimate_shape(model, self.hardware, requests, plan, draft)

    def token(self, degrees: dict[str, Array], forward: ForwardPass) -> Pass:
        """A pass of one instance, per token that a sequence gains."""
        (model, draft), plan = self.models, self.common.replace(**degrees)
        return self.serving.token(model, self.hardware, forward, plan, draft)


def planned_server(space: PlanSpace, side: Side, work: Workload) -> PlannedServer:
    """The server of a space on one of its systems, for requests."""
    draft = None if space.draft is None else once(shape, space.draft)
    models = once(shape, space.arch), draft
    return PlannedServer(side.serving, models, side.hardware, work, space.common)


def instance_estimates(
    served: PlannedServer, degrees: dict[str, Array], load: Array
) -> ServerEstimate:
    """Rows of instances, each at its load."""
    return jax.vmap(served.estimate)(degrees, load)


def varied_estimates(
    served: PlannedServer, degrees: dict[str, Array], rate: Array, variability: Array
) -> ServerEstimate:
    """Rows of instances, each at its requests/s, of which each has a variability."""
    assert served.work.arrivals is not None
    arrivals = served.work.arrivals

    def estimate(degrees: dict[str, Array], rate: Array, variability: Array) -> ServerEstimate:
        work = served.work.replace(arrivals=arrivals.replace(variability=variability))
        return served._replace(work=work).estimate(degrees, rate)

    return jax.vmap(estimate)(degrees, rate, variability)


# the rows among which are so many of the cheapest plans within limits
Rows = Callable[[Requirements, int], LayoutEstimates]


def instance_rows(space: PlanSpace, legal: Sequence[Layout]) -> Rows:
    """Instances of one kind, each row evaluated once for all limits.

    Of every legal layout that can be started, with every chunk and number of drafts, they are those
    of every batch, or of the replicas that share the load or keep the limits.
    """
    extras = product(space.chunks, space.drafts)
    varied = [x._replace(chunk=chunk, drafts=drafts) for chunk, drafts in extras for x in legal]
    layouts = space.sides[0].startable(varied)
    if space.requirements.rate is not None:
        return OpenLoop(space, layouts).table
    rows = table(space, layouts)
    return lambda limits, count: rows


def table(space: PlanSpace, legal: Sequence[Layout]) -> LayoutEstimates:
    """Every layout at every batch, one evaluation of the estimator per row in one program.

    An instance has its share of the requests in flight, at least one in each attention group;
    where no concurrency is required, ``batches()`` in each group.
    """
    side, concurrency = space.sides[0], space.requirements.concurrency
    loads = batches() if concurrency is None else shares(concurrency)
    grid = np.meshgrid(np.arange(len(legal)), loads, indexing="ij")
    index, batch = (x.ravel() for x in grid)
    rows = degrees(legal, index)
    if concurrency is None:
        batch = batch * rows["attention_dp"]
    else:
        fits = batch >= rows["attention_dp"]
        index, batch = index[fits], batch[fits]
        rows = {name: x[fits] for name, x in rows.items()}
    served = planned_server(space, side, space.work.replace(arrivals=None, lengths=()))
    estimates = by_rows(instance_estimates, (served,), rows, batch)
    lengths = float(space.work.isl), float(space.work.osl)
    return LayoutEstimates(side, lengths, legal, index, batch, estimates)


class OpenLoop:
    """Instances of every layout with their share of the arrivals; each row is evaluated once."""

    def __init__(self, space: PlanSpace, legal: Sequence[Layout]) -> None:
        side, work, rate = space.sides[0], space.work, space.requirements.rate
        assert rate is not None
        self.side, self.layouts, self.rate = side, legal, rate
        self.lengths = float(work.isl), float(work.osl)
        work = work.replace(arrivals=work.arrivals or Arrivals.of(rate=rate))
        self._served = planned_server(space, side, work)
        self._rows = dict[tuple[int, float], None]()  # layout and replicas, in order
        self._parts = list[ServerEstimate]()
        self.idle = float(np.ceil(rate / IDLE)) + 1.0
        self._evaluate((k, self.idle) for k in range(len(legal)))
        self.unloaded = self._table(slice(None))
        capacity = self.unloaded.estimates.decode.limits["arrivals"].capacity
        self.fewest = np.maximum(np.ceil(rate / np.asarray(capacity) * ROUNDING), 1.0)

    def table(self, limits: Requirements, count: int) -> LayoutEstimates:
        """The rows evaluated so far, among them the cheapest of ``count`` layouts within limits.

        More replicas are never slower: the fewest of a layout within limits are found by section.
        A layout is left out once it must cost more than the last of ``count``. For a frontier,
        or where nothing is within limits, more than the fewest are tried of all layouts.
        """
        low = self.fewest - 1.0
        # the fewest known to keep the limits, or one more than there are GPUs for
        high = np.minimum(self.idle, np.floor(limits.chips / self.unloaded.chips) + 1.0)
        unlimited = priced(self.unloaded, replace(limits, chips=np.inf))
        high[worst_of(unlimited.excess) > 0.0] = 0.0
        while True:
            rows = priced(self._up_to(self.idle - 1.0), limits)
            # the bounds move to the rows that are known to break, and to keep, the limits
            layout, fits = rows.table.layout, worst_of(rows.excess) <= 0.0
            np.minimum.at(high, layout[fits], rows.replicas[fits])
            below = ~fits & (rows.replicas < high[layout])
            np.maximum.at(low, layout[below], rows.replicas[below])
            first, dearest = first_of_each(rows.table, rows.within, count), np.inf
            if len(first) == count and not limits.frontier:
                dearest = rows.replicas[first[-1]] * rows.table.chips[first[-1]]
            open_ = (high - low > 1.0) & (self.unloaded.chips * (low + 1.0) <= dearest)
            layouts = np.flatnonzero(open_)
            if not len(layouts):
                break
            steps = max(SECTIONS, BLOCK // len(layouts))
            self._evaluate((int(k), n) for k in layouts for n in _between(low[k], high[k], steps))
        fits, fewest = rows.within, np.full(len(self.layouts), np.inf)
        np.minimum.at(fewest, rows.table.layout[fits], rows.replicas[fits])
        fewest = np.where(np.isfinite(fewest), fewest, self.fewest)
        if limits.frontier or not len(fits):
            more = [np.ceil(fewest * spare) for spare in SPARE]
            self._evaluate((k, float(n)) for counts in more for k, n in enumerate(counts))
        # the search leaps further than anybody would rent
        return self._up_to(np.ceil(SPARE[-1] * fewest))

    def evaluated(self, rows: Sequence[tuple[int, float]]) -> LayoutEstimates:
        """The rows of these layouts, by number, with their numbers of replicas."""
        self._evaluate(rows)
        positions = {row: i for i, row in enumerate(self._rows)}
        return self._table(np.array([positions[row] for row in rows]))

    def _up_to(self, limit: Column | float) -> LayoutEstimates:
        """The rows of at most ``limit`` replicas of a layout."""
        layout, replicas = np.array([*self._rows]).T
        limit = np.broadcast_to(limit, self.fewest.shape)
        return self._table(np.flatnonzero(replicas <= limit[layout.astype(int)]))

    def _table(self, rows: slice | Positions) -> LayoutEstimates:
        layout = np.array([k for k, _ in self._rows], int)[rows]
        estimates = jax.tree.map(lambda *x: np.concatenate(x)[rows], *self._parts)
        in_flight = np.asarray(estimates.in_flight)
        return LayoutEstimates(self.side, self.lengths, self.layouts, layout, in_flight, estimates)

    def _evaluate(self, rows: Iterable[tuple[int, float]]) -> None:
        """Add the estimates of layouts with numbers of replicas, except those that are known."""
        new = [row for row in dict.fromkeys(rows) if row not in self._rows]
        self._rows.update(dict.fromkeys(new))
        for start in range(0, len(new), BLOCK):
            some = new[start : start + BLOCK]
            full = np.array([*some, *[some[-1]] * (BLOCK - len(some))])
            columns = degrees(self.layouts, full[:, 0].astype(int)), self.rate / full[:, 1]
            block = once(instance_estimates, self._served, *columns, points=SOME)
            self._parts.append(trees.take(block, slice(len(some))))


def _between(low: float, high: float, count: int) -> Iterator[float]:
    """The next number after ``low``, and more up to ``high``, evenly in logarithms."""
    first = low + 1.0
    ends = np.geomspace(first, min(high, LEAP * first), count + 1)
    yield from (float(n) for n in np.unique(np.ceil(ends * (1.0 - 1e-12))) if n < high)
