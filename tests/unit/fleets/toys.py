"""Replicas whose service is known in closed form: exponential servers with one queue."""

import math

import jax.numpy as jnp
import numpy as np

from infer_jax.fleets import (
    Conditions,
    FleetEstimator,
    Horizontal,
    Lifecycle,
    Replica,
    Service,
    ServiceLimits,
)
from infer_jax.fleets.replica import loads
from infer_jax.physics.scheduling import LEVELS
from infer_jax.sweeps import Axis

LIMITS = ServiceLimits.of(ttft=3.0, tpot=0.05, goodput=0.99)


def erlang_c(offered: float, servers: int) -> float:
    """The chance of waiting in M/M/m, from its sum."""
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)


def wait_at(level: float, rate: float, mu: float, servers: int) -> float:
    """The wait (s) of M/M/m that a share ``level`` does not exceed."""
    chance = erlang_c(rate / mu, servers)
    return math.log(max(chance / (1.0 - level), 1.0)) / (servers * mu - rate)


def exponential_replica(servers: int = 4, mu: float = 0.5, first: float = 0.1) -> Replica:
    """M/M/m: ``mu`` answers a second of a server; the first token ``first`` s after the wait."""
    capacity = servers * mu
    rate = loads() * capacity
    chance = np.array([erlang_c(r / mu, servers) for r in rate])
    wait = chance / (capacity - rate)
    times = [[first + wait_at(x, r, mu, servers) for x in LEVELS] for r in rate]
    ones = np.ones_like(rate)
    columns = {
        "rate": rate,
        "in_flight": rate * (wait + 1.0 / mu),
        "waiting": rate * wait,
        "ttft": first + wait,
        "ttft_at": np.array(times),
        "tpot": 0.01 + 0.03 * rate / capacity,
        "latency": wait + 1.0 / mu,
        "power": 100.0 + 600.0 * rate / capacity * ones,
    }
    service = Service(**{name: jnp.asarray(x) for name, x in columns.items()})
    return Replica.of(service, jnp.asarray(capacity), jnp.asarray(3.6))


def conditions(rates, first: float) -> Conditions:
    """Those of a pool of the toy's replicas, without others, in steps of 15 s."""
    one, limits = jnp.asarray(1.0), LIMITS.with_(ttft=8.0)
    step, pue, grid, work = (x * one for x in (15.0, 1.0, 1.0, 2.0))
    replica, life = exponential_replica(), Lifecycle.of()
    return Conditions(replica, life, limits, jnp.asarray(rates), step, first * one, pue, grid, work)


def autoscalers() -> FleetEstimator:
    """Thirty of them under a rate that goes up and down again, for a sweep."""
    rates = np.r_[np.linspace(1.0, 12.0, 60), np.linspace(12.0, 1.0, 60)]
    tried = {"target": Axis.linear(1, 4, 10), "stabilization": Axis.values(30.0, 60.0, 300.0)}
    policy, chips = Horizontal.of().replace(**tried), jnp.array([2.0])
    return FleetEstimator(policy=policy, given=conditions(rates, 3.0), chips=chips, depth=32,
                          steps=20)  # fmt: skip
