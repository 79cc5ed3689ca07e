"""The cheapest plans within the limits, or the nearest misses if there are none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypedDict

import numpy as np

from infer_jax.estimators.estimate import Estimate, Limit
from infer_jax.physics.pareto import undominated
from infer_jax.planning.aggregated import LayoutEstimates, Positions
from infer_jax.planning.legal_layouts import Column, Layout
from infer_jax.specs import Output, outputs

HOUR, MILLION = 3600.0, 1e6
# seconds, where no limit of TTFT is given: without one the cheapest plans have a TTFT of many
USUAL_TTFT = 2.0
ALIKE = 0.05  # share of batch and latency within which two ways to deal experts are one plan
# parallel degrees and counts by name; for two pools one such mapping for "prefill" and "decode"
Degrees = Mapping[str, float | Mapping[str, float]]


@dataclass(frozen=True)
class Requirements:
    """The requirements of a plan: limits in seconds, chips in all, and the load.

    ``concurrency``: requests in flight over all replicas, in rows of ``shares``; or
    ``rate``: requests per second; or neither, and the chips are filled. ``frontier``: find all
    plans that no other beats in both TPOT and dollars, not only the cheapest. ``usual_ttft``:
    without a limit of TTFT, keep it within ``USUAL_TTFT`` if any plan does.
    """

    ttft: float = np.inf
    tpot: float = np.inf
    p99_ttft: float = np.inf
    chips: float = np.inf
    concurrency: float | None = None
    rate: float | None = None
    frontier: bool = False
    usual_ttft: bool = False


@dataclass(frozen=True, repr=False)
class Choice:
    """One plan with its latencies, throughput and cost.

    ``layout``: the layout of an instance in words, ``degrees`` in numbers; ``batch``: requests in
    flight in an instance (of two pools: in a decode instance); ``outputs``: the outputs of its
    estimate that plans show, in their declared units; ``binds``: the longest term of a token;
    ``memory``: bytes of a chip, needed and available; ``tiers``: the same of host and disk;
    ``excess``: by limit, the share by which it is exceeded, empty where all are met; ``formats``:
    of the model, if the caller says which; ``holds``: the probability that all limits hold, if it
    was asked for; ``obstacle``: why no command of the engine starts it, "" where one does;
    ``spare``: the request rate that it carries over the one that arrives; ``slow``: a factor on
    its dollars by which it is ranked; ``replay_excess``: as ``excess``, by its replay;
    ``unreplayed``: others were replayed, and this one was not.
    """

    mode: str
    system: str
    layout: str
    degrees: Degrees
    batch: float
    chips: float
    requests_per_s: float
    usd_per_hour: float
    isl: float
    osl: float
    outputs: Mapping[Output, float]
    binds: str
    memory: tuple[float, float]
    tiers: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    p99_ttft: float | None = None
    excess: Mapping[str, float] = field(default_factory=dict[str, float])
    formats: str = ""
    holds: float | None = None
    obstacle: str = ""
    spare: float = float("inf")
    slow: float = 1.0
    replay_excess: Mapping[str, float] = field(default_factory=dict[str, float])
    unreplayed: bool = False

    def __repr__(self) -> str:
        wait, token = 1e3 * self.ttft, 1e3 * self.tpot
        return (
            f"<{self.layout} on {self.system}, {self.mode}: {self.batch:g} requests in flight in "
            f"each, TTFT {wait:.4g} ms, TPOT {token:.4g} ms, {self.usd_per_mtok:.4g}/Mtok>"
        )

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.value("ttft")

    @property
    def tpot(self) -> float:
        """Seconds per output token after the first."""
        return self.value("tpot")

    def value(self, name: str) -> float:
        """The output of that name, in the unit that it declares."""
        return next(x for output, x in self.outputs.items() if output.name == name)

    @property
    def throughput(self) -> float:
        """Output tokens per second and chip."""
        return self.requests_per_s * self.osl / self.chips

    @property
    def usd_per_mtok(self) -> float:
        """USD per million tokens, input and output alike (blended)."""
        paid = self.usd_per_hour / HOUR
        return MILLION * paid / (self.requests_per_s * (self.isl + self.osl))

    @property
    def rank(self) -> tuple[float, int, float, float, float]:
        """Sort key, least first: excess, replay and obstacle, dollars, TPOT, TTFT.

        Plans that were not replayed come after those whose replay keeps the limits, and before
        those that have an obstacle or a broken replay.

        Dollars are times ``slow``, which says how much more it may well cost.

        In single precision, so that rounding does not decide between plans that tie, such as pairs
        of pools limited by the same pool.
        """
        times = self.usd_per_mtok * self.slow, self.tpot, self.ttft
        excess = max(self.excess.values(), default=0.0)
        first, second, third = (float(x) for x in np.asarray(times, np.float32))
        last = 2 if self.obstacle or self.replay_excess else int(self.unreplayed)
        return excess, last, first, second, third


def pools_of(degrees: Degrees) -> tuple[Mapping[str, float], ...]:
    """The degrees of each pool of a plan: a single one, or the prefill and the decode pool.

    >>> pools_of({"tp": 2.0, "replicas": 4.0})
    ({'tp': 2.0, 'replicas': 4.0},)
    """
    first, second = degrees.get("prefill"), degrees.get("decode")
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first, second
    return ({name: x for name, x in degrees.items() if not isinstance(x, Mapping)},)


class _Rows(NamedTuple):
    """Rows of a table as plans: replicas, requests/s, rent per request, excess by limit."""

    replicas: Column
    carried: Column
    cost: Column
    excess: Mapping[str, Column]


class PricedTable(NamedTuple):
    """Every row of a table as a plan of a system; ``order``: within the limits, cheapest first.

    Rows that exceed limits come after those that do not, by how much they do.
    """

    system: str
    price: float
    table: LayoutEstimates
    rows: _Rows
    lengths: tuple[float, float]
    order: Positions

    @property
    def within(self) -> Positions:
        """The rows within the limits, cheapest first."""
        return self.order[worst_of(self.rows.excess)[self.order] <= 0.0]

    def choice(self, i: int) -> Choice:
        """Row ``i`` as a plan."""
        return _choice(self.system, self.price, self.table, self.rows, self.lengths, i)

    def frontier(self, rows: Positions) -> list[int]:
        """Those of ``rows`` that no other beats in both TPOT and dollars, fastest first."""
        tpot = np.asarray(self.table.estimates.tpot)[rows]
        return rows[undominated_plans(tpot, self.rows.cost[rows])].tolist()


def priced(
    system: str, price: float, table: LayoutEstimates, asked: Requirements, isl: float, osl: float
) -> PricedTable:
    """The rows of a table as plans: as many replicas as the traffic needs, or the chips allow."""
    each = table.rate / osl
    replicas = _replicas(table, asked, each)
    requests = replicas * each
    carried = requests if asked.rate is None else np.minimum(requests, asked.rate)
    cost = replicas * table.chips * price / carried
    rows = _Rows(replicas, carried, cost, _excess(table, asked, replicas, requests))
    # by rent per token at full load; ties by speed, then the layout that engines use by default
    unusual = np.array([layout.unusual for layout in table.layouts])[table.layout]
    keys = (np.asarray(x, np.float32) for x in (table.estimates.tpot, cost, worst_of(rows.excess)))
    order = np.lexsort((unusual, *keys))
    return PricedTable(system, price, table, rows, (isl, osl), order)


def choices(
    system: str,
    price: float,
    table: LayoutEstimates,
    asked: Requirements,
    isl: float,
    osl: float,
    count: int = 5,
) -> tuple[list[Choice], list[Choice]]:
    """The cheapest plans within the limits, one a layout, and the nearest misses otherwise.

    Or all plans within the limits that no other beats in both TPOT and dollars, fastest first. A
    plan is as many replicas as the traffic needs, or as the chips allow.
    """
    every = priced(system, price, table, asked, isl, osl)
    fits = every.within
    met = every.frontier(fits) if asked.frontier else first_of_each(table, fits, count)
    missed = [] if met else first_of_each(table, every.order, count)
    return [every.choice(i) for i in met], [every.choice(i) for i in missed]


def _excess(
    table: LayoutEstimates, asked: Requirements, replicas: Column, requests: Column
) -> dict[str, Column]:
    """By limit, the share by which each row exceeds it; 0 or less where it does not."""
    estimates = table.estimates
    excess = {
        "TTFT": np.asarray(estimates.ttft) / asked.ttft - 1.0,
        "TPOT": np.asarray(estimates.tpot) / asked.tpot - 1.0,
        "GPUs": replicas * table.chips / asked.chips - 1.0,
    }
    p99 = estimates.percentiles.get("p99")
    if p99 is not None:
        excess["p99 of TTFT"] = np.asarray(p99) / asked.p99_ttft - 1.0
    for name, limit in estimates.decode.limits.items():
        excess[name] = exceeded(limit)
    if asked.rate is not None:
        excess["requests/s"] = asked.rate / np.maximum(requests, 1e-300) * (1.0 - 1e-6) - 1.0
    return excess


def worst_of(excess: Mapping[str, Column]) -> Column:
    """The share by which each row exceeds the limit that it exceeds most; 0 where it meets all."""
    return np.max([np.maximum(x, 0.0) for x in excess.values()], axis=0)


def _choice(
    system: str,
    price: float,
    table: LayoutEstimates,
    rows: _Rows,
    lengths: tuple[float, float],
    i: int,
) -> Choice:
    """Row ``i`` as a plan."""
    estimates, layout, replicas = table.estimates, table.at(i), float(rows.replicas[i])
    chips, p99 = replicas * float(table.chips[i]), estimates.percentiles.get("p99")
    return Choice(
        mode="aggregated",
        system=system,
        layout=f"{replicas:g} x {layout}",
        degrees={**layout.degrees, "replicas": replicas},
        batch=float(table.batch[i]),
        requests_per_s=float(rows.carried[i]),
        chips=chips,
        usd_per_hour=chips * price,
        isl=lengths[0],
        osl=lengths[1],
        tiers=tiers(estimates.decode.limits, i),
        p99_ttft=float(p99[i]) if p99 is not None else None,
        **answers(estimates, rows.excess, i),
    )


class PlanOutputs(TypedDict):
    """The outputs of an estimate and the limits it exceeds, as a ``Choice`` has them."""

    outputs: dict[Output, float]
    binds: str
    memory: tuple[float, float]
    excess: dict[str, float]
    spare: float


def answers(
    estimate: Estimate,
    excess: Mapping[str, Column],
    row: int,
    more: Mapping[Output, float] = MappingProxyType({}),
) -> PlanOutputs:
    """The outputs of one row of an estimate, with ``more``, and the limits it exceeds."""
    terms = {name: float(term[row]) for name, term in estimate.decode.terms.items()}
    memory = estimate.decode.limits["memory"]
    return {
        "outputs": {
            **{x: float(getattr(estimate, x.name)[row]) for x in outputs(estimate, view="plan")},
            **more,
        },
        "binds": max(terms, key=lambda name: terms[name]),
        "memory": (float(memory.need[row]), float(memory.capacity[row])),
        "excess": {name: float(x[row]) for name, x in excess.items() if x[row] > 0.0},
        "spare": _spare(estimate, row),
    }


def _spare(estimate: Estimate, row: int) -> float:
    """Capacity over load of arriving requests; infinite in a closed loop."""
    arrivals = estimate.decode.limits.get("arrivals")
    if arrivals is None:
        return float("inf")
    return float(arrivals.capacity[row] / max(float(arrivals.need[row]), 1e-300))


def undominated_plans(tpot: Column | Sequence[float], cost: Column | Sequence[float]) -> Positions:
    """Rows that no other beats in both time and cost, fastest first; one of a tie.

    Compared in single precision, so that of layouts that differ by rounding alone the first is
    taken.
    """
    return undominated(np.asarray(tpot, np.float32), np.asarray(cost, np.float32))


def front(plans: Iterable[Choice]) -> list[Choice]:
    """Those of ``plans`` that no other beats in both TPOT and dollars, fastest first."""
    plans = list(plans)
    rows = undominated_plans([c.tpot for c in plans], [c.usd_per_mtok for c in plans])
    return [plans[i] for i in rows]


def exceeded(limit: Limit) -> Column:
    """The share by which the need exceeds the capacity, row by row; 0 where it does not."""
    need, capacity = np.asarray(limit.need), np.asarray(limit.capacity)
    return np.where(need > capacity, need / np.maximum(capacity, 1e-300) - 1.0, 0.0)


def tiers(limits: Mapping[str, Limit], row: int) -> dict[str, tuple[float, float]]:
    """Bytes needed and available on host and disk."""
    kept = {name: limits.get(f"{name} memory") for name in ("host", "disk")}
    return {
        name: (float(limit.need[row]), float(limit.capacity[row]))
        for name, limit in kept.items()
        if limit is not None
    }


def _replicas(table: LayoutEstimates, asked: Requirements, each: Column) -> Column:
    """Replicas of each row's instance, which serves ``each`` requests per second."""
    if asked.concurrency is not None:
        return np.round(asked.concurrency / table.batch)
    if asked.rate is not None:
        # a number that is whole except for rounding is not rounded up
        return np.ceil(asked.rate / np.maximum(each, 1e-300) * (1.0 - 1e-6))
    return np.maximum(np.floor(asked.chips / table.chips), 1.0)


def first_of_each(table: LayoutEstimates, order: Iterable[int], count: int) -> list[int]:
    """The first rows of ``order``, one per layout, and one of layouts with equal results.

    A layout with the result of an earlier one is dropped at all of its batches; so is one that
    deals experts otherwise and answers within ``ALIKE`` of it.
    """
    degrees: set[Layout] = set()
    answered: set[tuple[float, float, float]] = set()
    dealt: dict[Layout, list[tuple[float, float]]] = {}
    first: list[int] = []
    for i in (int(i) for i in order):
        instance = table.at(i).plain
        if instance in degrees:
            continue
        degrees.add(instance)
        latency = float(np.float32(table.estimates.latency[i]))
        alike = (float(table.chips[i]), float(table.batch[i]), latency)
        if alike in answered:
            continue
        answered.add(alike)
        others = dealt.setdefault(instance._replace(ep=1.0), [])
        if any(np.allclose(alike[1:], other, rtol=ALIKE) for other in others):
            continue
        others.append(alike[1:])
        first.append(i)
        if len(first) == count:
            break
    return first
