"""Estimates of pairs of pools with their transfer, as plans with their rent and energy."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.estimate import Estimate
from infer_jax.estimators.serving import Deployment, Pass, ServerEstimate
from infer_jax.physics.cost import Draw, power_at
from infer_jax.planning.choice import (
    MILLION,
    Choice,
    PlanPool,
    PlanSpace,
    Requirements,
    Side,
    undominated_plans,
)
from infer_jax.planning.instances import by_rows, degrees
from infer_jax.planning.layout import Column, Layout
from infer_jax.planning.pricing import Positions, excess_of, plan_outputs, worst_of
from infer_jax.specs import Architecture, Hardware, Workload, output
from infer_jax.typed_jax import trees

Pair = tuple[int, int, float, float]  # rows of both pools, and instances of each
End = tuple[dict[str, Array], Array, Array, Pass]  # degrees, instances, sequences in one, its pass
Board = tuple[Array, Draw]  # board power of a chip, and the shares of it that it draws
PairDegrees = tuple[dict[str, Array], dict[str, Array]]
Copies = tuple[Array, Array]  # instances of both pools
Fixed = tuple[Disaggregated, Architecture, Hardware, Workload, Deployment, Sequence[Board]]


class PoolRows(NamedTuple):
    """Rows of one pool: layout by number, sequences and pass of an instance.

    ``share``: requests of a sequence that finishes a pass, less the idle time of the pool.
    """

    side: Side
    share: float
    layouts: Sequence[Layout]
    layout: Positions
    sequences: Column
    phase: Pass

    @property
    def chips(self) -> Column:
        """Chips of an instance, by row."""
        return np.array([layout.chips for layout in self.layouts])[self.layout]

    @property
    def price(self) -> float:
        """Rent of a chip, USD per hour."""
        return float(self.side.hardware.price)

    @property
    def rate(self) -> Column:
        """Requests per second of an instance, by row."""
        return self.sequences / np.asarray(self.phase.time) * self.share

    def take(self, rows: list[int] | Positions) -> "PoolRows":
        """The chosen rows."""
        columns = self.layout[rows], self.sequences[rows], trees.take(self.phase, rows)
        return PoolRows(self.side, self.share, self.layouts, *columns)

    def pool(self, row: int, copies: float) -> PlanPool:
        """Instances of one row."""
        return PlanPool(self.layouts[self.layout[row]], copies, float(self.sequences[row]))


class PricedPairs(NamedTuple):
    """Pairs with their pools, requests/s, dollars per hour, and joules per request by side."""

    space: PlanSpace
    pools: tuple[PoolRows, PoolRows]
    pairs: Sequence[Pair]
    estimate: Estimate
    rate: Column
    rent: Column
    joules: tuple[Column, Column]
    excess: Mapping[str, Column]

    def choice(self, k: int) -> Choice:
        """Pair ``k`` as a plan."""
        (i, j, x, y), (first, second), work = self.pairs[k], self.pools, self.space.work
        isl, osl, prefix = (float(n) for n in (work.isl, work.osl, work.prefix))
        prompts, tokens = (float(joules[k]) for joules in self.joules)
        joules = {
            output(ServerEstimate, "input_energy"): prompts / max(isl - prefix, 1.0),
            output(ServerEstimate, "energy"): tokens / osl,
            output(ServerEstimate, "blended_energy"): (prompts + tokens) / (isl + osl),
        }
        return Choice(
            system=" > ".join(dict.fromkeys((first.side.name, second.side.name))),
            pools=(first.pool(i, x), second.pool(j, y)),
            requests_per_s=float(self.rate[k]),
            throughput=float(self.rate[k]) * osl / float(self.estimate.chips[k]),
            usd_per_hour=float(self.rent[k]),
            isl=isl,
            osl=osl,
            **plan_outputs(self.estimate, self.excess, k, joules),
        )

    def cheapest(self, limits: Requirements, count: int) -> tuple[list[Choice], list[Choice]]:
        """The cheapest pairs within the limits, one a layout, and the nearest misses otherwise.

        Or all pairs within the limits that no other beats in both TPOT and dollars. One of pairs
        that differ by less than the estimator's errors is taken.
        """
        estimate, cost, worst = self.estimate, self.rent / self.rate, worst_of(self.excess)
        fits = np.flatnonzero(worst <= 0.0)
        if limits.frontier and len(fits):
            rows = fits[undominated_plans(np.asarray(estimate.tpot)[fits], cost[fits])]
            return [self.choice(int(k)) for k in rows], []
        columns = [np.asarray(x, np.float32) for x in (estimate.ttft, estimate.tpot, cost, worst)]
        plans: dict[str, Choice] = {}
        answers: set[tuple[float | str, ...]] = set()
        for k in (int(k) for k in np.lexsort(columns)):
            if len(plans) == count or worst[k] > 0.0 >= worst.min():
                break
            chips, ttft = float(estimate.chips[k]), f"{estimate.ttft[k]:.3g}"
            answer = (chips, ttft, *(float(column[k]) for column in columns[1:]))
            i, j, x, y = self.pairs[k]
            name = f"{self.pools[0].pool(i, x)} > {self.pools[1].pool(j, y)}"
            if name not in plans and answer not in answers:
                plans[name] = self.choice(k)
            answers.add(answer)
        return (list(plans.values()), []) if worst.min() <= 0.0 else ([], list(plans.values()))


def priced_pairs(
    space: PlanSpace,
    wrapper: Disaggregated,
    pools: tuple[PoolRows, PoolRows],
    pairs: Sequence[Pair],
) -> PricedPairs:
    """Every pair of pools with its transfer, its rent and the limits that it exceeds."""
    i, j, x, y = (np.array(column) for column in zip(*pairs, strict=True))
    work, limits = space.work, space.requirements
    chosen = pools[0].take(i), pools[1].take(j)
    ends = [
        (degrees(pool.layouts, pool.layout), copies, pool.sequences, pool.phase)
        for pool, copies in zip(chosen, (x, y), strict=True)
    ]
    boards = [(pool.side.hardware.power, pool.side.serving.draw) for pool in pools]
    fixed = (wrapper, space.arch, pools[0].side.hardware, work, space.common, boards)
    estimate, watts = by_rows(pair_estimates, (fixed,), *ends)
    rent = x * chosen[0].chips * pools[0].price + y * chosen[1].chips * pools[1].price
    chips = np.asarray(estimate.chips)
    requests = np.asarray(estimate.throughput) * chips / float(work.osl)
    joules = MILLION * np.asarray(watts[0]) / requests, MILLION * np.asarray(watts[1]) / requests
    prefill = {f"prefill {name}": limit for name, limit in estimate.prefill.limits.items()}
    sizes = chips, chosen[1].sequences
    excess = excess_of(estimate, sizes, limits, {**estimate.decode.limits, **prefill})
    rate = requests if limits.rate is None else np.minimum(requests, limits.rate)
    return PricedPairs(space, pools, pairs, estimate, rate, rent, joules, excess)


def joined_pools(sides: Sequence[Side]) -> Disaggregated:
    """The estimator of pools that prefill on the first system and decode on the last."""
    first, last = sides[0], sides[-1]
    wrapper = Disaggregated.of(target=first.serving)
    if last is first:
        return wrapper
    return wrapper.replace(decoder=last.serving, decode_hardware=last.hardware)


def deployed_pools(
    common: Deployment, degrees: PairDegrees, copies: Copies, prompts: Array
) -> Pools:
    """Two pools: degrees and instances of each, and prompts of a prefill pass."""
    prefill, decode = (common.replace(**own) for own in degrees)
    return Pools(
        prefill=prefill, decode=decode, prefill_copies=copies[0], decode_copies=copies[1],
        prefill_batch=prompts,
    )  # fmt: skip


def pair_estimates(fixed: Fixed, *ends: End) -> tuple[Estimate, tuple[Array, Array]]:
    """Estimates of pairs of pools; watts of each pool, building included."""
    wrapper, arch, hardware, work, common, boards = fixed

    def watts(copies: Array, chips: Array, phase: Pass, passes: Array, board: Board) -> Array:
        """Watts of a pool whose instances finish ``passes`` a second each."""
        power, draw = board
        return copies * chips * power_at(power, phase, passes, draw) * draw.pue

    def estimate(*pair: End) -> tuple[Estimate, tuple[Array, Array]]:
        (first, copies, prompts, prefill), (second, others, batch, decode) = pair
        pools = deployed_pools(common, (first, second), (copies, others), prompts)
        requests = work.replace(batch=batch)
        estimate = wrapper.joined(arch, hardware, requests, pools, (prefill, decode))
        rate = estimate.throughput * estimate.chips / work.osl
        # a pass is counted once for every sequence in it
        fed, decoded = rate / prompts / copies, rate * (work.osl - 1.0) / batch / others
        return estimate, (
            watts(copies, pools.prefill.instance, prefill, fed, boards[0]),
            watts(others, pools.decode.instance, decode, decoded, boards[1]),
        )

    return jax.vmap(estimate)(*ends)
