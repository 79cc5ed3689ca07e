"""What a fleet costs: dollars, joules and grams a day; how much of it to reserve."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.fleets.cohorts import or_one
from infer_jax.fleets.fluid import HOUR, Course, service_of
from infer_jax.fleets.replica import Replica

DAY = 24.0 * HOUR
KWH = 3.6e6  # J


class DailyCost(NamedTuple):
    """Means of a day."""

    usd: Array
    joules: Array
    grams: Array


def usd_by_step(course: Course, replica: Replica, seconds: Array) -> Array:
    """USD of each step: replicas that serve and start, and the last requests of those that leave.

    (wanted dt + leaving x latency) x rent.
    """
    latency = service_of(course, replica).latency
    mean = jnp.sum(course.replicas * latency, axis=1) / or_one(course.ready)
    last = course.leaving * jnp.where(course.ready > 0.0, mean, latency[:, 0])
    return (course.wanted * seconds + last) * replica.usd_per_hour / HOUR


def daily_cost(
    course: Course, replica: Replica, seconds: Array, pue: Array, grid: Array
) -> DailyCost:
    """Dollars, joules and grams of CO2 a day.

    Joules are of the replicas that serve, at the power of their load, and of those that start, at
    that of an idle one, times ``pue``; grams are joules at ``grid`` kg/kWh.
    """
    service, days = service_of(course, replica), len(course.rate) * seconds / DAY
    idle = (course.wanted - course.ready) * replica.service.power[0]
    serving = jnp.sum(course.replicas * service.power, axis=1)
    joules = jnp.sum(serving + idle) * seconds * pue / days
    usd = jnp.sum(usd_by_step(course, replica, seconds)) / days
    return DailyCost(usd, joules, joules / KWH * grid * 1e3)


def reserve(replicas: Array, price: Array | float) -> tuple[Array, Array]:
    """Replicas to reserve at a ``price`` that is a share of the one on demand.

    With them how many on demand would cost as much as all. ``replicas``: those of every time,
    [times, ...].

    A replica is worth reserving if it is used for more than that share of the time: the quantile
    1 - price of the replicas over time, the newsvendor's critical ratio (Arrow, Harris and
    Marschak 1951, Econometrica 19). The rest is rented by the hour.
    """
    count = jnp.quantile(replicas, 1.0 - price, axis=0, method="higher")
    more = jnp.mean(jnp.maximum(replicas - count, 0.0), axis=0)
    return count, price * count + more
