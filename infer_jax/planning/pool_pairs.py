"""Estimates of pairs of pools, with the cost and energy of the input and the output side."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.estimate import Estimate
from infer_jax.estimators.serving import Deployment, Pass, ServerEstimate, Serving
from infer_jax.physics.energy import Draw, power_at
from infer_jax.planning.aggregated import Positions, by_rows
from infer_jax.planning.choose import (
    MILLION,
    Choice,
    Requirements,
    answers,
    exceeded,
    undominated_plans,
    worst_of,
)
from infer_jax.planning.legal_layouts import Column, Layout
from infer_jax.specs import Architecture, Hardware, Plan, Workload, output
from infer_jax.typed_jax import trees

EXACT = 4096  # combinations that are evaluated with the transfer between the pools


class Side(NamedTuple):
    """A pool's system, the model of it, and the chips of one machine: 1 where that is not known.

    ``starts``: whether the engine starts a layout alone ("") or as a "prefill" or "decode" pool;
    None: every legal one.
    """

    name: str
    hardware: Hardware
    serving: Serving
    machine: int = 1
    starts: Callable[[Layout, str], bool] | None = None

    def startable(self, legal: list[Layout], role: str = "") -> list[Layout]:
        """The layouts that the engine starts; all of them where it starts none on this chip."""
        if self.starts is None:
            return legal
        return [layout for layout in legal if self.starts(layout, role)] or legal


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


class PairEstimates(NamedTuple):
    """Estimates of pairs of pools; watts of each pool, building included."""

    estimate: Estimate
    watts: tuple[Array, Array]


def evaluated(
    wrapper: Disaggregated,
    arch: Architecture,
    sides: tuple[Side, Side],
    work: Workload,
    common: Deployment,
    pools: tuple[PoolRows, PoolRows],
    pairs: Sequence[Pair],
) -> PairEstimates:
    """Every pair of pools with its transfer."""
    columns = [np.array(column) for column in zip(*pairs, strict=True)]
    ends = [_end(*each) for each in zip(pools, columns[:2], columns[2:], strict=True)]
    boards = [(side.hardware.power, side.serving.draw) for side in sides]
    return by_rows(_pairs, (wrapper, arch, sides[0].hardware, work, common, boards), *ends)


def _end(pool: PoolRows, row: Positions, copies: Column) -> tuple[object, ...]:
    """One pool of each pair: degrees, instances, sequences in one, its pass."""
    degrees = np.asarray(pool.layout, np.float64)[row].T
    named = dict(zip(Layout._fields, degrees, strict=True))
    return named, copies, pool.sequences[row], trees.take(pool.phase, row)


def _pairs(
    wrapper: Disaggregated,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    common: Deployment,
    boards: Sequence[Board],
    *ends: End,
) -> PairEstimates:
    def one(*pair: End) -> PairEstimates:
        first, second = pair
        pools = Pools(
            prefill=common.replace(**first[0]),
            decode=common.replace(**second[0]),
            prefill_copies=first[1],
            decode_copies=second[1],
            prefill_batch=first[2],
        )
        asked = work.replace(batch=second[2])
        estimate = wrapper.joined(arch, hardware, asked, pools, (first[3], second[3]))
        rate = estimate.throughput * estimate.chips / work.osl
        prompts = _watts(first, pools.prefill, rate, boards[0])
        tokens = _watts(second, pools.decode, rate * (work.osl - 1.0), boards[1])
        return PairEstimates(estimate, (prompts, tokens))

    return jax.vmap(one)(*ends)


def _watts(end: End, plan: Plan, passes: Array, board: Board) -> Array:
    """Watts of a pool that finishes ``passes`` a second, counted once for every sequence."""
    _, copies, sequences, phase = end
    most, draw = board
    rate = passes / sequences / copies  # passes a second of an instance
    return copies * plan.instance * power_at(most, phase, rate, draw) * draw.pue


class _Priced(NamedTuple):
    """Pairs with their pools, requests/s, dollars per hour, and joules per request by side."""

    sides: tuple[Side, Side]
    pools: tuple[PoolRows, PoolRows]
    pairs: Sequence[Pair]
    estimate: Estimate
    rate: Column
    rent: Column
    joules: tuple[Column, Column]
    excess: Mapping[str, Column]
    work: Workload

    def name(self, k: int) -> str:
        """The layouts of both pools, in words."""
        i, j, x, y = self.pairs[k]
        return f"{x:g} x {self.pools[0].layout[i]} > {y:g} x {self.pools[1].layout[j]}"

    def choice(self, k: int) -> Choice:
        """Pair ``k`` as a plan."""
        i, j, x, y = self.pairs[k]
        first, second = self.pools
        isl, osl, prefix = (float(n) for n in (self.work.isl, self.work.osl, self.work.prefix))
        into, out = (float(joules[k]) for joules in self.joules)
        batch = float(first.sequences[i])
        joules = {
            output(ServerEstimate, "input_energy"): into / max(isl - prefix, 1.0),
            output(ServerEstimate, "energy"): out / osl,
            output(ServerEstimate, "blended_energy"): (into + out) / (isl + osl),
        }
        return Choice(
            mode="disaggregated",
            system=" > ".join(dict.fromkeys(side.name for side in self.sides)),
            layout=self.name(k),
            degrees={
                "prefill": {**first.layout[i].degrees, "instances": x, "batch": batch},
                "decode": {**second.layout[j].degrees, "instances": y},
            },
            batch=float(second.sequences[j]),
            chips=float(self.estimate.chips[k]),
            requests_per_s=float(self.rate[k]),
            usd_per_hour=float(self.rent[k]),
            isl=isl,
            osl=osl,
            **answers(self.estimate, self.excess, k, joules),
        )


def choices(
    sides: tuple[Side, Side],
    pools: tuple[PoolRows, PoolRows],
    pairs: Sequence[Pair],
    answered: PairEstimates,
    work: Workload,
    asked: Requirements,
    count: int,
) -> tuple[list[Choice], list[Choice]]:
    """The cheapest pairs within the limits, one a layout, and the nearest misses otherwise.

    Or all pairs within the limits that no other beats in both TPOT and dollars.
    """
    estimate = answered.estimate
    i, j, x, y = (np.array(column) for column in zip(*pairs, strict=True))
    rent = x * pools[0].chips[i] * pools[0].price + y * pools[1].chips[j] * pools[1].price
    requests = np.asarray(estimate.throughput) * np.asarray(estimate.chips) / float(work.osl)
    into, out = (MILLION * np.asarray(watts) / requests for watts in answered.watts)
    rate = requests if asked.rate is None else np.minimum(requests, asked.rate)
    excess = _excess(estimate, asked)
    priced = _Priced(sides, pools, pairs, estimate, rate, rent, (into, out), excess, work)
    worst = worst_of(excess)
    fits = np.flatnonzero(worst <= 0.0)
    if asked.frontier and len(fits):
        rows = fits[undominated_plans(np.asarray(estimate.tpot)[fits], (rent / rate)[fits])]
        return [priced.choice(int(k)) for k in rows], []
    plans = _first_of_each(priced, worst, count)
    return (plans, []) if worst.min() <= 0.0 else ([], plans)


def _excess(estimate: Estimate, asked: Requirements) -> dict[str, Column]:
    """By limit, the share by which each pair exceeds it; 0 or less where it does not."""
    prefill = {f"prefill {name}": limit for name, limit in estimate.prefill.limits.items()}
    limits = {**estimate.decode.limits, **prefill}
    return {
        "TTFT": np.asarray(estimate.ttft) / asked.ttft - 1.0,
        "TPOT": np.asarray(estimate.tpot) / asked.tpot - 1.0,
        "GPUs": np.asarray(estimate.chips) / asked.chips - 1.0,
        **{name: exceeded(limit) for name, limit in limits.items()},
    }


def _first_of_each(priced: _Priced, worst: Column, count: int) -> list[Choice]:
    """The first pairs by excess over limits, dollars and latencies: one of each layout."""
    estimate = priced.estimate
    keys = (estimate.ttft, estimate.tpot, priced.rent / priced.rate, worst)
    columns = [np.asarray(key, np.float32) for key in keys]
    plans: dict[str, Choice] = {}
    seen: set[tuple[float | str, ...]] = set()
    for k in (int(k) for k in np.lexsort(columns)):
        if len(plans) == count or worst[k] > 0.0 >= worst.min():
            break
        # one of pairs that differ by less than the estimator's errors is shown
        chips, ttft = float(estimate.chips[k]), f"{estimate.ttft[k]:.3g}"
        alike = (chips, ttft, *(float(column[k]) for column in columns[1:]))
        name = priced.name(k)
        if name not in plans and alike not in seen:
            plans[name] = priced.choice(k)
        seen.add(alike)
    return list(plans.values())
