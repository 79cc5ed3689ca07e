"""The policies that ``fleet`` compares: the bound, what is decided beforehand, and autoscalers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

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
HOUR, DAY, WEEK = 3600.0, 86_400.0, 7 * 86_400.0
IDEAL = Lifecycle.of(start_delay=0.0)


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

    ``rates``: requests/s of each period of ``period`` s, in ``steps``; ``need``: the fewest
    replicas of each period that keep the limits all the time, ``least``: the same of each step,
    where none is ever taken away; ``most``: replicas of an autoscaler.
    """

    given: Conditions
    rates: np.ndarray
    period: float
    need: np.ndarray
    least: np.ndarray
    most: float

    @classmethod
    def of(
        cls, given: Conditions, rates: np.ndarray, period: float, most: float | None = None
    ) -> "Fleet":
        """With the fewest replicas of each period; ``most``: twice their largest if None."""
        limits, replica = given.limits, given.replica
        every = given.rates.reshape(len(rates), -1)
        need = np.asarray(fewest(every, replica, given.life, limits))
        least = np.asarray(fewest(given.rates[:, None], replica, IDEAL, limits))
        most = 2.0 * float(need.max()) if most is None else most
        given = given._replace(first=jnp.asarray(need[0]))
        return cls(given, rates, period, need, least, most)

    @property
    def steps(self) -> int:
        """Steps of a period."""
        return len(self.given.rates) // len(self.rates)

    @property
    def total(self) -> float:
        """All periods, s."""
        return len(self.rates) * self.period

    @property
    def p(self) -> str:
        """The percentile that is to keep the limit of TTFT, in words."""
        return f"p{100 * float(self.given.limits.goodput):.4g}"

    @property
    def cycle(self) -> tuple[int, str]:
        """Periods after which a schedule repeats, and what it is by, in words.

        A day, a week of two weeks and more, or all of less than two days.
        """
        cycle = WEEK if self.total >= 2 * WEEK else DAY if self.total >= 2 * DAY else self.total
        count = max(round(cycle / self.period), 1)
        if count == len(self.rates):
            return count, "by a forecast that is right"
        return count, "by hour of the " + ("week" if cycle == WEEK else "day")

    @property
    def _fixed(self) -> tuple[int, int]:
        """How many steps a fleet looks back, and the steps of a period."""
        return depth_of(self.given.life, float(self.given.seconds)), self.steps

    def run(self, policy: Autoscaler, **changes: object) -> Outcome:
        """The outcome of one policy, where some conditions are others."""
        given = self.given._replace(**changes)
        return once(outcome, policy, given, fixed=self._fixed, points=MANY)

    def planned(self, replicas: np.ndarray) -> Schedule:
        """A schedule of replicas by period, each in time for its period."""
        ahead = int(np.ceil(float(self.given.life.start_delay) / float(self.given.seconds)))
        every = in_time(jnp.asarray(replicas), self.steps, ahead)
        return Schedule.of().replace(replicas=np.asarray(every))

    def policies(self) -> Iterator[Policy]:
        """Every policy, the bound first."""
        perfect, first = Schedule.of().replace(replicas=self.least), jnp.asarray(self.least[0])
        yield Policy("perfect autoscaler", "", self.run(perfect, first=first, life=IDEAL))
        most = np.full_like(self.need, self.need.max())
        yield Policy("static", quantity(most[0], "replica"), self.run(self.planned(most)))
        count, words = self.cycle
        hourly = np.asarray(by_hour(jnp.asarray(self.need), count))
        yield Policy("schedule", words, self.run(self.planned(hourly)))
        for kind in AUTOSCALERS:
            best, usual = self.tune(kind), kind.published
            for parameter in dict.fromkeys((usual, best)):
                if parameter is not None:
                    words = kind.parameter.format(parameter) + " (default)" * (parameter == usual)
                    yield Policy(kind.name, words, self.run(self.made(kind, parameter)))

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
        found = once(lanes, every, self.given, fixed=self._fixed, points=MANY)
        usd, share = map(np.asarray, found)
        enough = np.minimum(share, float(self.given.limits.goodput))
        return float(tried[np.lexsort((-share, usd, -enough))[0]])


def why_broken(fleet: Fleet, policy: Policy, at: int) -> str:
    """Which limit a policy breaks in a period, and why, in words."""
    found, limits = policy.outcome, fleet.given.limits
    part = slice(at * fleet.steps, (at + 1) * fleet.steps)
    wanted, ready = (np.asarray(x)[part] for x in (found.course.wanted, found.course.ready))
    broken = "TTFT, " * bool(found.ttft[at] > limits.ttft)
    broken = broken + "TPOT, " * bool(found.tpot[at] > limits.tpot) or "TTFT, "
    starting = float(np.max(1.0 - ready / float(fleet.given.life.serving) / wanted))
    late = f"{100 * starting:.0f} % still start" if starting > 0.05 else "too few are wanted"
    return f"{broken[:-2]}: {late}"
