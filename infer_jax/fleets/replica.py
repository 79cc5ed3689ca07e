"""One replica at every load: rates, requests in flight, TTFT, TPOT and power, as a table.

The open loop of an estimator is evaluated once from idle to nearly full; a fleet reads the table.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from infer_jax.estimators.serving import ServerEstimate
from infer_jax.physics.numerics import Smoothing
from infer_jax.physics.scheduling import LEVELS
from infer_jax.specs import Hardware, Spec, number, spec

Columns = TypeVar("Columns")
Real = Array | np.ndarray | float
POINTS = 64  # loads of a table
# share of capacity where a table ends: at higher loads a queue settles more slowly than traffic
# changes, over (1 - load)^-2 services, so that what waits beyond is counted and not stationary
FULLEST = 0.99
IDLE = 1e-6  # requests/s of a replica whose requests never meet
COPIES = (1.0, 2.0, 4.0, 16.0, math.inf)  # of a table
# what a router to the shortest queue leaves of Poisson arrivals at one of very many copies, and how
# much less that is at capacity: not derived, but fitted to replays
UNEVEN, FULLER = 0.85, 0.6
FED = 0.9  # of the rate of prompts alone, at most, beside requests that decode
STAGES = 3  # of an answer: its time varies by 1 / 3, squared over its mean's square
SHARPEST = 0.02  # width of a distribution without waits, as a share of its median
DEPTHS = tuple(-math.log1p(-level) for level in LEVELS)  # -log(1 - level)


@spec
class ServiceLimits(Spec):
    """What a good request keeps, and which share of the requests is to be good."""

    ttft: Array = number("limit of the time to first token", unit="s", kind="time", default=2.0)
    tpot: Array = number("limit of the mean time per output token", unit="s", kind="time",
                         default=0.05)  # fmt: skip
    goodput: Array = number(
        "share of the requests that is to keep both", kind="fraction", high=0.9999, default=0.99
    )


class Service(NamedTuple):
    """What requests meet in a replica, at one load or, with a leading axis, at several."""

    rate: Array  # requests/s that are answered
    in_flight: Array  # requests sent and not answered
    waiting: Array  # those among them that wait to be scheduled
    ttft: Array  # mean, s
    ttft_at: Array  # percentiles ``LEVELS``, s; last axis
    tpot: Array  # mean, s
    latency: Array  # mean, s
    power: Array  # W of all chips

    def ttft_within(self, share: Array | float) -> Array:
        """Seconds within which that share of the requests has its first token.

        Linear in -log(1 - share) between percentiles and beyond the last, where tails are
        exponential; from 0 up to the median.
        """
        depth, (times, depths, scale) = -jnp.log1p(-jnp.asarray(share)), self._tail
        inside = jnp.vectorize(lambda t: jnp.interp(depth, depths, t), signature="(k)->()")
        return inside(times) + jnp.maximum(depth - depths[-1], 0.0) * scale

    def share_within(self, time: Array) -> Array:
        """Share of the requests whose first token comes within ``time`` s; 0 where that is < 0."""
        times, depths, scale = self._tail
        inside = jnp.vectorize(lambda x, t: jnp.interp(x, t, depths), signature="(),(k)->()")
        return -jnp.expm1(-(inside(time, times) + jnp.maximum(time - times[..., -1], 0.0) / scale))

    @property
    def _tail(self) -> tuple[Array, Array, Array]:
        """Percentiles from 0, their -log(1 - level), and seconds of an e-fold beyond the last."""
        times = jnp.concatenate([jnp.zeros_like(self.ttft_at[..., :1]), self.ttft_at], axis=-1)
        slope = (self.ttft_at[..., -1] - self.ttft_at[..., -2]) / (DEPTHS[-1] - DEPTHS[-2])
        scale = jnp.maximum(slope, SHARPEST * self.ttft_at[..., 0])
        return times, jnp.asarray((0.0, *DEPTHS), times.dtype), scale


class Replica(NamedTuple):
    """One replica: its service at a grid of rates, the most it serves, and its rent.

    Rows of ``levels`` are [copies, rates]: the first axis is of the number of ``copies`` that
    share what arrives, of which each has more even arrivals the more there are. The first rate is
    that of an idle replica, the last one ``FULLEST`` of ``capacity``, requests/s.
    """

    levels: Service
    copies: Array  # from 1 on, rising
    capacity: Array
    usd_per_hour: Array
    prompts: Array  # the most of them a second, were nothing decoded
    stages: Array  # the share of an answer's time that each takes

    @classmethod
    def of(
        cls, service: Service, capacity: Array, usd_per_hour: Array, stages: int = STAGES
    ) -> "Replica":
        """One whose service depends neither on how many there are nor on how fast prompts come."""
        levels = jax.tree.map(lambda x: x[None], service)
        alone = jnp.ones(1), capacity, usd_per_hour, jnp.asarray(jnp.inf)
        return cls(levels, *alone, equal_stages(stages))

    @property
    def service(self) -> Service:
        """That of a replica which is alone."""
        return jax.tree.map(lambda x: x[0], self.levels)

    def at(self, in_flight: Array, copies: Array | float = 1.0) -> Service:
        """The service with so many requests in flight; of more than the table has, its last row."""
        return self._between(lambda x: _read(x, x.in_flight, in_flight), copies)

    def at_rate(self, rate: Array, copies: Array | float = 1.0) -> Service:
        """The service of so many requests/s in the long run; of more than it has, its last row."""
        return self._between(lambda x: _read(x, x.rate, rate), copies)

    def idle_times(self, goodput: Array) -> tuple[Array, Array]:
        """TTFT that the share ``goodput`` of the requests keeps, s, and mean TPOT, s, when idle."""
        idle = self.at_rate(jnp.zeros_like(self.capacity))
        return idle.ttft_within(goodput), idle.tpot

    def full(self, copies: Array | float = 1.0) -> Array:
        """Requests in flight beyond which they wait outside."""
        return self._between(lambda x: x.in_flight[-1], copies)

    def after(
        self, held: Array, queue: Array, arriving: Array, seconds: Array,
        copies: Array | float = 1.0,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Requests ``held`` in each stage of their answer and in the ``queue``, after some time.

        In ``seconds`` ``arriving`` requests/s come. Those and the queue are fed as fast as prompts
        alone are, ``FED`` of m requests/s so that decoding goes on, and while the replica holds
        less than its table does. An answer takes stages of one length, so that a burst of requests
        leaves as one (the method of stages: Cox 1955, Mathematical Proceedings 51), together

            n / f(n) (1 - f(n) / m) / (1 - r / m)

        seconds, f answers/s of the long run with n in flight and r/s those that are fed: requests
        decode in what prompts leave. Implicit, so that no step is too long.
        """
        in_flight = self._settled(jnp.sum(held) + queue, arriving, seconds, copies)
        full, coming = self.full(copies), queue + seconds * arriving
        there = jnp.minimum(in_flight, full)
        near = self.at(there, copies)
        rate = jnp.where(in_flight < full, near.rate, self.capacity)
        latency = jnp.where(rate > 0.0, there / jnp.where(rate > 0.0, rate, 1.0), near.latency)
        room = jnp.maximum(full - jnp.sum(held), 0.0) + seconds * rate
        fed = jnp.minimum(jnp.minimum(coming, seconds * FED * self.prompts), room)
        decoding, usual = (1.0 - jnp.minimum(x / self.prompts, FED) for x in (fed / seconds, rate))
        turns = seconds * len(held) / latency * decoding / usual
        stays, goes = 1.0 / (1.0 + turns), turns / (1.0 + turns)

        def stage(before: Array, here: Array) -> tuple[Array, Array]:
            left = here * stays + before * goes
            return left, left

        _, left = lax.scan(stage, jnp.zeros_like(queue), held)
        parts = stays * goes ** jnp.arange(len(held))
        fed = jnp.minimum(fed, jnp.maximum(full - jnp.sum(left), 0.0) / jnp.sum(parts))
        return left + fed * parts, coming - fed

    def _settled(
        self, in_flight: Array, arriving: Array, seconds: Array, copies: Array | float
    ) -> Array:
        """Requests in flight after some time, were each answered at once as in the long run.

        n' + dt f(n') = n + dt a (pointwise stationary fluid flow; Wang, Tipper and Banerjee 1996,
        INFOCOM). Beyond the table f is the capacity, and the fluid's slope is the mean of both
        where they meet.
        """
        coming = in_flight + seconds * arriving

        def in_flight_after(grid: Service) -> Array:
            level = grid.in_flight + seconds * grid.rate
            beyond = coming - grid.in_flight[-1] - seconds * self.capacity
            return jnp.interp(coming, level, grid.in_flight) + jnp.maximum(beyond, 0.0)

        return self._between(in_flight_after, copies)

    def rate_within(self, limits: ServiceLimits, copies: Array | float = 1.0) -> Array:
        """The most requests/s within ``limits``; 0 where an idle replica breaks them."""

        def rate_of(service: Service) -> Array:
            ttft = service.ttft_within(limits.goodput)
            return _rate_at(service, ttft, limits.ttft, limits.tpot)

        return self._between(rate_of, copies)

    def planned_rate(self, limits: ServiceLimits, copies: Array | float = 1.0) -> Array:
        """Requests/s that it is counted with: within ``limits``, or where none are all."""
        within = self.rate_within(limits, copies)
        return jnp.where(within > 0.0, within, self.capacity)

    def planned_in_flight(self, limits: ServiceLimits) -> tuple[Array, Array]:
        """Requests in flight at the planned rate, and beyond which they wait outside."""
        return self.at_rate(self.planned_rate(limits)).in_flight, self.full()

    def mean_rate_within(self, ttft: Array, tpot: Array) -> Array:
        """The most requests/s of one alone whose mean TTFT and TPOT are within limits."""
        return _rate_at(self.service, self.service.ttft, ttft, tpot)

    def _between(self, read: Callable[[Service], Columns], copies: Array | float) -> Columns:
        """What is read of every level, linear in 1 / copies between them."""
        rows, x = jax.vmap(read)(self.levels), -1.0 / jnp.maximum(jnp.asarray(copies), 1.0)
        units, grid = jnp.eye(len(self.copies)), -1.0 / self.copies
        parts = jax.vmap(lambda unit: jnp.interp(x, grid, unit))(units)

        def mean(column: Array) -> Array:
            both, size = (parts, column), max(parts.ndim, column.ndim)
            share, value = (x.reshape(x.shape + (1,) * (size - x.ndim)) for x in both)
            return jnp.sum(share * value, axis=0)

        return jax.tree.map(mean, rows)


def equal_stages(count: int) -> Array:
    """The share of an answer's time that each of ``count`` stages of one length takes."""
    return jnp.full(count, 1.0 / count)


def _rate_at(service: Service, times: Array, ttft: Array, tpot: Array) -> Array:
    """The largest rate up to which neither ``times`` nor TPOT is above its limit, else 0."""
    rates = list[Array]()
    for values, limit in ((times, ttft), (service.tpot, tpot)):
        rising = lax.cummax(values)
        within = jnp.interp(limit, rising, service.rate)
        rates.append(jnp.where(rising[0] <= limit, within, 0.0))
    return jnp.minimum(*rates)


def share_good(
    service: Service, limits: ServiceLimits, wait: Array | float = 0.0, smoothing: Smoothing = None
) -> Array:
    """Share of the requests that keep both limits, ``wait`` s before a replica takes them.

    The laws have the mean TPOT alone: beyond its limit no request is good, or with a smoothing a
    share that falls over so much of the limit.
    """
    ttft = service.share_within(limits.ttft - wait)
    if smoothing is None:
        return jnp.where(service.tpot <= limits.tpot, ttft, 0.0)
    return ttft * jax.nn.sigmoid((1.0 - service.tpot / limits.tpot) / smoothing)


def _read(columns: Columns, grid: Array, x: Array) -> Columns:
    """Rows between those of the table, linear in ``grid``; its ends beyond them."""
    above = jnp.clip(jnp.searchsorted(grid, x, side="right"), 1, len(grid) - 1)
    low, high = grid[above - 1], grid[above]
    share = jnp.clip((x - low) / jnp.where(high > low, high - low, 1.0), 0.0, 1.0)

    def between(column: Array) -> Array:
        part = share[..., None] if column.ndim > 1 else share
        return column[above - 1] + part * (column[above] - column[above - 1])

    return jax.tree.map(between, columns)


def loads() -> np.ndarray:
    """Shares of capacity of a table: even at first, and ever closer to each other when full."""
    near = 1.0 - np.geomspace(0.5, 1.0 - FULLEST, POINTS // 2)
    return np.r_[np.linspace(0.0, 0.5, POINTS // 2, endpoint=False), near]


def routed_variability(variability: Real, copies: Real, load: Real) -> Real:
    """Variability of the arrivals at one of ``copies`` behind a router to the shortest queue.

    c^2 / n + (1 - 1 / n) (0.85 - 0.6 u), u the load. c^2 / n is what every n-th arrival has, as of
    a router that goes round (Cox, Renewal Theory, 1962). With the second term p99 of TTFT is within
    15 % in 92 % of 144 replays: 2, 4 and 16 copies of four models, p99 up to 2 s.
    """
    even = 1.0 / copies
    return even * variability + (1.0 - even) * (UNEVEN - FULLER * load)


def tabulate(
    estimate: Callable[..., ServerEstimate], hardware: Hardware,
    variability: float, prompts: float = math.inf, copies: Sequence[float] = COPIES,
) -> Replica:  # fmt: skip
    """The table of an instance, from its estimates at arrival rates, requests/s, and variabilities.

    ``estimate`` is evaluated at ``POINTS`` rates: for the capacity, then for each of the ``copies``
    that share arrivals of this ``variability``. ``prompts``: those that it computes alone a second.
    """
    idle = estimate(np.full(POINTS, IDLE), np.full(POINTS, variability))
    load, chips, capacity = loads(), np.asarray(idle.chips)[0], capacity_of(idle)

    def level(copies: float) -> Service:
        varied = routed_variability(variability, copies, load)
        return _service(load * capacity, estimate(np.maximum(load * capacity, IDLE), varied))

    levels: Any = jax.tree.map(lambda *x: np.stack(x), *map(level, copies))
    rent, stages = chips * np.asarray(hardware.price), np.full(STAGES, 1.0 / STAGES)
    rest: Any = (np.asarray(x, load.dtype) for x in (copies, capacity, rent, prompts, stages))
    return Replica(levels, *rest)


def capacity_of(answer: ServerEstimate) -> float:
    """The most requests/s, of the first row of estimates of one instance."""
    return float(np.asarray(answer.decode.limits["arrivals"].capacity)[0])


def _service(rate: Any, answer: Any) -> Service:
    """Of NumPy's arrays, as programs that are kept answer."""
    ttft_at: Any = np.stack([answer.percentiles[f"p{100 * x:g}"] for x in LEVELS], axis=-1)
    waits = answer.prefill.terms["queue"] + answer.prefill.terms["other prefills"]
    return Service(
        rate=rate,
        in_flight=rate * answer.latency,
        waiting=rate * waits,
        ttft=answer.ttft,
        ttft_at=ttft_at,
        tpot=answer.tpot,
        latency=answer.latency,
        power=answer.power * answer.chips,
    )
