"""Which plans meet the limits at least cost, and if none does, which come nearest?"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infer_jax.estimators.estimate import Estimate, Limit
from infer_jax.planning.aggregated import Table

HOUR, MILLION = 3600.0, 1e6
# s, where no limit of TTFT is given: without one the cheapest plans make users wait for many s
USUAL_TTFT = 2.0


@dataclass(frozen=True)
class Asked:
    """What a plan must do: limits in seconds, the chips there are, and how much traffic.

    ``usual_ttft``: without a limit of TTFT, a search keeps it within ``USUAL_TTFT`` if any plan
    does.

    ``concurrency``: requests in flight over all replicas, in rows of ``served.shares``; or
    ``rate``: requests per second; or neither, and the chips are filled. ``frontier``: wanted are
    not the cheapest but all that no other beats in both TPOT and dollars.
    """

    ttft: float = np.inf
    tpot: float = np.inf
    p99_ttft: float = np.inf
    chips: float = np.inf
    concurrency: float | None = None
    rate: float | None = None
    frontier: bool = False
    usual_ttft: bool = False


@dataclass(frozen=True)
class Choice:
    """One plan and what it answers.

    ``layout``: what an instance is, in words, ``degrees`` in numbers; ``batch``: requests in
    flight in an instance (that decodes); ``binds``: the longest term of a token; ``memory``:
    bytes of a chip, needed and there; ``tiers``: the same of host and disk; ``joules``: per million
    tokens in or out, and of each side; ``excess``: by limit, the share by which it is exceeded,
    empty where all are met; ``formats``: of the model, where the caller says which.
    """

    mode: str
    system: str
    layout: str
    degrees: dict[str, Any]
    batch: float
    chips: float
    ttft: float
    tpot: float
    requests_per_s: float
    usd_per_hour: float
    isl: float
    osl: float
    binds: str
    memory: tuple[float, float]
    input_usd: float
    output_usd: float
    joules: float
    input_joules: float
    output_joules: float
    tiers: dict[str, tuple[float, float]] = field(default_factory=dict)
    p99_ttft: float | None = None
    excess: dict[str, float] = field(default_factory=dict)
    formats: str = ""

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
    def rank(self) -> tuple[float, float, float]:
        """Least first: what is broken, then dollars, then latency."""
        return max(self.excess.values(), default=0.0), self.usd_per_mtok, self.tpot


def choices(
    system: str,
    price: float,
    made: Table,
    asked: Asked,
    isl: float,
    osl: float,
    count: int = 5,
) -> tuple[list[Choice], list[Choice]]:
    """The cheapest plans within the limits, one a layout, and the nearest misses otherwise.

    Or all plans within the limits that no other beats in both TPOT and dollars, fastest first. A
    plan is as many replicas as the traffic needs, or as the chips allow.
    """
    served = made.served
    each = np.asarray(served.throughput) * made.chips / osl
    replicas, batch = _replicas(made, asked, each), made.batch
    requests = replicas * each
    excess = {
        "TTFT": np.asarray(served.ttft) / asked.ttft - 1.0,
        "TPOT": np.asarray(served.tpot) / asked.tpot - 1.0,
        "GPUs": replicas * made.chips / asked.chips - 1.0,
    }
    p99 = served.percentiles.get("p99")
    if p99 is not None:
        excess["p99 of TTFT"] = np.asarray(p99) / asked.p99_ttft - 1.0
    for name, limit in served.decode.limits.items():
        excess[name] = exceeded(limit)
    if asked.rate is not None:
        excess["requests/s"] = asked.rate / np.maximum(requests, 1e-300) * (1.0 - 1e-6) - 1.0
    worst = np.max([np.maximum(x, 0.0) for x in excess.values()], axis=0)
    # least rent per token at full use; of equal ones the faster, of alike ones the usual
    carried = requests if asked.rate is None else np.minimum(requests, asked.rate)
    cost = replicas * made.chips * price / carried
    unusual = np.array([layout.unusual for layout in made.layouts])[made.layout]
    order = np.lexsort((unusual, *(np.float32(x) for x in (served.tpot, cost, worst))))
    fits = order[worst[order] <= 0.0]
    if asked.frontier:
        met = fits[undominated(served.tpot[fits], cost[fits])].tolist()
    else:
        met = _first_of_each(made, fits, count)
    missed = [] if met else _first_of_each(made, order, count)

    def choice(i: int) -> Choice:
        layout = made.at(i)
        return Choice(
            mode="aggregated",
            system=system,
            layout=f"{replicas[i]:g} x {layout}",
            degrees={**layout.degrees, "replicas": float(replicas[i])},
            batch=float(batch[i]),
            requests_per_s=float(carried[i]),
            chips=float(replicas[i] * made.chips[i]),
            usd_per_hour=float(replicas[i] * made.chips[i] * price),
            isl=isl,
            osl=osl,
            joules=float(served.blended_energy[i]),
            input_joules=float(served.input_energy[i]),
            output_joules=float(served.energy[i]),
            tiers=tiers(served.decode.limits, i),
            p99_ttft=float(p99[i]) if p99 is not None else None,
            **answered(served, excess, i),
        )

    return [choice(i) for i in met], [choice(i) for i in missed]


def answered(life: Estimate, excess: Mapping[str, Any], row: int) -> dict[str, Any]:
    """What a choice says of one row of evaluated lives, and of the limits that it exceeds."""
    terms = {name: float(term[row]) for name, term in life.decode.terms.items()}
    memory = life.decode.limits["memory"]
    return {
        "ttft": float(life.ttft[row]),
        "tpot": float(life.tpot[row]),
        "binds": max(terms, key=lambda name: terms[name]),
        "memory": (float(memory.need[row]), float(memory.capacity[row])),
        "input_usd": float(life.input_cost[row]),
        "output_usd": float(life.cost[row]),
        "excess": {name: float(x[row]) for name, x in excess.items() if x[row] > 0.0},
    }


def undominated(tpot: Any, cost: Any) -> np.ndarray:
    """Rows that no other beats in both time and cost, fastest first; one of a tie.

    Compared in single precision: layouts that answer alike differ by rounding, and the first of
    them is taken.

    >>> undominated([3.0, 1.0, 2.0, 2.5], [1.0, 4.0, 2.0, 2.0])
    array([1, 2, 0])
    """
    tpot, cost = np.asarray(tpot, np.float32), np.asarray(cost, np.float32)
    order = np.lexsort((cost, tpot))
    least = np.minimum.accumulate(cost[order])
    return order[least < np.r_[np.inf, least[:-1]]]


def front(plans: Iterable[Choice]) -> list[Choice]:
    """Those of ``plans`` that no other beats in both TPOT and dollars, fastest first."""
    plans = list(plans)
    rows = undominated([c.tpot for c in plans], [c.usd_per_mtok for c in plans])
    return [plans[i] for i in rows]


def exceeded(limit: Limit) -> np.ndarray:
    """The share by which the need exceeds the capacity, row by row; 0 where it does not."""
    need, capacity = np.asarray(limit.need), np.asarray(limit.capacity)
    return np.where(need > capacity, need / np.maximum(capacity, 1e-300) - 1.0, 0.0)


def tiers(limits: dict[str, Any], row: int) -> dict[str, tuple[float, float]]:
    """Bytes needed and there beside the chip: of host and disk."""
    kept = {name: limits.get(f"{name} memory") for name in ("host", "disk")}
    return {
        name: (float(limit.need[row]), float(limit.capacity[row]))
        for name, limit in kept.items()
        if limit is not None
    }


def _replicas(made: Table, asked: Asked, each: np.ndarray) -> np.ndarray:
    """Replicas of each row's instance, which serves ``each`` requests per second."""
    if asked.concurrency is not None:
        return np.round(asked.concurrency / made.batch)
    if asked.rate is not None:
        # a whole number but for rounding is that number
        return np.ceil(asked.rate / np.maximum(each, 1e-300) * (1.0 - 1e-6))
    return np.maximum(np.floor(asked.chips / made.chips), 1.0)


def _first_of_each(made: Table, order: np.ndarray, count: int) -> list[int]:
    """The first rows of ``order``, one by degrees, and one of those that answer alike.

    A layout that answers as one before it does not come back with another batch.
    """
    degrees, answers, found = set(), set(), []
    for i in (int(i) for i in order):
        instance = made.at(i).plain
        if instance in degrees:
            continue
        degrees.add(instance)
        alike = (made.chips[i], made.batch[i], float(np.float32(made.served.latency[i])))
        if alike in answers:
            continue
        answers.add(alike)
        found.append(i)
        if len(found) == count:
            break
    return found
