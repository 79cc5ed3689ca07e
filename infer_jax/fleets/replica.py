"""One replica at every load: rates, requests in flight, TTFT, TPOT and power, as a table.

The open loop of an estimator is evaluated once from idle to nearly full; a fleet reads the table.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from infer_jax.estimators.serving import ServerEstimate
from infer_jax.physics.numerics import Smoothing
from infer_jax.physics.scheduling import LEVELS
from infer_jax.specs import Hardware, Spec, number, spec

Columns = TypeVar("Columns")
POINTS = 64  # loads of a table
# share of capacity where a table ends: at higher loads a queue settles more slowly than traffic
# changes, over (1 - load)^-2 services, so that what waits beyond is counted and not stationary
FULLEST = 0.99
IDLE = 1e-6  # requests/s of a replica whose requests never meet
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

    The first row is an idle replica, the last one serves ``FULLEST`` of ``capacity``, requests/s.
    """

    service: Service
    capacity: Array
    usd_per_hour: Array

    def at(self, in_flight: Array) -> Service:
        """The service with so many requests in flight; of more than the table has, its last row."""
        return _read(self.service, self.service.in_flight, in_flight)

    def at_rate(self, rate: Array) -> Service:
        """The service of so many requests/s in the long run; of more than it has, its last row."""
        return _read(self.service, self.service.rate, rate)

    def after(self, in_flight: Array, arriving: Array, seconds: Array) -> Array:
        """Requests in flight after some time in which ``arriving`` requests/s come.

        n' + dt f(n') = n + dt a, f(n) the rate at which n in flight are answered in the long run
        (pointwise stationary fluid flow; Wang, Tipper and Banerjee 1996, INFOCOM). Implicit, so
        that no step is too long; beyond the table f is the capacity, and the fluid's slope is the
        mean of both where they meet.
        """
        grid, coming = self.service, in_flight + seconds * arriving
        level = grid.in_flight + seconds * grid.rate
        full = grid.in_flight[-1] + seconds * self.capacity
        return jnp.interp(coming, level, grid.in_flight) + jnp.maximum(coming - full, 0.0)

    def rate_within(self, limits: ServiceLimits) -> Array:
        """The most requests/s within ``limits``; 0 where an idle replica breaks them."""
        ttft = self.service.ttft_within(limits.goodput)
        return self._rate_at(ttft, limits.ttft, limits.tpot)

    def planned_rate(self, limits: ServiceLimits) -> Array:
        """Requests/s that it is counted with: within ``limits``, or where none are all."""
        within = self.rate_within(limits)
        return jnp.where(within > 0.0, within, self.capacity)

    def mean_rate_within(self, ttft: Array, tpot: Array) -> Array:
        """The most requests/s whose mean TTFT and TPOT are within limits."""
        return self._rate_at(self.service.ttft, ttft, tpot)

    def _rate_at(self, times: Array, ttft: Array, tpot: Array) -> Array:
        """The largest rate up to which neither ``times`` nor TPOT is above its limit, else 0."""
        rates = list[Array]()
        for values, limit in ((times, ttft), (self.service.tpot, tpot)):
            rising = lax.cummax(values)
            within = jnp.interp(limit, rising, self.service.rate)
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


def tabulate(estimate: Callable[[Array], ServerEstimate], hardware: Hardware) -> Replica:
    """The table of an instance, from its estimates at several arrival rates, requests/s.

    ``estimate`` is evaluated twice at ``POINTS`` rates: for the capacity, then for the table.
    """
    idle = estimate(jnp.full(POINTS, IDLE))
    capacity = jnp.asarray(idle.decode.limits["arrivals"].capacity)[0]
    rate = jnp.asarray(loads()) * capacity
    answer = jax.tree.map(jnp.asarray, estimate(jnp.maximum(rate, IDLE)))
    waits = answer.prefill.terms["queue"] + answer.prefill.terms["other prefills"]
    service = Service(
        rate=rate,
        in_flight=rate * answer.latency,
        waiting=rate * waits,
        ttft=answer.ttft,
        ttft_at=jnp.stack([answer.percentiles[f"p{100 * x:g}"] for x in LEVELS], axis=-1),
        tpot=answer.tpot,
        latency=answer.latency,
        power=answer.power * answer.chips,
    )
    return Replica(service, capacity, answer.chips[0] * jnp.asarray(hardware.price))
