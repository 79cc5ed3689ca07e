"""Rows of estimates as plans: replicas, rent, limits; the cheapest of each layout.

And the rents at which another system would have the first plan, and the request rates at which
another plan would come first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from infer_jax.estimators.estimate import Estimate, Limit
from infer_jax.estimators.known_errors import gap_share
from infer_jax.estimators.serving import ServerEstimate
from infer_jax.planning.choice import Choice, PlanPool, Requirements, Side, undominated_plans
from infer_jax.planning.layout import SLICE, Column, Layout
from infer_jax.specs import Output
from infer_jax.specs.declared_outputs import class_outputs

ALIKE = 0.05  # share of batch and latency within which two ways to deal experts are one plan
ROUNDING = 1.0 - 1e-6  # a number that is an integer except for rounding is not rounded up
Positions = Int[np.ndarray, " rows"]
DOUBLINGS = 4  # of the rate, up and down, within which a change is sought
ACCURACY = 1.01  # ratio of the two rates between which it lies


@dataclass(frozen=True)
class LayoutEstimates:
    """Rows of (layout, batch of one instance) on a system with the estimate of each.

    ``lengths``: mean tokens of prompt and output.
    """

    side: Side
    lengths: tuple[float, float]
    layouts: Sequence[Layout]
    layout: Positions
    batch: Column
    estimates: ServerEstimate

    def at(self, i: int) -> Layout:
        """The layout of a row."""
        return self.layouts[int(self.layout[i])]

    @property
    def chips(self) -> Column:
        """Chips of one instance, by row."""
        return np.asarray(self.estimates.chips)


class PricedTable(NamedTuple):
    """Every row of a table as a plan of a system: as many replicas as are needed or fit.

    ``carried``: requests/s; ``cost``: rent per request; ``excess``: by limit, the share by which
    each row exceeds it, 0 or less where it does not; ``order``: the cheapest first, and after the
    rows within all limits those that exceed some, by how much they do; ``within``: the former.
    """

    table: LayoutEstimates
    replicas: Column
    carried: Column
    cost: Column
    excess: Mapping[str, Column]
    order: Positions
    within: Positions

    def choice(self, i: int) -> Choice:
        """Row ``i`` as a plan."""
        table, estimates, replicas = self.table, self.table.estimates, float(self.replicas[i])
        limits = estimates.decode.limits
        tiers = {x: limits[f"{x} memory"] for x in ("host", "disk") if f"{x} memory" in limits}
        chips, requests = replicas * float(table.chips[i]), float(self.carried[i])
        isl, osl = table.lengths
        return Choice(
            system=table.side.name,
            pools=(PlanPool(table.at(i), replicas, float(table.batch[i])),),
            requests_per_s=requests,
            throughput=requests * osl / chips,
            usd_per_hour=chips * float(table.side.hardware.price),
            isl=isl,
            osl=osl,
            tiers={x: (float(y.need[i]), float(y.capacity[i])) for x, y in tiers.items()},
            **{
                f"{name}_ttft": float(estimates.percentiles[name][i])
                for name in ("p95", "p99")
                if f"{name} of TTFT" in self.excess
            },
            **plan_outputs(estimates, self.excess, i),
        )


def priced(table: LayoutEstimates, limits: Requirements) -> PricedTable:
    """The rows of a table as plans: as many replicas as the traffic needs, or the chips allow."""
    estimates, price = table.estimates, float(table.side.hardware.price)
    rate = np.asarray(estimates.throughput) * table.chips / table.lengths[1]
    if limits.concurrency is not None:
        replicas = np.round(limits.concurrency / table.batch)
    elif limits.rate is not None:
        replicas = np.ceil(limits.rate / np.maximum(rate, 1e-300) * ROUNDING)
    else:
        replicas = np.maximum(np.floor(limits.chips / table.chips), 1.0)
    requests, chips = replicas * rate, replicas * table.chips
    carried = requests if limits.rate is None else np.minimum(requests, limits.rate)
    cost = chips * price / carried
    excess = excess_of(estimates, (chips, table.batch), limits, estimates.decode.limits)
    if limits.rate is not None:
        excess["requests/s"] = limits.rate / np.maximum(requests, 1e-300) * ROUNDING - 1.0
    # by rent per token at full load; ties by speed, then the layout that engines use by default
    unusual = np.array([layout.unusual for layout in table.layouts])[table.layout]
    worst = worst_of(excess)
    order = np.lexsort((unusual, *(np.float32(x) for x in (estimates.tpot, cost, worst))))
    within = order[worst[order] <= 0.0]
    return PricedTable(table, replicas, carried, cost, excess, order, within)


def choices(
    table: LayoutEstimates, limits: Requirements, count: int = 5
) -> tuple[list[Choice], list[Choice]]:
    """The cheapest plans within the limits, one a layout, and the nearest misses otherwise.

    Or all plans within the limits that no other beats in both TPOT and dollars, fastest first. A
    plan is as many replicas as the traffic needs, or as the chips allow.
    """
    rows = priced(table, limits)
    if limits.frontier:
        within, tpot = rows.within, np.asarray(table.estimates.tpot)
        met = within[undominated_plans(tpot[within], rows.cost[within])].tolist()
    else:
        met = first_of_each(table, rows.within, count)
    missed = [] if met else first_of_each(table, rows.order, count)
    return [rows.choice(i) for i in met], [rows.choice(i) for i in missed]


def excess_of(
    estimate: Estimate,
    sizes: tuple[Column, Column],
    limits: Requirements,
    capacities: Mapping[str, Limit],
) -> dict[str, Column]:
    """By limit, the share by which each row exceeds it; 0 or less where it does not.

    ``sizes``: chips in all, and requests in flight of an instance.
    """
    chips, load = sizes
    slow, late = limits.factors(load)
    excess = {
        "TTFT": late * np.asarray(estimate.ttft) / limits.ttft - 1.0,
        "TPOT": slow * np.asarray(estimate.tpot) / limits.tpot - 1.0,
        "GPUs": chips / limits.chips - 1.0,
    }
    percentiles = estimate.percentiles if isinstance(estimate, ServerEstimate) else {}
    for name, limit in limits.tails.items():
        if name in percentiles and (name == "p99" or limit < np.inf):  # others where asked for
            excess[f"{name} of TTFT"] = late * np.asarray(percentiles[name]) / limit - 1.0
    return excess | {name: excess_share(limit) for name, limit in capacities.items()}


def excess_share(limit: Limit) -> Column:
    """The share by which the need exceeds the capacity, row by row; 0 where it does not."""
    need, capacity = np.asarray(limit.need), np.asarray(limit.capacity)
    return np.where(need > capacity, need / np.maximum(capacity, 1e-300) - 1.0, 0.0)


def worst_of(excess: Mapping[str, Column]) -> Column:
    """The share by which each row exceeds the limit that it exceeds most; 0 where it meets all."""
    return np.max([np.maximum(x, 0.0) for x in excess.values()], axis=0)


def plan_outputs(
    estimate: Estimate,
    excess: Mapping[str, Column],
    row: int,
    more: Mapping[Output, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """What a ``Choice`` has of one row of an estimate: outputs, with ``more``, exceeded limits."""
    terms = {name: float(term[row]) for name, term in estimate.decode.terms.items()}
    columns = {x: getattr(estimate, x.name) for x in class_outputs((type(estimate),), "plan")}
    others = {x: float(v[row]) for x, v in columns.items() if x.name not in ("ttft", "tpot")}
    limits = estimate.decode.limits
    memory, spare, arrivals = limits["memory"], float("inf"), limits.get("arrivals")
    if arrivals is not None:  # capacity over load; infinite in a closed loop
        spare = float(arrivals.capacity[row] / max(float(arrivals.need[row]), 1e-300))
    return {
        "ttft": float(estimate.ttft[row]),
        "tpot": float(estimate.tpot[row]),
        "outputs": {**others, **more},
        "binds": max(terms, key=lambda name: terms[name]),
        "memory": (float(memory.need[row]), float(memory.capacity[row])),
        "excess": {name: float(x[row]) for name, x in excess.items() if x[row] > 0.0},
        "spare": spare,
        "gaps": gap_share(terms),
    }


def first_of_each(table: LayoutEstimates, order: Iterable[int], count: int) -> list[int]:
    """The first rows of ``order``, one per layout, and one of layouts with equal results.

    A layout with the result of an earlier one is dropped at all of its batches; so is one that
    deals experts otherwise and answers within ``ALIKE`` of it.
    """
    degrees: set[Layout] = set()
    answers: set[tuple[float, float, float]] = set()
    by_experts: dict[Layout, list[tuple[float, float]]] = {}
    first: list[int] = []
    for i in (int(i) for i in order):
        instance = table.at(i).plain
        if instance in degrees:
            continue
        degrees.add(instance)
        latency = float(np.float32(table.estimates.latency[i]))
        answer = (float(table.chips[i]), float(table.batch[i]), latency)
        if answer in answers:
            continue
        answers.add(answer)
        others = by_experts.setdefault(instance._replace(ep=1.0), [])
        if any(np.allclose(answer[1:], other, rtol=ALIKE) for other in others):
            continue
        others.append(answer[1:])
        first.append(i)
        if len(first) == count:
            break
    return first


class BreakEven(NamedTuple):
    """The cheapest plan of another system, and the rents, USD per hour of a chip, that decide.

    ``rent``: of its system now; ``below``: under which it comes first, all other rents held;
    ``equal``: at which it costs as much as the first plan by prediction, which is the same unless
    one of them was never measured; ``above``: of the first plan's system, over which it comes
    first.
    """

    choice: Choice
    rent: float
    below: float
    equal: float
    above: float


def break_evens(
    first: Choice, plans: Iterable[Choice], rents: Mapping[str, float]
) -> list[BreakEven]:
    """The plan of each other system that would come first at another rent, the nearest one first.

    The dollars of a plan are linear in the rent of its system and all plans of a system move
    together, so the rents are exact: rent * (dollars of the first) / (dollars of the other). Plans
    that stand lower for another reason than dollars come first at no rent, and those of two
    systems have no single one: with such plans there is no answer.
    """
    plans = [*plans]
    if not all(c.system in rents and c.usd_per_mtok > 0.0 for c in (first, *plans)):
        return []
    cheapest: dict[str, Choice] = {}
    for c in sorted(plans, key=lambda c: c.rank):
        if c.system != first.system and c.rank[:2] == first.rank[:2]:
            cheapest.setdefault(c.system, c)

    def against(c: Choice) -> BreakEven:
        now, own = rents[c.system], rents[first.system]
        ratio, slow = first.usd_per_mtok / c.usd_per_mtok, first.slow / c.slow
        return BreakEven(c, now, now * ratio * slow, now * ratio, own / (ratio * slow))

    return sorted(map(against, cheapest.values()), key=lambda x: x.above)


def machines_of(c: Choice, sides: Sequence[Side]) -> tuple[float, float]:
    """GPUs of the fewest machines that hold a plan, and its dollars per million tokens with all.

    ``sides``: its one or two systems. A slice, or a GPU of unknown machines, is rented as it is.
    """
    used = dict.fromkeys((side.name for side in sides), 0.0)
    for pool, side in zip(c.pools, (sides[0], sides[-1]), strict=False):
        used[side.name] += pool.copies * pool.layout.chips
    size = {x.name: 1 if x.machine == SLICE else x.machine for x in sides}
    rent = {x.name: float(x.hardware.price) for x in sides}
    whole = {x: float(np.ceil(n / size[x])) * size[x] for x, n in used.items()}
    paid, every = (sum(n[x] * rent[x] for x in n) for n in (used, whole))
    return sum(whole.values()), c.usd_per_mtok * every / max(paid, 1e-300)


class RateChange(NamedTuple):
    """A rate with another first plan, None where none meets every limit; and one with the same.

    Requests per second. The change lies between ``same`` and ``rate``; between them and the asked
    rate others may come first for a while, as replicas are whole.
    """

    rate: float
    same: float
    choice: Choice | None


def rate_changes(
    best: Callable[[float], Choice | None], asked: float, first: Choice
) -> Iterator[RateChange]:
    """The nearest change above the asked rate and below it, by doubling and then by bisection.

    ``best``: the first plan at a rate, of which ``first`` is that at the ``asked`` one. Another
    number of the same instances is no change.
    """
    for step in (2.0, 0.5):
        same, rate, choice = asked, asked, first
        for _ in range(DOUBLINGS):
            same, rate = rate, rate * step
            choice = best(rate)
            if _kind(choice) != _kind(first):
                break
        else:
            continue
        while max(rate, same) > ACCURACY * min(rate, same):
            middle = (rate * same) ** 0.5
            between = best(middle)
            if _kind(between) == _kind(first):
                same = middle
            else:
                rate, choice = middle, between
        yield RateChange(rate, same, choice)


def _kind(choice: Choice | None) -> object:
    """What two plans have in common that differ in the number of their instances."""
    return choice and (choice.system, choice.formats, *(pool.layout for pool in choice.pools))
