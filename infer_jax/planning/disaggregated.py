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

from infer_jax.estimators.disaggregated import Disaggregated
from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.serving import Deployment, Pass, Serving, Shape
from infer_jax.planning.aggregated import Positions, batches, by_rows, degrees, models
from infer_jax.planning.choose import Choice, Requirements, exceeded, undominated_plans
from infer_jax.planning.legal_layouts import Column, Layout
from infer_jax.planning.pool_pairs import EXACT, Pair, PoolRows, Side, choices, evaluated
from infer_jax.specs import Architecture, Arrivals, ForwardPass, Hardware, Workload
from infer_jax.typed_jax import trees

PROMPTS = np.array([1.0, 2.0, 4.0, 8.0])  # prompts of a prefill pass to try
KEPT = 4  # rows of a pool that are combined, for each number of chips
SPEEDS = 32  # limits of TPOT at which a frontier is searched for the best pairs
SPARE = np.array([1.0, 1.1, 1.25, 1.5, 2.0])  # instances to try, over the fewest for the arrivals
# factors to try in a closed loop: prefill instances over the fewest, and the sequences that a
# decode row is evaluated for over those in flight; larger ones shorten the wait of prompts
MORE = (1.0, 1.2, 1.5, 2.0)
EVERY = 1024.0  # every number of instances up to this one is tried
FILLED = 0.9  # least share of the concurrency that a plan has in flight


class PoolCandidates(NamedTuple):
    """Plans within the limits, else the nearest misses; passes that were evaluated."""

    met: list[Choice]
    missed: list[Choice]
    configurations: int


def pool_plans(
    sides: tuple[Side, Side],
    arch: Architecture,
    work: Workload,
    legal: tuple[Sequence[Layout], Sequence[Layout]],
    common: Deployment,
    asked: Requirements,
    count: int = 5,
    draft: Architecture | None = None,
) -> PoolCandidates:
    """The cheapest pairs of pools within the limits, and the nearest misses otherwise.

    ``sides``, ``legal``: system and layouts of the prefill and of the decode pool; ``draft``: the
    draft model of decode layouts with drafts, None for the model's own heads. A frontier consists
    of the best pairs at ``SPEEDS`` limits of TPOT that no other pair beats. Layouts with pipeline
    stages are left out, because vLLM's NixlConnector transfers no caches between stages
    (github.com/vllm-project/vllm, issue 52913 and the open pull request 53360).
    """
    plain = ([x for x in legal[0] if x.pp == 1], [x for x in legal[1] if x.pp == 1])
    if not all(plain):
        return PoolCandidates([], [], 0)
    wrapper = Disaggregated.of(target=sides[0].serving)
    if sides[1] is not sides[0]:
        wrapper = wrapper.replace(decoder=sides[1].serving, decode_hardware=sides[1].hardware)
    fresh = float(np.maximum(work.isl - work.prefix, 1.0))
    grid = (
        _PassGrid(sides[0], plain[0], PROMPTS, fresh, float(work.prefix)),
        _PassGrid(sides[1], plain[1], batches(), 1.0, float(decode_context(work))),
    )
    tokens = max(float(work.osl) - 1.0, 1.0)
    shares = float(wrapper.prefill_share), float(wrapper.decode_share) / tokens
    limits = asked.ttft, asked.tpot
    phases = _answers(grid, models(arch, draft), common)
    if asked.frontier and np.any(_fits(phases[1])):
        pools, pairs = _at_speeds(grid, phases, shares, asked)
    else:
        pools = (
            _best(grid[0], phases[0], limits[0], shares[0], asked),
            _best(grid[1], phases[1], limits[1], shares[1], asked, fewer=asked.rate is None),
        )
        pairs = _combined(pools, asked)
    tried = sum(len(phase.time) for phase in phases)
    if not pairs:
        return PoolCandidates([], [], tried)
    if asked.rate is not None:
        work = work.replace(arrivals=work.arrivals or Arrivals.of(rate=asked.rate))
    answered = evaluated(wrapper, arch, sides, work, common, pools, pairs)
    return PoolCandidates(*choices(sides, pools, pairs, answered, work, asked, count), tried)


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
        both = np.meshgrid(np.arange(len(self.legal)), self.sequences, indexing="ij")
        index, each = (x.ravel() for x in both)
        given = degrees(self.legal, index)
        each = each * given["attention_dp"]
        new, cached = np.full(each.shape, self.new), np.full(each.shape, self.cached)
        return index, given, ForwardPass(sequences=each, new_tokens=new, cached_tokens=cached)  # pyright: ignore[reportArgumentType]


def _answers(
    grid: Sequence[_PassGrid], models: tuple[Shape, Shape | None], common: Deployment
) -> list[Pass]:
    """The passes of both pools, per token with drafts; one program if they share a system."""
    if grid[0].side is not grid[-1].side:
        return [_answers([each], models, common)[0] for each in grid]
    side, rows = grid[0].side, [each.rows[1:] for each in grid]
    together = jax.tree.map(_joined, *rows)
    phases = by_rows(_passes, (side.serving, models, side.hardware, common), *together)
    ends = np.cumsum([0, *(forward.sequences.size for _, forward in rows)])
    return [trees.take(phases, slice(a, b)) for a, b in itertools.pairwise(ends.tolist())]


def _joined(*columns: Column) -> Column:
    return np.concatenate(columns)


def _passes(
    serving: Serving,
    models: tuple[Shape, Shape | None],
    hardware: Hardware,
    common: Deployment,
    given: dict[str, Array],
    passes: ForwardPass,
) -> Pass:
    arch, draft = models

    def one(degrees: dict[str, Array], forward: ForwardPass) -> Pass:
        return serving.token(arch, hardware, forward, common.replace(**degrees), draft)

    return jax.vmap(one)(given, passes)


def _fits(phase: Pass) -> Column:
    """The rows whose pass is feasible."""
    return np.all([exceeded(limit) <= 0.0 for limit in phase.limits.values()], axis=0)


def _at_speeds(
    grid: tuple[_PassGrid, _PassGrid],
    phases: list[Pass],
    shares: tuple[float, float],
    asked: Requirements,
) -> tuple[tuple[PoolRows, PoolRows], list[Pair]]:
    """The best pairs at TPOT limits from the fastest pass to the one with most tokens per chip."""
    fits = _fits(phases[1])
    index, _, forward = grid[1].rows
    chips = np.array([layout.chips for layout in grid[1].legal])[index]
    time = np.where(fits, phases[1].time, np.inf)
    time = time[undominated_plans(time, time * chips / np.asarray(forward.sequences))]
    slowest = max(time[0], min(time[-1], asked.tpot))
    first = _best(grid[0], phases[0], asked.ttft, shares[0], asked)
    seconds: list[PoolRows] = []
    pairs: list[Pair] = []
    rows = 0
    for limit in np.asarray(np.geomspace(time[0], slowest, SPEEDS), np.float64):
        second = _best(grid[1], phases[1], float(limit), shares[1], asked, kept=1)
        combined = _combined((first, second), asked, 4 * EXACT // SPEEDS, apart=True)
        pairs += [(i, j + rows, x, y) for i, j, x, y in combined]
        seconds.append(second)
        rows += len(second.chips)
    return (first, _all_of(seconds)), pairs


def _all_of(pools: Sequence[PoolRows]) -> PoolRows:
    """The rows of several searches of one pool, one after the other."""
    columns = [(one.sequences, one.chips, one.phase, one.rate) for one in pools]
    sequences, chips, phase, rate = jax.tree.map(_joined, *columns)
    layout = list(itertools.chain(*(one.layout for one in pools)))
    return PoolRows(layout, sequences, chips, phase, rate, pools[0].price)


def _best(
    grid: _PassGrid,
    phase: Pass,
    longest: float,
    share: float,
    asked: Requirements,
    kept: int = KEPT,
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
    left = chips < asked.chips
    if asked.concurrency is not None:
        left &= sequences <= asked.concurrency
    unusual = np.array([layout.unusual for layout in legal])[index]
    order = np.lexsort((unusual, np.float32(-rate), np.float32(np.maximum(excess, 0.0))))
    known: dict[float, dict[float, int]] = {}
    rows: list[int] = []
    alike: set[float] = set()
    for row in (int(i) for i in order if left[i]):
        answers, answer = known.setdefault(chips[row], {}), float(np.float32(rate[row]))
        if index[row] in alike or len(answers) == kept:
            continue
        if answers.setdefault(answer, index[row]) == index[row]:
            rows.append(row)
        else:
            alike.add(index[row])
    if fewer:
        rows = list(dict.fromkeys(rows + [_lighter(grid, row, x) for row in rows for x in MORE]))
    price = float(grid.side.hardware.price)
    layout = [legal[int(index[row])] for row in rows]
    return PoolRows(
        layout, sequences[rows], chips[rows], trees.take(phase, rows), rate[rows], price
    )


def _lighter(grid: _PassGrid, row: int, more: float) -> int:
    """The row of the same layout with 1 / ``more`` of its sequences, or with the fewest."""
    layout, place = divmod(row, len(grid.sequences))
    fewer = int(np.count_nonzero(grid.sequences <= grid.sequences[place] / more))
    place = max(fewer - 1, 0)
    return layout * len(grid.sequences) + place


def _combined(
    pools: tuple[PoolRows, PoolRows], asked: Requirements, most: int = EXACT, *, apart: bool = False
) -> list[Pair]:
    """The cheapest (prefill row, decode row, copies, copies) per request, before the transfer.

    ``apart``: keep one of each prefill row and spare factor, because only the transfer and the wait
    decide which of them keep TTFT.
    """
    first, second = pools
    tried: list[tuple[Column, ...]] = []
    spares = MORE if asked.rate is None else MORE[:1]
    for j, spare in itertools.product(range(len(second.chips)), spares):
        x, y = _copies(first, second, j, asked)
        x = np.ceil(x * spare)
        fits = x * first.chips[:, None] + y * second.chips[j] <= asked.chips
        rate = np.minimum(x * first.rate[:, None], y * second.rate[j])
        rent = x * first.chips[:, None] * first.price + y * second.chips[j] * second.price
        cost = np.where(fits, rent / (rate if asked.rate is None else asked.rate), np.inf)
        # under arrivals a spare instance may be needed to keep TTFT, so all counts are evaluated
        if asked.rate is None and cost.size:
            least = cost.argmin(axis=1)[:, None]
            cost, x, y = (np.take_along_axis(v, least, axis=1) for v in (cost, x, y))
        i, k = np.nonzero(np.isfinite(cost))
        each = i * len(MORE) + MORE.index(spare)
        tried.append((cost[i, k], i, np.full(i.shape, j), x[i, k], y[i, k], each))
    if not tried:
        return []
    cost, *pair, each = (np.concatenate(column) for column in zip(*tried, strict=True))
    order = np.lexsort((*pair[::-1], cost))
    if apart:
        order = order[np.sort(np.unique(each[order], return_index=True)[1])]
    i, j, x, y = (column[order[:most]].tolist() for column in pair)
    return list(zip(i, j, x, y, strict=True))


def _copies(
    first: PoolRows, second: PoolRows, j: int, asked: Requirements
) -> tuple[Column, Column]:
    """Instances of both pools worth trying with each prefill row, NaN where none are.

    Numbers that balance the two pools, fit the chips and carry the load.
    """
    if asked.rate is not None:
        x = np.ceil(np.ceil(asked.rate / first.rate)[:, None] * SPARE)
        y = np.unique(np.ceil(np.ceil(asked.rate / second.rate[j]) * SPARE))
        x[:, 1:][np.diff(x) == 0.0] = np.nan
        x, y = np.broadcast_arrays(x[:, :, None], y)
        return x.reshape(len(x), -1), y.reshape(len(y), -1)
    # requests in flight for each decode instance, by Little's law
    each = second.sequences[j] + second.rate[j] * np.asarray(first.phase.time)[:, None]
    if asked.concurrency is not None:
        y = np.floor(asked.concurrency / each)
        y = np.where((y >= 1.0) & (y * each >= FILLED * asked.concurrency), y, np.nan)
    else:
        y = _counts(asked.chips // second.chips[j]) * np.ones_like(each)
    balanced = y * second.rate[j] / first.rate[:, None]
    x = np.maximum(np.concatenate([np.floor(balanced), np.ceil(balanced)], axis=1), 1.0)
    return x, np.concatenate([y, y], axis=1)


def _counts(most: float) -> Column:
    """Numbers of instances to try: every one up to 1024, then 5 % apart up to ``most``.

    With 1024 the ratio of the pools is met within 0.1 %.
    """
    every = np.arange(1.0, min(most, EVERY) + 1.0)
    if most <= EVERY:
        return every
    steps = int(np.ceil(np.log(most / EVERY) / np.log(1.05)))
    return np.unique(np.r_[every, np.floor(np.geomspace(EVERY, most, steps + 1)), most])
