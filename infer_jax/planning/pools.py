"""The cheapest pairs of a prefill and a decode pool that serve a model within limits.

The pools share one number, requests per second: each is searched by itself over every legal
layout and batch, the best rows of both are combined with numbers of instances, and the best
combinations are evaluated with the transfer between them.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.serving import Deployment, Pass, Serving, Shape
from infer_jax.planning.choice import (
    PlanCandidates,
    PlanSpace,
    Requirements,
    Side,
    undominated_plans,
)
from infer_jax.planning.instances import batches, by_rows, degrees, models
from infer_jax.planning.layout import Column, Layout
from infer_jax.planning.pool_pairs import (
    Pair,
    PoolRows,
    cheapest_pairs,
    joined_pools,
    priced_pairs,
)
from infer_jax.planning.pricing import Positions, exceeded
from infer_jax.specs import Arrivals, ForwardPass, Hardware
from infer_jax.typed_jax import trees

PROMPTS = np.array([1.0, 2.0, 4.0, 8.0])  # prompts of a prefill pass to try
ROWS_PER_SIZE = 4  # rows of a pool that are combined, for each number of chips
EXACT = 4096  # combinations that are evaluated with the transfer between the pools
SPEEDS = 32  # limits of TPOT at which a frontier is searched for the best pairs
SPARE = np.array([1.0, 1.1, 1.25, 1.5, 2.0])  # instances to try, over the fewest for the arrivals
# factors to try in a closed loop: prefill instances over the fewest, and the sequences that a
# decode row is evaluated for over those in flight; larger ones shorten the wait of prompts
MORE = (1.0, 1.2, 1.5, 2.0)
SINGLE_STEPS = 1024.0  # every number of instances up to this one is tried
MIN_FILL = 0.9  # share of the concurrency that a plan has in flight at least


def pool_plans(
    space: PlanSpace, legal: tuple[Sequence[Layout], Sequence[Layout]]
) -> PlanCandidates:
    """The cheapest pairs of pools within the limits, and the nearest misses otherwise.

    ``legal``: layouts of the prefill and of the decode pool. A frontier consists of the best pairs
    at ``SPEEDS`` limits of TPOT that no other pair beats. Layouts with pipeline stages are left
    out, because vLLM's NixlConnector transfers no caches between stages
    (github.com/vllm-project/vllm, issue 52913 and the open pull request 53360).
    """
    first, second = ([x for x in each if x.pp == 1] for each in legal)
    if not (first and second):
        return PlanCandidates([], [], 0, pooled=False)
    limits, work, wrapper = space.requirements, space.work, joined_pools(space.sides)
    prompt = float(np.maximum(work.isl - work.prefix, 1.0))
    grids = (
        _PassGrid(space.sides[0], first, PROMPTS, prompt, float(work.prefix)),
        _PassGrid(space.sides[-1], second, batches(), 1.0, float(decode_context(work))),
    )
    tokens = max(float(work.osl) - 1.0, 1.0)
    shares = float(wrapper.prefill_share), float(wrapper.decode_share) / tokens
    phases = _evaluate_passes(grids, models(space.arch, space.draft), space.common)
    if limits.frontier and np.any(_fits(phases[1])):
        pools, pairs = _at_speeds(grids, phases, shares, limits)
    else:
        pools = (
            _best(grids[0], phases[0], limits.ttft, shares[0], limits),
            _best(grids[1], phases[1], limits.tpot, shares[1], limits, fewer=limits.rate is None),
        )
        pairs = _combined(pools, limits)
    configurations = sum(len(phase.time) for phase in phases)
    if not pairs:
        return PlanCandidates([], [], configurations, pooled=False)
    if limits.rate is not None:
        work = work.replace(arrivals=work.arrivals or Arrivals.of(rate=limits.rate))
    pairs_priced = priced_pairs(space._replace(work=work), wrapper, pools, pairs)
    met, missed = cheapest_pairs(pairs_priced, limits, space.top)
    return PlanCandidates(met, missed, configurations, pooled=bool(met or missed))


class _PassGrid(NamedTuple):
    """The passes of one pool: every layout with every number of sequences."""

    side: Side
    legal: Sequence[Layout]
    sequences: Column
    new: float
    cached: float

    @property
    def rows(self) -> tuple[Positions, dict[str, Column], ForwardPass]:
        """Layout, its degrees and the pass of each row.

        Every attention group has some of the sequences.
        """
        columns = np.meshgrid(np.arange(len(self.legal)), self.sequences, indexing="ij")
        index, sequences = (x.ravel() for x in columns)
        rows = degrees(self.legal, index)
        sequences = sequences * rows["attention_dp"]
        new, cached = np.full(sequences.shape, self.new), np.full(sequences.shape, self.cached)
        return index, rows, ForwardPass(sequences=sequences, new_tokens=new, cached_tokens=cached)  # pyright: ignore[reportArgumentType]


def _evaluate_passes(
    grids: Sequence[_PassGrid], models: tuple[Shape, Shape | None], common: Deployment
) -> list[Pass]:
    """The passes of both pools, per token with drafts; one program if they share a system."""
    if grids[0].side is not grids[-1].side:
        return [_evaluate_passes([grid], models, common)[0] for grid in grids]
    side, rows = grids[0].side, [grid.rows[1:] for grid in grids]
    columns = jax.tree.map(_joined, *rows)
    phases = by_rows(_passes, (side.serving, models, side.hardware, common), *columns)
    ends = np.cumsum([0, *(forward.sequences.size for _, forward in rows)])
    return [trees.take(phases, slice(a, b)) for a, b in itertools.pairwise(ends.tolist())]


def _joined(*columns: Column) -> Column:
    return np.concatenate(columns)


def _passes(
    serving: Serving,
    models: tuple[Shape, Shape | None],
    hardware: Hardware,
    common: Deployment,
    rows: dict[str, Array],
    passes: ForwardPass,
) -> Pass:
    arch, draft = models

    def phase(degrees: dict[str, Array], forward: ForwardPass) -> Pass:
        return serving.token(arch, hardware, forward, common.replace(**degrees), draft)

    return jax.vmap(phase)(rows, passes)


def _fits(phase: Pass) -> Column:
    """The rows whose pass is feasible."""
    return np.all([exceeded(limit) <= 0.0 for limit in phase.limits.values()], axis=0)


def _at_speeds(
    grids: tuple[_PassGrid, _PassGrid],
    phases: list[Pass],
    shares: tuple[float, float],
    limits: Requirements,
) -> tuple[tuple[PoolRows, PoolRows], list[Pair]]:
    """The best pairs at TPOT limits from the fastest pass to the one with most tokens per chip."""
    index, _, forward = grids[1].rows
    chips = np.array([layout.chips for layout in grids[1].legal])[index]
    time = np.where(_fits(phases[1]), phases[1].time, np.inf)
    time = time[undominated_plans(time, time * chips / np.asarray(forward.sequences))]
    slowest = max(time[0], min(time[-1], limits.tpot))
    first = _best(grids[0], phases[0], limits.ttft, shares[0], limits)
    seconds: list[PoolRows] = []
    pairs: list[Pair] = []
    rows = 0
    for tpot in np.asarray(np.geomspace(time[0], slowest, SPEEDS), np.float64):
        second = _best(grids[1], phases[1], float(tpot), shares[1], limits, per_size=1)
        combined = _combined((first, second), limits, 4 * EXACT // SPEEDS, distinct=True)
        pairs += [(i, j + rows, x, y) for i, j, x, y in combined]
        seconds.append(second)
        rows += len(second.chips)
    columns = [(x.sequences, x.chips, x.phase, x.rate) for x in seconds]
    layout = list(itertools.chain(*(x.layout for x in seconds)))
    sequences, chips, phase, rate = jax.tree.map(_joined, *columns)
    return (first, PoolRows(layout, sequences, chips, phase, rate, seconds[0].price)), pairs


def _best(
    grid: _PassGrid,
    phase: Pass,
    longest: float,
    share: float,
    limits: Requirements,
    per_size: int = ROWS_PER_SIZE,
    *,
    fewer: bool = False,
) -> PoolRows:
    """For each number of chips, the rows with most requests/s whose pass is within ``longest``.

    If none is, the rows that exceed it least. Of layouts with equal results only the one that
    engines use by default is kept. At least one chip is left to the other pool. ``fewer``: also
    these layouts with fewer sequences, with which prompts wait less.
    """
    index, _, forward = grid.rows
    legal, sequences, time = grid.legal, np.asarray(forward.sequences), np.asarray(phase.time)
    excess = time / longest - 1.0
    for limit in phase.limits.values():
        excess = np.maximum(excess, exceeded(limit))
    chips = np.array([layout.chips for layout in legal])[index]
    rate = sequences / time * share
    fits = chips < limits.chips
    if limits.concurrency is not None:
        fits &= sequences <= limits.concurrency
    unusual = np.array([layout.unusual for layout in legal])[index]
    order = np.lexsort((unusual, np.float32(-rate), np.float32(np.maximum(excess, 0.0))))
    by_size: dict[float, dict[float, int]] = {}
    rows: list[int] = []
    repeated: set[float] = set()
    for row in (int(i) for i in order if fits[i]):
        answers, answer = by_size.setdefault(chips[row], {}), float(np.float32(rate[row]))
        if index[row] in repeated or len(answers) == per_size:
            continue
        if answers.setdefault(answer, index[row]) == index[row]:
            rows.append(row)
        else:
            repeated.add(index[row])
    if fewer:
        rows = list(dict.fromkeys(rows + [_lighter(grid, row, x) for row in rows for x in MORE]))
    price, layout = float(grid.side.hardware.price), [legal[int(index[row])] for row in rows]
    columns = sequences[rows], chips[rows], trees.take(phase, rows), rate[rows]
    return PoolRows(layout, *columns, price)


def _lighter(grid: _PassGrid, row: int, more: float) -> int:
    """The row of the same layout with 1 / ``more`` of its sequences, or with the fewest."""
    layout, column = divmod(row, len(grid.sequences))
    fewer = int(np.count_nonzero(grid.sequences <= grid.sequences[column] / more))
    return layout * len(grid.sequences) + max(fewer - 1, 0)


def _combined(
    pools: tuple[PoolRows, PoolRows],
    limits: Requirements,
    count: int = EXACT,
    *,
    distinct: bool = False,
) -> list[Pair]:
    """The cheapest (prefill row, decode row, copies, copies) per request, before the transfer.

    ``distinct``: keep one of each prefill row and spare factor, because only the transfer and the
    wait decide which of them keep TTFT.
    """
    first, second = pools
    columns: list[tuple[Column, ...]] = []
    spares = MORE if limits.rate is None else MORE[:1]
    for j, spare in itertools.product(range(len(second.chips)), spares):
        x, y = _copies(first, second, j, limits)
        x = np.ceil(x * spare)
        fits = x * first.chips[:, None] + y * second.chips[j] <= limits.chips
        rate = np.minimum(x * first.rate[:, None], y * second.rate[j])
        rent = x * first.chips[:, None] * first.price + y * second.chips[j] * second.price
        cost = np.where(fits, rent / (rate if limits.rate is None else limits.rate), np.inf)
        # under arrivals a spare instance may be needed to keep TTFT, so all counts are evaluated
        if limits.rate is None and cost.size:
            least = cost.argmin(axis=1)[:, None]
            cost, x, y = (np.take_along_axis(v, least, axis=1) for v in (cost, x, y))
        i, k = np.nonzero(np.isfinite(cost))
        kind = i * len(MORE) + MORE.index(spare)
        columns.append((cost[i, k], i, np.full(i.shape, j), x[i, k], y[i, k], kind))
    if not columns:
        return []
    cost, *pair, kind = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((*pair[::-1], cost))
    if distinct:
        order = order[np.sort(np.unique(kind[order], return_index=True)[1])]
    i, j, x, y = (column[order[:count]].tolist() for column in pair)
    return list(zip(i, j, x, y, strict=True))


def _copies(
    first: PoolRows, second: PoolRows, j: int, limits: Requirements
) -> tuple[Column, Column]:
    """Instances of both pools worth trying with each prefill row, NaN where none are.

    Numbers that balance the two pools, fit the chips and carry the load.
    """
    if limits.rate is not None:
        x = np.ceil(np.ceil(limits.rate / first.rate)[:, None] * SPARE)
        y = np.unique(np.ceil(np.ceil(limits.rate / second.rate[j]) * SPARE))
        x[:, 1:][np.diff(x) == 0.0] = np.nan
        x, y = np.broadcast_arrays(x[:, :, None], y)
        return x.reshape(len(x), -1), y.reshape(len(y), -1)
    # requests in flight for each decode instance, by Little's law
    load = second.sequences[j] + second.rate[j] * np.asarray(first.phase.time)[:, None]
    if limits.concurrency is not None:
        y = np.floor(limits.concurrency / load)
        y = np.where((y >= 1.0) & (y * load >= MIN_FILL * limits.concurrency), y, np.nan)
    else:
        y = _counts(limits.chips // second.chips[j]) * np.ones_like(load)
    balanced = y * second.rate[j] / first.rate[:, None]
    x = np.maximum(np.concatenate([np.floor(balanced), np.ceil(balanced)], axis=1), 1.0)
    return x, np.concatenate([y, y], axis=1)


def _counts(limit: float) -> Column:
    """Numbers of instances to try: every one up to 1024, then 5 % apart up to ``limit``.

    With 1024 the ratio of the pools is met within 0.1 %.
    """
    singles = np.arange(1.0, min(limit, SINGLE_STEPS) + 1.0)
    if limit <= SINGLE_STEPS:
        return singles
    steps = int(np.ceil(np.log(limit / SINGLE_STEPS) / np.log(1.05)))
    return np.unique(np.r_[singles, np.floor(np.geomspace(SINGLE_STEPS, limit, steps + 1)), limit])
