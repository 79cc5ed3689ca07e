"""The policies that ``fleet`` compares: the bound, what is decided beforehand, and autoscalers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.compiling import MANY, once
from infer_jax.fleets import (
    Autoscaler,
    Conditions,
    EventDriven,
    Horizontal,
    Lifecycle,
    Outcome,
    Predictive,
    Schedule,
    by_hour,
    depth_of,
    fewest,
    in_time,
    lanes,
    outcome,
)
from infer_jax.results.numbers import quantity
from infer_jax.typed_jax import trees

LANES = 96  # parameters of an autoscaler that are tried
DAY, WEEK = 86_400.0, 7 * 86_400.0


class Policy(NamedTuple):
    """A policy that was asked about: what it is called, and its numbers in words."""

    name: str
    detail: str
    outcome: Outcome


class Tuned(NamedTuple):
    """A kind of autoscaler: its published parameter, if any, and those that are tried."""

    name: str
    make: Callable[[float], Autoscaler]
    parameter: str  # in words, of a number
    published: float | None
    tried: Callable[[Conditions, float], np.ndarray]


def _in_flight(given: Conditions, rate: float) -> np.ndarray:
    """Requests in flight of a replica, of a tenth to all of what it holds."""
    grid = np.asarray(given.replica.service.in_flight)
    return np.geomspace(0.1 * float(given.replica.at_rate(jnp.asarray(rate)).in_flight), grid[-1],
                        LANES)  # fmt: skip


AUTOSCALERS = (
    Tuned("Kubernetes HPA", lambda x: Horizontal.of(target=x), "{:.3g} in flight each",
          None, _in_flight),
    Tuned("KEDA", lambda x: EventDriven.of(target=x), "{:.3g} waiting each", 5.0,
          lambda given, rate: np.geomspace(1e-3, 10.0, LANES)),
    Tuned("Dynamo planner", lambda x: Predictive.of(headroom=x), "last rate x {:.3g}", 1.0,
          lambda given, rate: np.geomspace(1.0, 2.5, LANES)),
    Tuned("Dynamo planner", lambda x: Predictive.of(headroom=x, trend=1.0), "trend x {:.3g}",
          1.0, lambda given, rate: np.geomspace(1.0, 2.5, LANES)),
)  # fmt: skip


@dataclass(frozen=True)
class Fleet:
    """A question about replicas over time.

    ``steps`` of a period of ``period`` s; ``need``: the fewest replicas of each period that
    keep the limits all the time, ``least``: the same of each step, where none is ever taken away;
    ``most``: replicas of an autoscaler.
    """

    given: Conditions
    steps: int
    period: float
    need: np.ndarray
    least: np.ndarray
    most: float

    @classmethod
    def of(cls, given: Conditions, steps: int, period: float, most: float | None = None) -> "Fleet":
        """With the fewest replicas of each period; ``most``: twice their largest if None."""
        rates = given.rates.reshape(-1, steps)
        limits, replica = given.limits, given.replica
        need = np.asarray(fewest(rates, replica, given.life, limits))
        ideal = Lifecycle.of(start_delay=0.0)
        least = np.asarray(fewest(given.rates[:, None], replica, ideal, limits))
        first = jnp.asarray(need[0])
        most = 2.0 * float(need.max()) if most is None else most
        return cls(given._replace(first=first), steps, period, need, least, most)

    @property
    def cycle(self) -> int:
        """Periods after which a schedule repeats: a day or, of two weeks and more, a week."""
        total = len(self.need) * self.period
        cycle = WEEK if total >= 2 * WEEK else DAY if total >= 2 * DAY else total
        return max(round(cycle / self.period), 1)

    @property
    def cycle_name(self) -> str:
        """What a schedule is by, in words."""
        if self.cycle == len(self.need):
            return "by a forecast that is right"
        return "by hour of the " + ("week" if self.cycle * self.period > 2 * DAY else "day")

    def run(self, policy: Autoscaler, life: Lifecycle | None = None) -> Outcome:
        """The outcome of one policy."""
        given = self.given if life is None else self.given._replace(life=life)
        fixed = (depth_of(self.given.life, float(given.seconds)), self.steps)
        return once(outcome, policy, given, fixed=fixed, points=MANY)

    def planned(self, replicas: np.ndarray) -> Schedule:
        """A schedule of replicas by period, each in time for its period."""
        ahead = int(np.ceil(float(self.given.life.start_delay) / float(self.given.seconds)))
        every = in_time(jnp.asarray(replicas), self.steps, ahead)
        return Schedule.of().replace(replicas=np.asarray(every))

    def policies(self) -> Iterator[Policy]:
        """Every policy, the bound first."""
        ideal = Lifecycle.of(start_delay=0.0)
        perfect = Schedule.of().replace(replicas=self.least)
        first = self.given._replace(first=jnp.asarray(self.least[0]))
        bound = replace(self, given=first)
        yield Policy("perfect autoscaler", "", bound.run(perfect, ideal))
        most = np.full_like(self.need, self.need.max())
        yield Policy("static", quantity(most[0], "replica"), self.run(self.planned(most)))
        hourly = np.asarray(by_hour(jnp.asarray(self.need), self.cycle))
        yield Policy("schedule", self.cycle_name, self.run(self.planned(hourly)))
        for kind in AUTOSCALERS:
            if kind.published is not None:
                words = f"{kind.parameter.format(kind.published)} (default)"
                yield Policy(kind.name, words, self.run(self.made(kind, kind.published)))
            best = self.tune(kind)
            if best == kind.published:
                continue
            yield Policy(kind.name, kind.parameter.format(best), self.run(self.made(kind, best)))

    def made(self, kind: Tuned, parameter: float) -> Autoscaler:
        """An autoscaler that has at most as many replicas as are allowed."""
        return kind.make(parameter).with_(maximum=self.most)

    def tune(self, kind: Tuned) -> float:
        """The parameter that costs least and keeps the limits in every period, else the best one.

        Where several keep it at one price, the one that keeps most.
        """
        rate = float(self.given.replica.rate_within(self.given.limits))
        tried = kind.tried(self.given, rate or float(self.given.replica.capacity))
        every = trees.stack(*(self.made(kind, float(x)) for x in tried))
        fixed = (depth_of(self.given.life, float(self.given.seconds)), self.steps)
        usd, share = map(np.asarray, once(lanes, every, self.given, fixed=fixed, points=MANY))
        enough = share >= float(self.given.limits.goodput)
        order = np.lexsort((-share, usd)) if enough.any() else np.lexsort((usd, -share))
        return float(tried[next(i for i in order if enough[i] or not enough.any())])


def why_broken(fleet: Fleet, policy: Policy, at: int) -> str:
    """Which limit a policy breaks in a period, and why, in words."""
    found, limits = policy.outcome, fleet.given.limits
    part = slice(at * fleet.steps, (at + 1) * fleet.steps)
    course = jax.tree.map(lambda x: x[part], found.course)
    starting = course.wanted - course.ready / float(fleet.given.life.serving)
    broken = [
        name
        for name, value, limit in (
            ("TTFT", found.ttft[at], limits.ttft),
            ("TPOT", found.tpot[at], limits.tpot),
        )
        if value > limit
    ]
    most = float(np.max(np.asarray(starting) / np.asarray(course.wanted)))
    late = f"{100 * most:.0f} % still start"
    return f"{', '.join(broken) or 'TTFT'}: {late if most > 0.05 else 'too few are wanted'}"
