"""The policies that ``fleet`` compares: the bound, what is decided beforehand, and autoscalers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import gcd
from typing import NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.arrivals import Traffic
from infer_jax.compiling import once
from infer_jax.fleets import (
    Autoscaler,
    Conditions,
    Course,
    EventDriven,
    FixedPool,
    Horizontal,
    Lifecycle,
    Outcome,
    Predictive,
    Replica,
    Schedule,
    ServiceLimits,
    Supply,
    base_and_burst,
    by_hour,
    cheapest,
    depth_of,
    in_time,
    lanes,
    mixes,
    outcome,
    rest_of,
)
from infer_jax.fleets.bill import DAY
from infer_jax.results.numbers import quantity
from infer_jax.results.problems import refuse
from infer_jax.typed_jax import trees
from infer_jax.verbs.fleet_replica import FleetReplica

R = TypeVar("R")
LANES, ROUNDS = 32, 2  # parameters of an autoscaler that are tried at once, and how often
STEP_POINTS = 5  # of a step of the scan, which takes 20 times as long unoptimised
WEEK = 7 * DAY
WINDOW = 300.0  # s that a policy looks back, HPA's default
IDEAL = Lifecycle.of(start_delay=0.0)
# on several devices: compiled once in a process, for programs kept are of one
shared_lanes = jax.jit(lanes, static_argnums=(0, 1, 4))


class Policy(NamedTuple):
    """A policy that was asked about: its name, its numbers in words, courses in order of pools."""

    name: str
    detail: str
    outcome: Outcome
    courses: tuple[Course, ...]

    @property
    def title(self) -> str:
        """Its name and its numbers."""
        return f"{self.name} ({self.detail})"

    @property
    def replicas(self) -> np.ndarray:
        """Replicas of each step: [steps, pools]."""
        return np.stack([np.asarray(x.wanted) for x in self.courses], axis=1)


class Scaling(NamedTuple):
    """Replicas that are always there, by pool, and the pool that autoscalers scale above them.

    It is number ``at``, -1 where no two pools serve all that comes, and has at most ``most``
    replicas; ``given``: its conditions.
    """

    base: np.ndarray
    at: int
    most: float
    given: Conditions


class Tuned(NamedTuple):
    """A kind of autoscaler: its published parameter, if any, and between which others are tried.

    Of None those in flight of a replica, from a tenth of what keeps the limits to all it holds.
    """

    name: str
    make: Callable[[float], Autoscaler]
    parameter: str  # in words, of a number
    published: float | None = None
    between: tuple[float, float] | None = None

    def bounds(self, given: Conditions) -> tuple[float, float]:
        """Between which parameters others are tried."""
        held, most = once(Replica.planned_in_flight, given.replica, given.limits)
        return self.between or (0.1 * float(held), float(most))


AUTOSCALERS = (
    Tuned("Kubernetes HPA", lambda x: Horizontal.of(target=x), "{:.3g} in flight each"),
    Tuned("KEDA", lambda x: EventDriven.of(target=x), "{:.3g} waiting each", 5.0, (1e-3, 10.0)),
    Tuned("Dynamo planner", lambda x: Predictive.of(headroom=x), "last rate x {:.3g}", 1.0,
          (1.0, 2.5)),
    Tuned("Dynamo planner", lambda x: Predictive.of(headroom=x, trend=1.0), "trend x {:.3g}",
          1.0, (1.0, 2.5)),
)  # fmt: skip


@dataclass(frozen=True)
class Fleet:
    """A question about replicas over time; arrays of them are [steps or periods, pools].

    ``rates``: requests/s of each period of ``period`` s; ``most``: replicas that an autoscaler may
    have, twice as many as the busiest period needs where None.
    """

    given: Conditions
    pools: tuple[FleetReplica, ...]
    rates: np.ndarray
    period: float
    most: float | None = None

    @classmethod
    def of(
        cls, traffic: Traffic, pools: Sequence[FleetReplica], limits: ServiceLimits,
        most: float | None, pue: float, grid: float, steps: tuple[Array, Array],
    ) -> "Fleet":  # fmt: skip
        """Of traffic, by ``steps_of_traffic``; ``pue`` and ``grid`` (kg/kWh) of its power."""
        dispersion = float(traffic.variability) + traffic.output_variation
        one, pue_, grid_, work = map(jnp.asarray, (1.0, pue, grid, dispersion))
        first = pools[0].replica, pools[0].life
        given = Conditions(*first, limits, *steps, one, pue_, grid_, work)
        return cls(given, tuple(pools), np.asarray(traffic.rates), float(traffic.period), most)

    @property
    def steps(self) -> int:
        """Steps of a period."""
        return len(self.given.rates) // len(self.rates)

    def by_period(self, replicas: np.ndarray) -> np.ndarray:
        """Replicas of each step, [steps, pools], as [periods, steps of one, pools]."""
        return replicas.reshape(len(self.rates), self.steps, -1)

    @property
    def p(self) -> str:
        """The percentile that is to keep the limit of TTFT, in words."""
        return f"p{100 * float(self.given.limits.goodput):.4g}"

    @property
    def cycle(self) -> tuple[int, str]:
        """Periods after which a schedule repeats, and what it is by, in words.

        A day, a week of two weeks and more; or all of less than two days, and of periods of which
        no whole number makes a day.
        """
        total = len(self.rates) * self.period
        cycle, name = (WEEK, "week") if total >= 2 * WEEK else (DAY, "day")
        count = cycle / self.period
        if total < 2 * DAY or abs(count - round(count)) > 1e-6:
            return len(self.rates), "by a forecast that is right"
        return round(count), f"by hour of the {name}"

    @cached_property
    def peaks(self) -> np.ndarray:
        """The largest rate of each period."""
        return np.asarray(self.given.rates).reshape(len(self.rates), -1).max(axis=1)

    @cached_property
    def serves(self) -> np.ndarray:
        """Requests/s of a replica within the limits, while it serves: [copies, pools]."""
        replicas, limits = [x.replica for x in self.pools], self.given.limits
        return np.stack([once(Replica.planned_rate, x, limits, x.copies) for x in replicas], axis=1)

    @cached_property
    def prices(self) -> np.ndarray:
        """USD an hour of a replica of each pool."""
        return np.array([float(x.replica.usd_per_hour) for x in self.pools])

    def supply(self, *, ideal: bool = False) -> Supply:
        """The replicas that there can be; ``ideal``: that are never taken away."""
        up = 1.0 if ideal else np.array([float(x.life.serving) for x in self.pools])
        columns = zip(*((x.layout.chips, x.system, x.gpus) for x in self.pools), strict=True)
        copies = np.asarray(self.pools[0].replica.copies)
        return Supply(self.serves * up, copies, self.prices, *map(np.array, columns))

    def cheapest(self, rates: np.ndarray, supply: Supply | None = None) -> np.ndarray:
        """The cheapest replicas for each rate; infinitely many where all there are serve less."""
        supply = supply or self.supply()
        found = mixes(supply, float(rates.max()))
        serves = supply.serve(found)
        if not len(found) or serves[-1] < rates.max():
            return np.full((len(rates), len(supply.prices)), np.inf)
        return np.asarray(cheapest(*map(jnp.asarray, (rates, serves, found))))

    @cached_property
    def bound(self) -> np.ndarray:
        """The cheapest replicas of each step.

        Raises:
            InputError: all that there are serve less than the largest rate.
        """
        found = self.cheapest(np.asarray(self.given.rates), self.supply(ideal=True))
        if not np.isfinite(self.rent(found) + self.rent(self.cheapest(self.peaks))):
            allowed = f"GPUs for {self.peaks.max():.4g} requests/s within the limits"
            raise refuse("available", "too few", allowed)
        return found

    @cached_property
    def scaling(self) -> Scaling:
        """What autoscalers scale, of two pools or more above the base that costs least."""
        supply = self.supply()
        base, at = base_and_burst(np.asarray(self.given.rates), supply)
        rest = rest_of(self.peaks, base, at, supply)
        most = 2.0 * float(rest.max()) if self.most is None else self.most
        every = np.broadcast_to(base, self.bound.shape)
        given = self.conditions(every, at)._replace(first=jnp.asarray(rest[0]))
        return Scaling(base, at, min(most, float(supply.room(base)[at])), given)

    def conditions(self, wanted: np.ndarray, at: int, life: Lifecycle | None = None) -> Conditions:
        """Those of the pool number ``at``, beside others of which so many are ``wanted``."""
        every = [
            FixedPool(pool.replica, life or pool.life, jnp.asarray(column))
            for pool, column in zip(self.pools, wanted.T, strict=True)
        ]
        own = every.pop(at)
        return self.given._replace(replica=own.replica, life=own.life, first=own.wanted[0],
                                   beside=tuple(every))  # fmt: skip

    def depth(self, window: float = WINDOW) -> int:
        """Steps that are looked back: by replicas that start, and the ``window`` s of a policy."""
        return max(depth_of(x.life, float(self.given.seconds), window) for x in self.pools)

    def compute(self, law: Callable[..., R], policy: Autoscaler, given: Conditions) -> R:
        """A law of policies under conditions."""
        fixed = self.depth(), self.steps
        devices = jax.local_devices()[: gcd(LANES, jax.local_device_count())]
        if law is lanes and len(devices) > 1:
            return cast(R, shared_lanes(*fixed, policy, given, tuple(devices)))
        points = STEP_POINTS * len(given.rates) * (LANES if law is lanes else 1)
        return once(law, policy, given, fixed=fixed, points=points)

    def run(
        self, name: str, detail: str, wanted: np.ndarray, at: int = 0, life: Lifecycle | None = None
    ) -> Policy:
        """What so many replicas of each step keep; ``at``: the pool that others stand beside."""
        policy = Schedule.of().replace(replicas=wanted[:, at])
        found = self.compute(outcome, policy, self.conditions(wanted, at, life))
        first, *rest = found.courses
        return Policy(name, detail, found, (*rest[:at], first, *rest[at:]))

    def in_time(self, replicas: np.ndarray) -> np.ndarray:
        """Replicas of each step, those of its period serving when it begins."""
        slowest = max(float(x.life.start_delay) for x in self.pools)
        ahead = int(np.ceil(slowest / float(self.given.seconds)))
        law = partial(in_time, steps=self.steps, ahead=ahead)
        return np.asarray(jax.vmap(law, 1, 1)(jnp.asarray(replicas)))

    def policies(self) -> Iterator[Policy]:
        """Every policy, the bound first."""
        bound = self.run("perfect autoscaler", "", self.bound, life=IDEAL)
        # a bound: those that leave are not paid until their last requests are done
        cost = bound.outcome.cost._replace(usd=self.rent(self.bound))
        yield bound._replace(outcome=bound.outcome._replace(cost=cost))
        busiest = self.cheapest(np.full_like(self.peaks, self.peaks.max()))
        yield self.run("static", self.in_words(busiest[0]), self.in_time(busiest))
        yield from self.schedules(0.0)
        for kind in AUTOSCALERS if self.scaling.at >= 0 else ():
            for parameter, wanted in self.tune(kind).items():
                usual = " (default)" * (parameter == kind.published)
                detail = kind.parameter.format(parameter) + usual
                yield self.run(kind.name, detail, wanted, at=self.scaling.at)

    def rent(self, replicas: np.ndarray) -> float:
        """USD a day of so many replicas."""
        return 24.0 * float((replicas @ self.prices).mean())

    def scheduled(self, margin: float = 0.0) -> np.ndarray:
        """Replicas of each step of a schedule, for so much more traffic than there was."""
        hourly = np.asarray(by_hour(jnp.asarray(self.peaks), self.cycle[0]))
        return self.in_time(self.cheapest(hourly * (1.0 + margin)))

    @cached_property
    def usd_of_schedule(self) -> float:
        """USD a day of its schedule; infinite where all that there are serve less."""
        return self.rent(self.scheduled())

    def schedules(self, *margins: float) -> Iterator[Policy]:
        """Schedules for so much more traffic, 0.1 for a tenth, where there are the replicas."""
        for margin in margins:
            replicas = self.scheduled(margin)
            if np.isfinite(self.rent(replicas)):
                more = f", for {100 * margin:g} % more" * (margin > 0.0)
                yield self.run("schedule", self.cycle[1] + more, replicas)

    def count_open(self, policy: Policy) -> int:
        """Periods of which the law leaves open whether TTFT is within its limit."""
        low, high = np.asarray(policy.outcome.ttft_band)
        limit = float(self.given.limits.ttft)
        return int(np.sum((low <= limit) & (limit <= high)))

    def in_words(self, replicas: np.ndarray) -> str:
        """A number of replicas, of each pool where there are several."""
        if len(self.pools) == 1:
            return quantity(replicas[0], "replica")
        counts = zip(replicas, self.pools, strict=True)
        return " + ".join(f"{n:g} x {x.name}" for n, x in counts if n)

    def rank(self, policy: Policy) -> tuple[float, float]:
        """Good requests of the worst period, up to the share that is wanted, then cheapness."""
        share, wanted = float(np.min(policy.outcome.shares)), float(self.given.limits.goodput)
        return min(share, wanted), -float(policy.outcome.cost.usd)

    def follow(self, autoscalers: Sequence[Autoscaler]) -> tuple[np.ndarray, ...]:
        """Of each USD a day, good requests of the worst period, replicas: [steps, pools].

        Each has at most as many replicas as are allowed.
        """
        base, at, most, given = self.scaling
        every = trees.stack(*(x.with_(maximum=most) for x in autoscalers))
        usd, share, scaled = map(np.asarray, self.compute(lanes, every, given))
        return usd, share, base + scaled[..., None] * (np.arange(len(base)) == at)

    def tune(self, kind: Tuned) -> dict[float, np.ndarray]:
        """Replicas of each step by parameter: of the published one, and of the one that is best.

        That costs least and keeps the limits in every period, or keeps them best; of several that
        keep them at one price it keeps most. ``LANES`` are tried at once, then as many between the
        neighbours of the best.
        """
        low, high = kind.bounds(self.scaling.given)
        usual = [] if kind.published is None else [kind.published]
        worth, tried = dict[float, tuple[float, ...]](), dict[float, np.ndarray]()
        best, enough = low, float(self.given.limits.goodput)
        for _ in range(ROUNDS):
            new = [*usual, *np.geomspace(low, high, LANES - len(usual)).tolist()]
            found = self.follow([kind.make(x) for x in new])
            for x, usd, share, wanted in zip(new, *found, strict=True):
                worth[x], tried[x] = (min(share, enough), -usd, share), wanted
            best, step = max(worth, key=lambda x: worth[x]), (high / low) ** (1.0 / (LANES - 1))
            low, high = best / step, best * step
        return {x: tried[x] for x in [*usual, best]}


def why_broken(fleet: Fleet, policy: Policy, at: int) -> str:
    """Which limit a policy breaks in a period, and why, in words."""
    found, limits = policy.outcome, fleet.given.limits
    pools = zip(policy.courses, fleet.pools, strict=True)
    ready = np.stack([np.asarray(x.ready) / float(pool.life.serving) for x, pool in pools], axis=1)
    supply = fleet.supply(ideal=True)
    ready, used = (fleet.by_period(x)[at] for x in (ready, policy.replicas))
    limited = ("TTFT", found.ttft[at] > limits.ttft), ("TPOT", found.tpot[at] > limits.tpot)
    broken = ", ".join(name for name, above in limited if above) or "TTFT"
    starting = float(np.max(1.0 - supply.serve(ready) / supply.serve(used)))
    if starting > 0.05:
        return f"{broken}: {100 * starting:.0f} % still start"
    most = fleet.scaling.base.sum() + fleet.scaling.most
    scaled = policy.name in {x.name for x in AUTOSCALERS}
    bounded = scaled and used.sum(axis=1).max() >= most
    return f"{broken}: " + (f"too few, {most:g} at most" if bounded else "too few are wanted")
