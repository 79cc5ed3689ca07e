"""A fleet over time: replicas that are wanted, that serve, and the requests that wait for them."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.fleets.autoscalers import Autoscaler, Observed, State, extreme
from infer_jax.fleets.cohorts import Cohorts, or_one
from infer_jax.fleets.replica import Replica
from infer_jax.fleets.service import SHARPEST, Service, ServiceLimits
from infer_jax.physics.root import crossing
from infer_jax.specs import Spec, number, spec

HOUR = 3600.0
BUSY = 0.9  # load up to which waits settle within a step
SLOWEST = 1e-9  # requests/s at which a queue is served at least


@spec
class Lifecycle(Spec):
    """How replicas come and go. Those that leave first finish the requests that they have."""

    start_delay: Array = number(
        "time from the wish for a replica to its first request: machine, image, weights, graphs",
        unit="s", kind="time", default=120.0,
    )  # fmt: skip
    departures: Array = number(
        "how often a replica is taken away, as spot instances are, to be replaced at once",
        unit="1/h", kind="rate", default=0.0,
    )  # fmt: skip

    @property
    def serving(self) -> Array:
        """Share of the time that a replica serves: 1 / (1 + departures x start delay).

        An alternating renewal process (Cox, Renewal Theory, 1962, 7): up for 1 / departures, down
        for the start delay.
        """
        return 1.0 / (1.0 + self.departures * self.start_delay / HOUR)


class Course(NamedTuple):
    """A pool step by step: arrays over steps, the last six over steps and cohorts of replicas."""

    rate: Array  # requests/s that come
    wanted: Array  # replicas that are paid for: those that serve, and those that start
    ready: Array  # those that serve
    leaving: Array  # replicas that leave in the step
    replicas: Array  # those that serve, of each cohort
    arriving: Array  # requests/s that come to it
    running: Array  # requests that one of its replicas answers, at the end of the step
    queue: Array  # those that wait at it, but for waits by chance
    busy: Array  # s for which that has been nearly all that it can
    waits: Array  # s until the step's first and last request are admitted, last axis


# a pool at the beginning of a step: the state of its policy; replicas that were wanted, the newest
# first; those that serve; s for which each cohort has been busy; requests/s of the step before
_Now = tuple[State, Array, Cohorts, Array, Array]


def depth_of(life: Lifecycle, seconds: float, window: float = 300.0) -> int:
    """Steps that a fleet has to look back, up to the next power of two; ``window`` s of a policy.

    >>> depth_of(Lifecycle.of(start_delay=120.0), 15.0)
    32
    """
    steps = math.ceil(max(float(life.start_delay), window) / seconds) + 2
    return 2 ** (steps - 1).bit_length()


def simulate(
    policy: Autoscaler, replica: Replica, life: Lifecycle, limits: ServiceLimits, rates: Array,
    seconds: Array, first: Array, depth: int, beside: Array | float = 0.0,
) -> Course:  # fmt: skip
    """The course of a pool under a policy, from ``first`` replicas that have served for long.

    A replica serves if it has been wanted for the start delay without a break: of the last wishes
    the least, for what is still starting is given up first. Requests go to the replicas with the
    fewest. ``rates``: requests/s of each step, ``seconds`` its length, ``depth`` from ``depth_of``;
    ``beside``: requests/s that other pools serve within the limits, by step, where there are
    others: each gets requests in proportion to what it serves. Gradients are those of whole
    replicas, 0, unless the policy has a smoothing.
    """
    after = life.start_delay / seconds + 1.0
    start, each = first * life.serving, replica.planned_rate(limits)
    others = jnp.broadcast_to(beside, rates.shape)

    def part(serve: Array, coming: Array, others: Array) -> Array:
        """Requests/s of the pool."""
        return coming * serve * each / or_one(serve * each + others)

    rate = part(start, rates[0], others[0]) / or_one(start)
    running = replica.at_rate(rate, or_one(start)).running * start
    history = jnp.full(depth, 1.0) * first
    state = policy.begin(first, depth, replica, limits)

    edge = partial(replica.blend, replica.rows_at_rate(BUSY * replica.capacity))

    def step(carry: _Now, now: tuple[Array, Array, Array]) -> tuple[_Now, Course]:
        state, history, cohorts, busy, rate = carry
        i, coming, others = now
        ready, count = jnp.sum(cohorts.replicas), jnp.sum(cohorts.running, axis=-1)
        chance = replica.waiting_at(count / or_one(cohorts.replicas), or_one(ready))
        chance = jnp.minimum(chance, _growth(replica, busy) * edge(or_one(ready)).waiting)
        waiting = jnp.sum(chance * cohorts.replicas + cohorts.queue)
        seen = Observed(i, seconds, rate, jnp.sum(count) + waiting, waiting, ready, history[0])
        state, wanted = policy.decide(state, seen)
        history = jnp.concatenate([wanted[None], history[:-1]])
        serve = life.serving * extreme(history, after, largest=False)
        coming, cohorts = part(serve, coming, others), cohorts.scale(serve)
        cohorts, *moved = cohorts.serve(replica, coming * seconds, seconds, or_one(serve))
        came, admitted = (x / seconds for x in moved)
        one = cohorts.each
        count = jnp.sum(one.running, axis=-1)
        busy = jnp.where(count < edge(or_one(serve)).running, 0.0, busy + seconds)
        leaving = jnp.maximum(seen.replicas - wanted, 0.0)
        every = cohorts.replicas, came, count, one.queue, busy, admitted
        course = Course(coming, wanted, serve, leaving, *every)
        return (state, history, cohorts.merge(), busy, coming), course

    numbers = jnp.arange(len(rates), dtype=rates.dtype)
    cohorts = Cohorts.of(start, running * replica.stages)
    carry = (state, history, cohorts, jnp.zeros(2), jnp.zeros_like(start))
    _, course = lax.scan(step, carry, (numbers, rates, others))
    return course._replace(waits=_waits(course, course.waits, replica.capacity, seconds))


def _waits(course: Course, admitted: Array, capacity: Array, seconds: Array) -> Array:
    """Seconds until each step's first and last request are admitted, of every cohort.

    One of its replicas has ``admitted`` so many requests/s. A queue that ends within a step leaves
    time to admit more; once young replicas are as the others, what waited there is admitted as it
    is at those.
    """
    can = jnp.where(course.queue > 0.0, admitted, jnp.maximum(admitted, capacity))
    can = jnp.maximum(jnp.where(course.replicas > 0.0, can, can[:, :1]), SLOWEST)
    last = jax.vmap(backlog_wait, (1, 1, None), 1)(course.queue, can, seconds)
    return jnp.stack([jnp.concatenate([0.0 * last[:1], last[:-1]]), last], axis=-1)


def backlog_wait(backlog: Array, capacity: Array, seconds: Array) -> Array:
    """Seconds until a backlog is served by the capacity of later steps, in the order of arrival.

    The horizontal distance of the cumulative curves (Newell, Applications of Queueing Theory,
    1982, 2); after the last step the capacity stays.
    """
    time = (1.0 + jnp.arange(len(backlog))) * seconds
    served = jnp.cumsum(capacity * seconds)
    level = served + backlog
    beyond = jnp.maximum(level - served[-1], 0.0) / capacity[-1]
    return jnp.where(backlog > 0.0, jnp.interp(level, served, time) - time + beyond, 0.0)


def service_of(course: Course, replica: Replica) -> Service:
    """What requests meet once a replica has admitted them, by step and cohort.

    By what runs; but waits by chance take time to grow beyond those of a load of ``BUSY``.
    """
    copies = course.ready[:, None]
    near = replica.at(course.running, copies)
    edge = replica.at_rate(BUSY * replica.capacity + 0.0 * copies, copies)
    growth = _growth(replica, course.busy)

    def calm(time: Array, least: Array, most: Array, growth: Array) -> Array:
        return jnp.minimum(time, least + growth * jnp.maximum(most - least, 0.0))

    return near._replace(
        ttft=calm(near.ttft, near.prefill, edge.ttft, growth),
        ttft_at=calm(near.ttft_at, near.prefill[..., None], edge.ttft_at, growth[..., None]),
        waiting=jnp.minimum(near.waiting, growth * edge.waiting),
    )


def _growth(replica: Replica, busy: Array) -> Array:
    """Waits by chance over those of a load of ``BUSY``, in a replica that is ``busy`` for so long.

    At a load u they are as 1 / (1 - u) (Kingman 1961, Mathematical Proceedings 57), and settle in
    (1 - u)^-2 services: until then they grow as the root of the time.
    """
    services = jnp.maximum(replica.capacity * busy, 1.0)
    return jnp.maximum((1.0 - BUSY) * jnp.sqrt(services), 1.0)


def goodput(rate: Array, share: Array) -> Array:
    """Share of all requests, of ``share`` of those at each rate; 1 where there are none."""
    total = jnp.sum(rate)
    some = total > 0.0
    return jnp.where(some, jnp.sum(rate * share) / jnp.where(some, total, 1.0), 1.0)


def period_ttft(rate: Array, waits: Array, service: Service, share: Array) -> Array:
    """Seconds within which ``share`` of a period's requests have their first token.

    The root of sum_i a_i P(TTFT_i <= t) = share sum_i a_i over its steps, cohorts and pools; of a
    period without requests, that of its replicas.
    """
    weight = jnp.where(jnp.sum(rate) > 0.0, rate, 1.0)
    longest = service.prefill + (1.0 + SHARPEST) * jnp.max(waits, axis=-1)
    high = jnp.max(jnp.maximum(service.ttft_within(share), longest))

    def beyond(t: Array) -> Array:
        inside = service.share_within(t, waits) - share
        return jnp.sum(weight * inside) / jnp.sum(weight)

    return crossing(beyond, jnp.zeros_like(high), high)
