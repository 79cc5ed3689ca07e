"""One replica at every load: rates, requests in flight, TTFT, TPOT and power, as a table.

The open loop of an estimator is evaluated once from idle to nearly full; a fleet reads the table.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from infer_jax.estimators.serving import ServerEstimate
from infer_jax.fleets.service import Service, ServiceLimits
from infer_jax.physics.scheduling import LEVELS
from infer_jax.specs import Hardware

Columns = TypeVar("Columns")
Real = Array | np.ndarray | float
POINTS = 64  # loads of a table
# share of capacity where a table ends: at higher loads a queue settles more slowly than traffic
# changes, over (1 - load)^-2 services, so that what waits beyond is counted and not stationary
FULLEST = 0.99
IDLE = 1e-6  # requests/s of a replica whose requests never meet
COPIES = (1.0, 2.0, 4.0, 16.0, math.inf)  # of a table
# what a router to the shortest queue leaves of Poisson arrivals at one of very many copies, and how
# much less at capacity and where requests are in prefill: not derived, but fitted to replays
UNEVEN, FULLER, PREFILL = 1.3, 0.9, 10.0
FED = 0.9  # of the rate of prompts alone, at most, beside requests that decode
STAGES = 4  # of an answer, at most
LEAST = 1e-9  # share of a stage


class Step(NamedTuple):
    """What becomes of a replica's requests in some seconds, before others are admitted."""

    left: Array  # requests that still run, by stage of their answer
    parts: Array  # of one that is admitted meanwhile: the rest of it is answered
    most: Array  # requests that can be admitted

    def admit(self, coming: Array) -> tuple[Array, Array]:
        """Requests that run, by stage, and those of ``coming`` that wait."""
        count = jnp.minimum(coming, self.most)
        return self.left + count * self.parts, coming - count


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
        cls, service: Service, capacity: Array, usd_per_hour: Array, variation: float = 0.0
    ) -> "Replica":
        """One whose service depends neither on how many there are nor on how fast prompts come.

        Its answers' ``variation`` is that of ``stages_of``.
        """
        levels = jax.tree.map(lambda x: x[None], service)
        alone = jnp.ones(1), capacity, usd_per_hour, jnp.asarray(jnp.inf)
        return cls(levels, *alone, jnp.asarray(stages_of(variation)))

    @property
    def service(self) -> Service:
        """That of a replica which is alone."""
        return jax.tree.map(lambda x: x[0], self.levels)

    def at(self, running: Array, copies: Array | float = 1.0) -> Service:
        """The service while so many requests run; of more than the table has, its last row."""
        return self._between(lambda x: _read(x, x.running, running), copies)

    def waiting_at(self, running: Array, copies: Array) -> Array:
        """Requests that wait by chance while so many run."""
        return self._between(lambda x: _read(x.waiting, x.running, running), copies)

    def at_rate(self, rate: Array, copies: Array | float = 1.0) -> Service:
        """The service of so many requests/s in the long run; of more than it has, its last row."""
        return self._between(lambda x: _read(x, x.rate, rate), copies)

    def idle_times(self, goodput: Array) -> tuple[Array, Array]:
        """TTFT that the share ``goodput`` of the requests keeps, s, and mean TPOT, s, when idle."""
        idle = self.at_rate(jnp.zeros_like(self.capacity))
        return idle.ttft_within(goodput), idle.tpot

    def full(self, copies: Array | float = 1.0) -> Array:
        """Requests that run at most; others wait."""
        return self._between(lambda x: x.running[-1], copies)

    def step(
        self, running: Array, coming: Array, seconds: Array, copies: Array | float = 1.0
    ) -> Step:
        """What becomes of ``running`` requests, by stage of their answer, in some seconds.

        Those ``coming``, with those that wait, are admitted as fast as prompts alone are computed,
        ``FED`` of m requests/s so that decoding goes on, and while no more run than in the table.
        An answer takes its ``stages`` one by one, so that a burst of requests
        leaves as one (Cox 1955, Mathematical Proceedings 51), together

            n / f(n) (1 - f(n) / m) / (1 - r / m)

        seconds, f answers/s of the long run with n running and r/s those that are admitted, which
        leave the rest of the time to decoding. Implicit, so that no step is too long.
        """
        full, count = self.full(copies), jnp.sum(running)
        most = seconds * FED * self.prompts
        after = self._settled(count + jnp.minimum(coming, most), seconds, copies)
        held = jnp.minimum(after, full)
        rate, idle = self._between(lambda x: (_read(x.rate, x.running, held), x.latency[0]), copies)
        rate = jnp.where(after < full, rate, self.capacity)
        time = jnp.where(rate > 0.0, held / jnp.where(rate > 0.0, rate, 1.0), idle)
        most = jnp.minimum(most, jnp.maximum(full - count, 0.0) + seconds * rate)
        admitted = jnp.minimum(coming, most) / seconds
        decoding, usual = (1.0 - jnp.minimum(x / self.prompts, FED) for x in (admitted, rate))
        turns = seconds / (time * self.stages) * decoding / usual

        def stage(comes: Array, here: tuple[Array, Array]) -> tuple[Array, Array]:
            count, turns = here
            left = (count + comes) / (1.0 + turns)
            return turns * left, left

        nothing = jnp.zeros_like(coming)
        _, left = lax.scan(stage, nothing, (running, turns))
        _, parts = lax.scan(stage, nothing + 1.0, (0.0 * running, turns))
        room = jnp.maximum(full - jnp.sum(left), 0.0)
        return Step(left, parts, jnp.minimum(most, room / jnp.sum(parts)))

    def _settled(self, coming: Array, seconds: Array, copies: Array | float) -> Array:
        """Requests that run after some time, were each answered at once as in the long run.

        n' + dt f(n') = n, with those that come (pointwise stationary fluid flow; Wang, Tipper and
        Banerjee 1996, INFOCOM). Beyond the table f is the capacity, and the fluid's slope is the
        mean of both where they meet.
        """

        def running_after(grid: Service) -> Array:
            level = grid.running + seconds * grid.rate
            beyond = coming - grid.running[-1] - seconds * self.capacity
            return _read(grid.running, level, coming) + jnp.maximum(beyond, 0.0)

        return self._between(running_after, copies)

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
        """Requests in flight at the planned rate, and how many run at most."""
        return self.at_rate(self.planned_rate(limits)).in_flight, self.full()

    def mean_rate_within(self, ttft: Array, tpot: Array) -> Array:
        """The most requests/s of one alone whose mean TTFT and TPOT are within limits."""
        return _rate_at(self.service, self.service.ttft, ttft, tpot)

    def rows_at_rate(self, rate: Array) -> Service:
        """The service of so many requests/s, for each of ``copies``."""
        return jax.vmap(lambda x: _read(x, x.rate, rate))(self.levels)

    def blend(self, rows: Columns, copies: Array | float) -> Columns:
        """Columns of every level's ``rows``, linear in 1 / copies between them."""
        x, units = -1.0 / jnp.maximum(jnp.asarray(copies), 1.0), jnp.eye(len(self.copies))
        parts = jax.vmap(lambda unit: jnp.interp(x, -1.0 / self.copies, unit))(units)

        def mean(column: Array) -> Array:
            both, size = (parts, column), max(parts.ndim, column.ndim)
            share, value = (x.reshape(x.shape + (1,) * (size - x.ndim)) for x in both)
            return jnp.sum(share * value, axis=0)

        return jax.tree.map(mean, rows)

    def _between(self, read: Callable[[Service], Columns], copies: Array | float) -> Columns:
        """What is read of every level, blended."""
        return self.blend(jax.vmap(read)(self.levels), copies)


def stages_of(variation: float) -> np.ndarray:
    """The share of an answer's time that each of ``STAGES`` k takes, of which one is longer.

    With exponential stages of shares s_i the time of an answer has the squared coefficient of
    variation sum s_i^2, here ``variation`` between 1 / k, all alike, and 1, one alone.

    >>> [round(x, 3) for x in stages_of(0.5).tolist()]
    [0.683, 0.106, 0.106, 0.106]
    """
    more = STAGES * min(max(variation, 1.0 / STAGES), 1.0) - 1.0
    first = (1.0 + math.sqrt((STAGES - 1.0) * more)) / STAGES
    rest = max((1.0 - first) / (STAGES - 1.0), LEAST)
    return np.array([first, *[rest] * (STAGES - 1)])


def _rate_at(service: Service, times: Array, ttft: Array, tpot: Array) -> Array:
    """The largest rate up to which neither ``times`` nor TPOT is above its limit, else 0."""
    columns = (ttft, times), (tpot, service.tpot)
    within = (jnp.interp(x, lax.cummax(values), service.rate, left=0.0) for x, values in columns)
    return jnp.minimum(*within)


def _read(columns: Columns, grid: Array, x: Array) -> Columns:
    """Rows between those of the table, linear in ``grid``; its ends beyond them.

    As one table of which two rows are read: a column each took twice as long.
    """
    leaves, tree = jax.tree.flatten(columns)
    table = jnp.concatenate([grid[:, None], *(y.reshape(len(grid), -1) for y in leaves)], axis=1)
    above = jnp.clip(jnp.searchsorted(grid, x, side="right"), 1, len(grid) - 1)
    low, high = table[above - 1], table[above]
    gap = high[..., 0] - low[..., 0]
    share = jnp.clip((x - low[..., 0]) / jnp.where(gap > 0.0, gap, 1.0), 0.0, 1.0)
    row, ends = low + share[..., None] * (high - low), np.cumsum([1, *(y[0].size for y in leaves)])
    parts = [row[..., i:j] for i, j in itertools.pairwise(ends.tolist())]
    shaped = (y.reshape(x.shape + z.shape[1:]) for y, z in zip(parts, leaves, strict=True))
    return jax.tree.unflatten(tree, list(shaped))


def loads() -> np.ndarray:
    """Shares of capacity of a table: even at first, and ever closer to each other when full."""
    near = 1.0 - np.geomspace(0.5, 1.0 - FULLEST, POINTS // 2)
    return np.r_[np.linspace(0.0, 0.5, POINTS // 2, endpoint=False), near]


def routed_variability(variability: Real, copies: Real, load: Real, prefill: Real) -> Real:
    """Variability of the arrivals at one of ``copies`` behind a router to the shortest queue.

    c^2 / n + (1 - 1 / n) max(1.3 - 0.9 u - 10 f, 0), u the load and f the share of its time that a
    request is in ``prefill``: of those the router's counts tell, not of how many prompts wait where
    most requests decode. c^2 / n is what every n-th arrival has, as of a router that goes round
    (Cox, Renewal Theory, 1962). With the second term p99 of TTFT is within 15 % in 98 % of 144
    replays: 2, 4 and 16 copies of four models, p99 up to 2 s.
    """
    even = 1.0 / copies
    left = UNEVEN - FULLER * load - PREFILL * prefill
    return even * variability + (1.0 - even) * 0.5 * (left + abs(left))  # NumPy's or JAX's


def tabulate(
    estimate: Callable[..., ServerEstimate], hardware: Hardware, variability: float,
    prompts: float = math.inf, variation: float = 0.0, copies: Sequence[float] = COPIES,
) -> Replica:  # fmt: skip
    """The table of an instance, from its estimates at arrival rates, requests/s, and variabilities.

    ``estimate`` is evaluated at ``POINTS`` rates: for the capacity, then for each of the ``copies``
    that share arrivals of this ``variability``, of which the first is one. ``prompts``: those that
    it computes alone a second; ``variation``: that of the time of an answer, as of ``stages_of``.
    """
    idle = estimate(np.full(POINTS, IDLE), np.full(POINTS, variability))
    load, chips, capacity = loads(), np.asarray(idle.chips)[0], capacity_of(idle)

    def level(varied: Real) -> Service:
        return _service(load * capacity, estimate(np.maximum(load * capacity, IDLE), varied))

    alone = level(np.full(POINTS, variability))
    prefill = alone.ttft / alone.latency
    many = (level(routed_variability(variability, n, load, prefill)) for n in copies[1:])
    levels: Any = jax.tree.map(lambda *x: np.stack(x), alone, *many)
    rent, stages = chips * np.asarray(hardware.price), stages_of(variation)
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
