"""Offline work beside an online fleet: on its idle replicas, and on those that are not full."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from infer_jax.arrivals import Traffic
from infer_jax.arrivals.description import dependence, levels_of
from infer_jax.arrivals.traffic import MIDDLES, POINTS
from infer_jax.errors import InputError
from infer_jax.fleets import ServiceLimits, steps_of
from infer_jax.fleets.fluid import HOUR
from infer_jax.results.problems import refuse
from infer_jax.verbs.fleet_replica import find_replica, steps_of_traffic
from infer_jax.verbs.offline_jobs import OfflinePlan

MANY = 1e6  # requests of the long run
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of offline requests among all that a replica serves


class IdleHours(NamedTuple):
    """What an online fleet leaves to offline work: arrays over periods.

    Replicas that are idle, and offline requests an hour that these end, and those that serve.
    """

    paid: float
    hours: np.ndarray  # of the day
    idle: np.ndarray
    ended: np.ndarray
    beside: np.ndarray


def idle_hours(
    plan: OfflinePlan, name: str, traffic: Traffic, limits: ServiceLimits, paid: float | None
) -> IdleHours:
    """Offline requests on the ``paid`` replicas of an online fleet, by period.

    A replica is needed where fewer break the limits at some time of a period. One that is idle for
    T seconds ends as many as in T - loss of the long run: its batch is filled and drained. Those
    that serve take as many more as keep the limits of both together.

    Raises:
        InputError: limits that no replica keeps, or fewer paid replicas than the traffic needs.
    """
    served = _frontier(plan, name, traffic, limits)
    alone = next(served)
    period = float(traffic.period)
    rates = np.reshape(steps_of_traffic(traffic, 0)[0], (-1, steps_of(period)))
    need = np.maximum(np.ceil(rates.max(axis=1) / alone[0]), 1.0)
    if paid is not None and paid < need.max():
        raise refuse("replicas", paid, f"at least the {need.max():g} of the busiest period")
    paid = float(need.max()) if paid is None else paid
    few, many = (plan.job(x * MANY).makespan for x in (1.0, 2.0))
    loss, idle = 2.0 * few - many, paid - need
    ends = np.zeros(len(idle))
    for level in np.arange(paid):
        spell = idle > level
        # numbers of the spells of one replica, by period
        number = np.cumsum(np.diff(spell, prepend=False) & spell) * spell
        seconds = np.bincount(number) * period
        share = np.maximum(1.0 - loss / np.maximum(seconds, period), 0.0)
        ends += np.where(spell, share[number], 0.0)
    online, offline = np.array([alone, *served]).T
    more = np.interp(rates / need[:, None], online[::-1], offline[::-1]).mean(axis=1) * need
    return IdleHours(paid, traffic.hours, idle, HOUR * MANY / (many - few) * ends, HOUR * more)


def _frontier(
    plan: OfflinePlan, name: str, traffic: Traffic, limits: ServiceLimits
) -> Iterator[np.ndarray]:
    """The most requests/s of both kinds that a replica serves within the limits, at ``SHARES``.

    By the open loop of the mixture, whose requests all keep the limits: beyond a share that even an
    idle replica breaks them with, none.
    """
    which, own, job = np.modf(0.5 + 2**0.5 * np.arange(POINTS))[0], traffic.requests, plan.lengths
    rows = np.searchsorted(np.cumsum(job.weight), MIDDLES * float(np.sum(job.weight)))
    other = np.stack([job.prompt, job.output])[:, rows]
    cached = own[0].mean() * float(traffic.reuse), other[0].mean() * (1.0 - float(job.own))
    for share in SHARES:
        mix, (isl, osl) = np.array([1.0 - share, share]), np.where(which < share, other, own)
        mixed = traffic if not share else traffic.with_(
            prompts=levels_of(isl), outputs=levels_of(osl), dependence=dependence(isl, osl),
            reuse=mix @ cached / isl.mean(),
        )  # fmt: skip
        try:
            found = find_replica(plan.setup, name, plan.layout, mixed, limits, copies=(1.0,))
        except InputError:
            if not share:
                raise
            return
        yield mix * found.rate_within(limits)
