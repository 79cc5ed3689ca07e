"""Estimates of pairs of pools with their transfer, as plans with their rent and energy."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.estimate import Estimate
from infer_jax.estimators.serving import Deployment, Pass, ServerEstimate
from infer_jax.physics.energy import Draw, power_at
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
from infer_jax.planning.pricing import Positions, exceeded, plan_outputs, worst_of
from infer_jax.specs import Architecture, Hardware, Plan, Workload, output
from infer_jax.typed_jax import trees


class PoolRows(NamedTuple):
    """A pool's best rows: layout, sequences, chips, pass and requests/s of an instance."""

    layout: Sequence[Layout]
    sequences: Column
    chips: Column
    phase: Pass
    rate: Column
    price: float


Pair = tuple[int, int, float, float]  # rows of both pools, and instances of each
End = tuple[dict[str, Array], Array, Array, Pass]  # degrees, instances, sequences in one, its pass
Board = tuple[Array, Draw]  # board power of a chip, and the shares of it that it draws


def joined_pools(sides: Sequence[Side]) -> Disaggregated:
    """The estimator of pools that prefill on the first system and decode on the last."""
    first, last = sides[0], sides[-1]
    wrapper = Disaggregated.of(target=first.serving)
    if last is first:
        return wrapper
    return wrapper.replace(decoder=last.serving, decode_hardware=last.hardware)


class PricedPairs(NamedTuple):
    """Pairs with their pools, requests/s, dollars per hour, and joules per request by side."""

    sides: Sequence[Side]
    pools: tuple[PoolRows, PoolRows]
    pairs: Sequence[Pair]
    estimate: Estimate
    rate: Column
    rent: Column
    joules: tuple[Column, Column]
    excess: Mapping[str, Column]
    work: Workload

    def pools_of(self, k: int) -> tuple[PlanPool, PlanPool]:
        """The instances of pair ``k``."""
        i, j, x, y = self.pairs[k]
        first, second = self.pools
        return (
            PlanPool(first.layout[i], x, float(first.sequences[i])),
            PlanPool(second.layout[j], y, float(second.sequences[j])),
        )

    def choice(self, k: int) -> Choice:
        """Pair ``k`` as a plan."""
        isl, osl, prefix = (float(n) for n in (self.work.isl, self.work.osl, self.work.prefix))
        prompts, tokens = (float(joules[k]) for joules in self.joules)
        joules = {
            output(ServerEstimate, "input_energy"): prompts / max(isl - prefix, 1.0),
            output(ServerEstimate, "energy"): tokens / osl,
            output(ServerEstimate, "blended_energy"): (prompts + tokens) / (isl + osl),
        }
        return Choice(
            system=" > ".join(dict.fromkeys(side.name for side in self.sides)),
            pools=self.pools_of(k),
            requests_per_s=float(self.rate[k]),
            throughput=float(self.rate[k]) * osl / float(self.estimate.chips[k]),
            usd_per_hour=float(self.rent[k]),
            isl=isl,
            osl=osl,
            **plan_outputs(self.estimate, self.excess, k, joules),
        )


def priced_pairs(
    space: PlanSpace,
    wrapper: Disaggregated,
    pools: tuple[PoolRows, PoolRows],
    pairs: Sequence[Pair],
) -> PricedPairs:
    """Every pair of pools with its transfer, its rent and the limits that it exceeds."""
    i, j, x, y = (np.array(column) for column in zip(*pairs, strict=True))
    ends = [_end(pools[0], i, x), _end(pools[1], j, y)]
    sides, work, limits = (space.sides[0], space.sides[-1]), space.work, space.requirements
    boards = [(side.hardware.power, side.serving.draw) for side in sides]
    fixed = (wrapper, space.arch, sides[0].hardware, work, space.common, boards)
    estimate, watts = by_rows(_evaluate_pairs, fixed, *ends)
    rent = x * pools[0].chips[i] * pools[0].price + y * pools[1].chips[j] * pools[1].price
    requests = np.asarray(estimate.throughput) * np.asarray(estimate.chips) / float(work.osl)
    joules = MILLION * np.asarray(watts[0]) / requests, MILLION * np.asarray(watts[1]) / requests
    prefill = {f"prefill {name}": limit for name, limit in estimate.prefill.limits.items()}
    excess = {
        "TTFT": np.asarray(estimate.ttft) / limits.ttft - 1.0,
        "TPOT": np.asarray(estimate.tpot) / limits.tpot - 1.0,
        "GPUs": np.asarray(estimate.chips) / limits.chips - 1.0,
    }
    both = {**estimate.decode.limits, **prefill}
    excess |= {name: exceeded(limit) for name, limit in both.items()}
    rate = requests if limits.rate is None else np.minimum(requests, limits.rate)
    return PricedPairs(sides, pools, pairs, estimate, rate, rent, joules, excess, work)


def _end(pool: PoolRows, rows: Positions, copies: Column) -> tuple[object, ...]:
    """One pool of each pair: degrees, instances, sequences in one, its pass."""
    return degrees(pool.layout, rows), copies, pool.sequences[rows], trees.take(pool.phase, rows)


def _evaluate_pairs(
    wrapper: Disaggregated,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    common: Deployment,
    boards: Sequence[Board],
    *ends: End,
) -> tuple[Estimate, tuple[Array, Array]]:
    """Estimates of pairs of pools; watts of each pool, building included."""

    def estimate(*pair: End) -> tuple[Estimate, tuple[Array, Array]]:
        first, second = pair
        pools = Pools(
            prefill=common.replace(**first[0]),
            decode=common.replace(**second[0]),
            prefill_copies=first[1],
            decode_copies=second[1],
            prefill_batch=first[2],
        )
        requests = work.replace(batch=second[2])
        estimate = wrapper.joined(arch, hardware, requests, pools, (first[3], second[3]))
        rate = estimate.throughput * estimate.chips / work.osl
        prompts = _watts(first, pools.prefill, rate, boards[0])
        tokens = _watts(second, pools.decode, rate * (work.osl - 1.0), boards[1])
        return estimate, (prompts, tokens)

    return jax.vmap(estimate)(*ends)


def _watts(end: End, plan: Plan, passes: Array, board: Board) -> Array:
    """Watts of a pool that finishes ``passes`` a second, counted once for every sequence."""
    _, copies, sequences, phase = end
    power, draw = board
    rate = passes / sequences / copies  # passes a second of an instance
    return copies * plan.instance * power_at(power, phase, rate, draw) * draw.pue


def cheapest_pairs(
    pairs: PricedPairs, limits: Requirements, count: int
) -> tuple[list[Choice], list[Choice]]:
    """The cheapest pairs within the limits, one a layout, and the nearest misses otherwise.

    Or all pairs within the limits that no other beats in both TPOT and dollars. One of pairs that
    differ by less than the estimator's errors is taken.
    """
    estimate, cost, worst = pairs.estimate, pairs.rent / pairs.rate, worst_of(pairs.excess)
    fits = np.flatnonzero(worst <= 0.0)
    if limits.frontier and len(fits):
        rows = fits[undominated_plans(np.asarray(estimate.tpot)[fits], cost[fits])]
        return [pairs.choice(int(k)) for k in rows], []
    columns = [np.asarray(key, np.float32) for key in (estimate.ttft, estimate.tpot, cost, worst)]
    plans: dict[str, Choice] = {}
    seen: set[tuple[float | str, ...]] = set()
    for k in (int(k) for k in np.lexsort(columns)):
        if len(plans) == count or worst[k] > 0.0 >= worst.min():
            break
        chips, ttft = float(estimate.chips[k]), f"{estimate.ttft[k]:.3g}"
        answer = (chips, ttft, *(float(column[k]) for column in columns[1:]))
        name = " > ".join(map(str, pairs.pools_of(k)))
        if name not in plans and answer not in seen:
            plans[name] = pairs.choice(k)
        seen.add(answer)
    return (list(plans.values()), []) if worst.min() <= 0.0 else ([], list(plans.values()))
