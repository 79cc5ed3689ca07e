"""The cheapest pairs of a prefill and a decode pool that serve a model within limits.

The pools share one number, requests per second: each is searched by itself over every legal
layout and batch, the best rows of both are combined with numbers of instances, and the best
combinations are evaluated with the transfer between them.
"""

import itertools
from collections.abc import Sequence

import jax
import numpy as np
from jax import Array

from infer_jax.estimators.disaggregated import Disaggregated
from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.serving import Pass
from infer_jax.planning.choice import (
    PlanCandidates,
    PlanSpace,
    Requirements,
    Side,
    undominated_plans,
)
from infer_jax.planning.instances import PlannedServer, batches, by_rows, degrees, planned_server
from infer_jax.planning.layout import Column, Layout
from infer_jax.planning.pool_pairs import Pair, PoolRows, joined_pools, priced_pairs
from infer_jax.planning.pricing import Positions, excess_share
from infer_jax.specs import Arrivals, ForwardPass
from infer_jax.typed_jax import trees

PROMPTS = np.array([1.0, 2.0, 4.0, 8.0])  # prompts of a prefill pass to try
ROWS_PER_SIZE = 4  # rows of a pool that are combined, for each number of chips
EXACT = 4096  # combinations that are evaluated with the transfer between the pools
SPEEDS = 32  # limits of TPOT at which a frontier is searched for the best pairs
SPARE = np.array([1.0, 1.1, 1.25, 1.5, 2.0])  # instances to try, over the fewest for the arrivals
# factors to try in a closed loop: prefill instances over the fewest, and the most sequences of a
# decode row over those in flight; larger ones shorten the wait of prompts, and leave a decode pool
# that could hold many more requests than the prefill pool feeds with as many as it gets
MORE = (1.0, 1.2, 1.5, 2.0)
FEWER = np.unique(
    np.concatenate([np.geomspace(1.0, 2.0, 7), np.geomspace(2.0, 32.0, 9), [1.03, 1.06]])
)
SINGLE_STEPS = 1024.0  # every number of instances up to this one is tried
MIN_FILL = 0.9  # share of the concurrency that a plan has in flight at least
Grid = tuple[Positions, dict[str, Column], ForwardPass]  # rows: layout, its degrees, its pass


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
    limits, wrapper = space.requirements, joined_pools(space.sides)
    pools = _pool_rows(space, wrapper, (first, second))
    configurations = sum(len(pool.layout) for pool in pools)
    if limits.frontier and np.any(_fits(pools[1].phase)):
        pools, pairs = _at_speeds(pools, limits)
    else:
        prefill, decode = pools
        fewer = limits.rate is None
        tpot = limits.tpot / limits.factors(decode.sequences)[0]
        ttft = limits.ttft / limits.factors(1.0)[1]
        decode_rows = _best(decode, tpot, limits, fewer=fewer)
        pools = prefill.take(_best(prefill, ttft, limits)), decode.take(decode_rows)
        pairs = _combined(pools, limits)
    if not pairs:
        return PlanCandidates([], [], configurations, pooled=False)
    if limits.rate is not None:
        arrivals = space.work.arrivals or Arrivals.of(rate=limits.rate)
        space = space._replace(work=space.work.replace(arrivals=arrivals))
    met, missed = priced_pairs(space, wrapper, pools, pairs).cheapest(limits, space.top)
    return PlanCandidates(met, missed, configurations, pooled=bool(met or missed))


def _pool_rows(
    space: PlanSpace, wrapper: Disaggregated, legal: tuple[Sequence[Layout], Sequence[Layout]]
) -> tuple[PoolRows, PoolRows]:
    """Every layout with every number of sequences of both pools.

    One program evaluates both pools if they share a system.
    """
    work, sides = space.work, (space.sides[0], space.sides[-1])
    prompt = float(np.maximum(work.isl - work.prefix, 1.0))
    grids = (
        _grid(legal[0], PROMPTS, prompt, float(work.prefix)),
        _grid(legal[1], batches(), 1.0, float(decode_context(work))),
    )

    def evaluate(side: Side, *grids: Grid) -> list[Pass]:
        columns = jax.tree.map(lambda *x: np.concatenate(x), *(grid[1:] for grid in grids))
        passes = by_rows(token_passes, (planned_server(space, side, work),), *columns)
        ends = np.cumsum([0, *(len(grid[0]) for grid in grids)])
        return [trees.take(passes, slice(a, b)) for a, b in itertools.pairwise(ends.tolist())]

    if sides[0] is sides[1]:
        passes = evaluate(sides[0], *grids)
    else:
        passes = [evaluate(side, grid)[0] for side, grid in zip(sides, grids, strict=True)]
    tokens = max(float(work.osl) - 1.0, 1.0)
    shares = float(wrapper.prefill_share), float(wrapper.decode_share) / tokens
    first, second = (
        PoolRows(side, share, layouts, index, np.asarray(forward.sequences), phase)
        for side, share, layouts, (index, _, forward), phase in zip(
            sides, shares, legal, grids, passes, strict=True
        )
    )
    return first, second


def _grid(layouts: Sequence[Layout], sequences: Column, new: float, cached: float) -> Grid:
    """Every layout with every number of sequences in each attention group."""
    columns = np.meshgrid(np.arange(len(layouts)), sequences, indexing="ij")
    index, sequences = (x.ravel() for x in columns)
    rows = degrees(layouts, index)
    sequences = sequences * rows["attention_dp"]
    tokens = np.full(sequences.shape, new), np.full(sequences.shape, cached)
    names = ("new_tokens", "cached_tokens")
    forward = ForwardPass(sequences=sequences, **dict(zip(names, tokens, strict=True)))  # pyright: ignore[reportArgumentType]
    return index, rows, forward


def token_passes(served: PlannedServer, rows: dict[str, Array], passes: ForwardPass) -> Pass:
    """Rows of passes of instances, per token that a sequence gains."""
    return jax.vmap(served.token)(rows, passes)


def _fits(phase: Pass) -> Column:
    """The rows whose pass is feasible."""
    return np.all([excess_share(limit) <= 0.0 for limit in phase.limits.values()], axis=0)


def _at_speeds(
    pools: tuple[PoolRows, PoolRows], limits: Requirements
) -> tuple[tuple[PoolRows, PoolRows], list[Pair]]:
    """The best pairs at TPOT limits from the fastest pass to the one with most tokens per chip."""
    first, second = pools
    time = np.where(_fits(second.phase), second.phase.time, np.inf)
    time = time[undominated_plans(time, time * second.chips / second.sequences)]
    slowest = max(time[0], min(time[-1], limits.tpot))
    first = first.take(_best(first, limits.ttft, limits))
    rows, pairs = list[int](), list[Pair]()
    for tpot in np.asarray(np.geomspace(time[0], slowest, SPEEDS), np.float64):
        some = _best(second, float(tpot), limits, per_size=1, fewer=limits.rate is None)
        at_speed = first, second.take(some)
        combined = _combined(at_speed, limits, 4 * EXACT // SPEEDS, distinct=True)
        pairs += [(i, j + len(rows), x, y) for i, j, x, y in combined]
        rows += some
    return (first, second.take(rows)), pairs


def _best(
    pool: PoolRows,
    longest: Column | float,
    limits: Requirements,
    per_size: int = ROWS_PER_SIZE,
    *,
    fewer: bool = False,
) -> list[int]:
    """For each number of chips, the rows with most requests/s whose pass is within ``longest``.

    If none is, the rows that exceed it least. Of layouts with equal results only the one that
    engines use by default is kept. At least one chip is left to the other pool. ``fewer``: also
    these layouts with fewer sequences, with which prompts wait less.
    """
    excess = np.asarray(pool.phase.time) / longest - 1.0
    for limit in pool.phase.limits.values():
        excess = np.maximum(excess, excess_share(limit))
    chips, rate, index = pool.chips, pool.rate, pool.layout
    fits = chips < limits.chips
    if limits.concurrency is not None:
        fits &= pool.sequences <= limits.concurrency
    unusual = np.array([layout.unusual for layout in pool.layouts])[index]
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
    if not fewer:
        return rows
    columns = len(index) // len(pool.layouts)  # numbers of sequences of each layout

    def lighter(row: int, factor: float) -> int:
        """The row of the same layout with 1 / ``factor`` of its sequences, or with the fewest."""
        start = row - row % columns
        same = pool.sequences[start : start + columns]
        return start + max(int(np.count_nonzero(same <= pool.sequences[row] / factor)) - 1, 0)

    return list(dict.fromkeys(rows + [lighter(row, x) for row in rows for x in FEWER]))


def _combined(
    pools: tuple[PoolRows, PoolRows],
    limits: Requirements,
    count: int = EXACT,
    *,
    distinct: bool = False,
) -> list[Pair]:
    """The cheapest (prefill row, decode row, copies, copies) per request, before the transfer.

    ``distinct``: keep one of each pair of rows and spare factor, because only the transfer and the
    wait decide which of them keep TTFT.
    """
    first, second = pools
    prefill_chips, decode_chips = first.chips[:, None], second.chips
    prefill_rate, decode_rate = first.rate[:, None], second.rate
    columns: list[tuple[Column, ...]] = []
    spares = MORE if limits.rate is None else MORE[:1]
    for j, spare in itertools.product(range(len(decode_rate)), spares):
        x, y = _copies(first, second, j, limits)
        x = np.ceil(x * spare)
        fits = x * prefill_chips + y * decode_chips[j] <= limits.chips
        rate = np.minimum(x * prefill_rate, y * decode_rate[j])
        rent = x * prefill_chips * first.price + y * decode_chips[j] * second.price
        cost = np.where(fits, rent / (rate if limits.rate is None else limits.rate), np.inf)
        # under arrivals a spare instance may be needed to keep TTFT, so all counts are evaluated
        if limits.rate is None and cost.size:
            least = cost.argmin(axis=1)[:, None]
            cost, x, y = (np.take_along_axis(v, least, axis=1) for v in (cost, x, y))
        i, k = np.nonzero(np.isfinite(cost))
        kind = (i * len(decode_rate) + j) * len(MORE) + MORE.index(spare)
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
        # every number up to 1024, with which the ratio of the pools is met within 0.1 %, then 5 %
        # apart up to all that fit
        most = limits.chips // float(second.chips[j])
        y = np.arange(1.0, min(most, SINGLE_STEPS) + 1.0)
        if most > SINGLE_STEPS:
            steps = int(np.ceil(np.log(most / SINGLE_STEPS) / np.log(1.05)))
            y = np.r_[y, np.floor(np.geomspace(SINGLE_STEPS, most, steps + 1)), most]
        y = np.unique(y) * np.ones_like(load)
    balanced = y * second.rate[j] / first.rate[:, None]
    x = np.maximum(np.concatenate([np.floor(balanced), np.ceil(balanced)], axis=1), 1.0)
    return x, np.concatenate([y, y], axis=1)
