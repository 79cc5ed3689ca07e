"""A fleet over time: replicas that are wanted, that serve, and the requests that wait for them."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from infer_jax.fleets.autoscalers import Autoscaler, Observed, State, extreme
from infer_jax.fleets.replica import Replica, Service, ServiceLimits, share_good
from infer_jax.physics.numerics import Smoothing
from infer_jax.physics.root import crossing
from infer_jax.specs import Spec, number, spec

HOUR = 3600.0
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
    """A fleet step by step, arrays of one length."""

    rate: Array  # requests/s that come
    wanted: Array  # replicas that are paid for: those that serve, and those that start
    ready: Array  # those that serve
    in_flight: Array  # requests that one which serves holds, at the end of the step
    leaving: Array  # replicas that leave in the step
    backlog: Array  # requests that no replica has begun
    wait: Array  # s that a request of this step waits until a replica takes it


class _Now(NamedTuple):
    """A pool at the beginning of a step."""

    state: State
    history: Array  # replicas that were wanted, the newest first
    ready: Array
    held: Array  # requests in all replicas, by stage
    queue: Array
    rate: Array  # requests/s of the step before


def depth_of(life: Lifecycle, seconds: float, window: float = 300.0) -> int:
    """Steps that a fleet has to look back, up to the next power of two; ``window`` s of a policy.

    >>> depth_of(Lifecycle.of(start_delay=120.0), 15.0)
    32
    """
    steps = math.ceil(max(float(life.start_delay), window) / seconds) + 2
    return 2 ** (steps - 1).bit_length()


def simulate(
    policy: Autoscaler, replica: Replica, life: Lifecycle, limits: ServiceLimits, rates: Array,
    seconds: Array, first: Array, depth: int, beside: Array | None = None,
) -> Course:  # fmt: skip
    """The course of a pool under a policy, from ``first`` replicas that have served for long.

    A replica serves if it has been wanted for the start delay without a break: of the last wishes
    the least, for what is still starting is given up first. Requests are spread evenly. ``rates``:
    requests/s of each step, ``seconds`` its length, ``depth`` from ``depth_of``; ``beside``:
    requests/s that other pools serve within the limits, by step, where there are others: each gets
    requests in proportion to what it serves. Gradients are those of whole replicas, 0, unless the
    policy has a smoothing.
    """
    after = life.start_delay / seconds + 1.0
    start = first * life.serving
    each, others = replica.planned_rate(limits), jnp.zeros_like(rates) if beside is None else beside

    def spread(serve: Array, coming: Array, others: Array) -> tuple[Array, Array]:
        """Requests/s of the pool, and replicas that they are divided by, 1 where there are none."""
        if beside is None:
            return coming, serve
        own = serve * each
        share = own / jnp.where(own + others > 0.0, own + others, 1.0)
        return coming * share, jnp.where(serve > 0.0, serve, 1.0)

    coming, among = spread(start, rates[0], others[0])
    begun = replica.at_rate(coming / among, among).in_flight * start
    history = jnp.full(depth, 1.0) * first
    state = policy.begin(first, depth, replica, limits)
    nothing = jnp.zeros_like(rates[0])

    def step(carry: _Now, now: tuple[Array, Array, Array]) -> tuple[_Now, tuple[Array, ...]]:
        state, history, ready, held, queue, rate = carry
        i, coming, others = now
        before = spread(ready, rate, others)[1]
        waits = replica.at(jnp.sum(held) / before, before).waiting * ready + queue
        seen = Observed(i, seconds, rate, jnp.sum(held) + queue, waits, ready, history[0])
        state, wanted = policy.decide(state, seen)
        history = jnp.concatenate([wanted[None], history[:-1]])
        serve = life.serving * extreme(history, after, largest=False)
        # those that leave finish what they have
        held = held * jnp.minimum(serve / before, 1.0)
        coming, among = spread(serve, coming, others)
        here, queue = replica.after(held / among, queue / among, coming / among, seconds, among)
        later = wanted, serve, jnp.sum(here), queue * serve, coming
        return _Now(state, history, serve, here * serve, queue * serve, coming), later

    numbers = jnp.arange(len(rates), dtype=rates.dtype)
    carry = _Now(state, history, start, begun * replica.stages, nothing, nothing)
    _, (wanted, ready, held, backlog, coming) = lax.scan(step, carry, (numbers, rates, others))
    leaving = jnp.maximum(-jnp.diff(wanted, prepend=first), 0.0)
    fed = coming - jnp.diff(backlog, prepend=0.0) / seconds
    wait = backlog_wait(backlog, jnp.maximum(fed, SLOWEST), seconds)
    return Course(coming, wanted, ready, held, leaving, backlog, wait)


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
    """What requests meet once a replica has taken them, by step."""
    return replica.at(course.in_flight, course.ready)


def good(
    course: Course, replica: Replica, limits: ServiceLimits, smoothing: Smoothing = None
) -> Array:
    """Share of the requests of each step that keep both limits."""
    return share_good(service_of(course, replica), limits, course.wait, smoothing)


def goodput(rate: Array, share: Array) -> Array:
    """Share of all requests, of ``share`` of those at each rate; 1 where there are none."""
    total = jnp.sum(rate)
    some = total > 0.0
    return jnp.where(some, jnp.sum(rate * share) / jnp.where(some, total, 1.0), 1.0)


def period_ttft(rate: Array, wait: Array, service: Service, share: Array) -> Array:
    """Seconds within which ``share`` of a period's requests have their first token.

    The root of sum_i a_i P(TTFT_i + w_i <= t) = share sum_i a_i over its steps and pools; of a
    period without requests, that of its replicas.
    """
    weight = jnp.where(jnp.sum(rate) > 0.0, rate, 1.0)
    high = jnp.max(service.ttft_within(share) + wait)

    def beyond(t: Array) -> Array:
        inside = service.share_within(t - wait) - share
        return jnp.sum(weight * inside) / jnp.sum(weight)

    return crossing(beyond, jnp.zeros_like(high), high)
