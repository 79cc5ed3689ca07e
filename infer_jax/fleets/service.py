"""What requests meet in a replica: times, percentiles, and the share that keeps limits."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import Smoothing
from infer_jax.physics.scheduling import LEVELS
from infer_jax.specs import Spec, number, spec

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

    def share_within(self, time: Array | float, waits: Array | None = None) -> Array:
        """Share of the requests whose first token comes within ``time`` s.

        ``waits``: s until the first and the last of them are admitted, last axis, with those of the
        others evenly between. TTFT is then the longer one: as tabulated, where requests wait by
        chance, or such a wait and ``prefill``.
        """
        times, depths, scale = self._tail
        inside = jnp.vectorize(lambda x, t: jnp.interp(x, t, depths), signature="(),(k)->()")
        depth = inside(time, times) + jnp.maximum(time - times[..., -1], 0.0) / scale
        share = -jnp.expm1(-depth)
        if waits is None:
            return share
        low, high = jnp.min(waits, axis=-1), jnp.max(waits, axis=-1)
        some = high > 0.0
        width = jnp.maximum(high - low, SHARPEST * jnp.where(some, high, 1.0))
        admitted = jnp.clip((time - self.prefill - low) / width, 0.0, 1.0)
        return share * jnp.where(some, admitted, 1.0)

    @property
    def running(self) -> Array:
        """Requests that do not wait."""
        return self.in_flight - self.waiting

    @property
    def prefill(self) -> Array:
        """Mean TTFT without waits, s."""
        some = self.rate > 0.0
        return self.ttft - jnp.where(some, self.waiting / jnp.where(some, self.rate, 1.0), 0.0)

    @property
    def _tail(self) -> tuple[Array, Array, Array]:
        """Percentiles from 0, their -log(1 - level), and seconds of an e-fold beyond the last."""
        times = jnp.concatenate([jnp.zeros_like(self.ttft_at[..., :1]), self.ttft_at], axis=-1)
        slope = (self.ttft_at[..., -1] - self.ttft_at[..., -2]) / (DEPTHS[-1] - DEPTHS[-2])
        scale = jnp.maximum(slope, SHARPEST * self.ttft_at[..., 0])
        return times, jnp.asarray((0.0, *DEPTHS), times.dtype), scale


def share_good(
    service: Service, limits: ServiceLimits, waits: Array | None = None, smoothing: Smoothing = None
) -> Array:
    """Share of the requests that keep both limits; ``waits`` as ``Service.share_within`` has them.

    The laws have the mean TPOT alone: beyond its limit no request is good, or with a smoothing a
    share that falls over so much of the limit.
    """
    ttft = service.share_within(limits.ttft, waits)
    if smoothing is None:
        return jnp.where(service.tpot <= limits.tpot, ttft, 0.0)
    return ttft * jax.nn.sigmoid((1.0 - service.tpot / limits.tpot) / smoothing)
