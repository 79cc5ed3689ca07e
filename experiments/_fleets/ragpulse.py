"""A day of RAGPulse on DeepSeek-V3 and H200, hour by hour, as AISimulate replayed it.

ai-dynamo/aisimulate at 300031b, examples/sweeper/nvopt-ragpulse/results: two pools of 40 and of 72
GPUs, and pools that Dynamo's planner scales. The day is 1,050 requests of RAGPulse, each 512 times
within 30 s of its time, so that requests come in waves of a minute. Hours have counts and mean
lengths; times within an hour are not given, and are drawn. What its authors simulated is not
measured.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._columns import printed_rows
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.estimate import Estimate
from infer_jax.estimators.serving import Deployment
from infer_jax.fleets import (
    Autoscaler,
    Conditions,
    Lifecycle,
    Outcome,
    Predictive,
    Replica,
    Schedule,
    Service,
    ServiceLimits,
    outcome,
    service_of,
)  # fmt: skip
from infer_jax.fleets.replica import loads
from infer_jax.physics.root import crossing
from infer_jax.physics.scheduling import LEVELS
from infer_jax.physics.scheduling.queueing import exponential_tail, mixture, percentiles
from infer_jax.specs import Arrivals, Workload
from infer_jax.verbs import inputs

ROWS = printed_rows("ragpulse_hours.csv")
HOUR, STEP, COPIES, SPREAD = 3600.0, 5.0, 512.0, 60.0  # s, s, copies of a request, s of a wave
LIMITS = ServiceLimits.of(ttft=1.0, tpot=0.05)  # of a request's mean time per token, as theirs
DAYS = 32  # that are drawn
FEWEST, MOST = 1e-3, 512.0  # requests that an instance decodes


class Fleet(NamedTuple):
    """Pools that the authors' search chose, and the engine that runs them."""

    engine: str
    pools: Pools


def _pools(prefill: float, decode: Deployment, copies: float) -> Pools:
    return Pools.of(
        prefill=Deployment.of(tp=8), decode=decode, prefill_copies=prefill, decode_copies=copies
    )


FLEETS = {
    "40": Fleet("sglang", _pools(3, Deployment.of(attention_dp=8), 2)),
    "72": Fleet("sglang", _pools(4, Deployment.of(attention_dp=8, ep=8), 5)),
    # what the planner scales: pairs of one instance each, where its two pools scale by themselves
    "scaled": Fleet("vllm", _pools(1, Deployment.of(tp=8), 1)),
}
ONE_LESS = Fleet("sglang", _pools(3, Deployment.of(attention_dp=8, ep=8), 5))  # that prefills


class HourAnswers(NamedTuple):
    """What requests of an hour meet: share within both limits; times in s."""

    good: np.ndarray
    ttft: np.ndarray
    tpot: np.ndarray
    gpus: np.ndarray


def waves(requests: np.ndarray, days: int, seed: int = 0) -> np.ndarray:
    """Requests/s of the steps of every hour and day: [hours, days, steps].

    Each of N / 512 requests comes 512 times, evenly over a minute, at a time that is even in its
    hour; what leaves the hour at its end comes at its beginning.
    """
    random, steps = np.random.default_rng(seed), round(HOUR / STEP)
    rates = np.zeros((len(requests), days, steps))
    length = round(SPREAD / STEP)
    for i, count in enumerate(requests):
        shares = np.ones(int(np.ceil(count / COPIES)))
        shares[-1] = count / COPIES - len(shares) + 1.0  # a session may be in two hours
        for day in range(days):
            for share, at in zip(shares, random.integers(0, steps, len(shares)), strict=True):
                rates[i, day, (at + np.arange(length)) % steps] += share * COPIES / SPREAD
    return rates


def _pair(fleet: Fleet) -> tuple[Disaggregated, inputs.Setup]:
    setup = inputs.setup("deepseek-v3", "h200_sxm", None, "fp8", None)
    return Disaggregated.of(target=inputs.serving(f"serving.{fleet.engine}", setup)), setup


def beside_the_pass(name: str) -> float:
    """Seconds of a first token in front of the prefill pool, and between the pools."""
    fleet = FLEETS[name]
    pair, _ = _pair(fleet)
    return float(pair.target.front_time(fleet.pools.prefill) + pair.handover)


def replica_of(fleet: Fleet, isl: Array, osl: Array, prefix: Array) -> Replica:
    """The table of two pools: requests that decode by Little's law, waits of one prefill queue."""
    pair, setup = _pair(fleet)
    arch, hardware = setup.model.architecture, setup.hardware
    work = Workload.of(isl=1.0, osl=1.0).replace(isl=isl, osl=osl, prefix=prefix)
    later = osl - 1.0

    def estimate(rate: Array, batch: Array) -> Estimate:
        one = work.replace(batch=batch, arrivals=Arrivals(rate=rate, variability=jnp.ones(())))
        return pair.estimate(arch, hardware, one, fleet.pools)

    def decoding(rate: Array) -> Array:
        each = rate / fleet.pools.decode_copies * later
        return crossing(lambda b: b - each * estimate(rate, b).tpot, jnp.asarray(FEWEST),
                        jnp.asarray(MOST))  # fmt: skip

    capacity = estimate(jnp.asarray(1.0), jnp.asarray(MOST)).prefill.limits["arrivals"].capacity
    rates = jnp.asarray(loads()) * capacity

    def row(rate: Array) -> Service:
        answer = estimate(jnp.maximum(rate, 1e-6), decoding(rate))
        wait = answer.prefill.terms["queue"]
        load = rate / capacity
        mean = wait / jnp.maximum(load, 1e-9)
        tail = exponential_tail(mean, mean**2, load)
        alone = exponential_tail(0.0 * mean, 0.0 * mean, 1.0 - load)
        offset, one = jnp.reshape(answer.ttft - wait, (1,)), jnp.ones(1)
        times = percentiles(LEVELS, offset, one, mixture(alone, tail))
        latency = answer.ttft + later * answer.tpot
        return Service(rate, rate * latency, rate * wait, answer.ttft, jnp.stack(times),
                       answer.tpot, latency, jnp.zeros_like(rate))  # fmt: skip

    # first tokens wait for the pool that prefills, where nothing is held for long
    rent = hardware.price * 8.0
    return Replica.of(jax.lax.map(row, rates), jnp.asarray(capacity), rent, variation=1.0)


def _outcome(
    replica: Replica, limits: ServiceLimits, rates: Array, policy: Autoscaler,
    first: Array | float = 1.0,
) -> Outcome:  # fmt: skip
    """An hour of fleets whose replicas start at once."""
    step, first, one = (jnp.asarray(x) for x in (STEP, first, 1.0))
    life = Lifecycle.of(start_delay=0.0)
    return outcome(2, len(rates), policy, Conditions(
        replica, life, limits, rates, step, first, one, one, one))  # fmt: skip


def hour_answers(
    name: str, interval: float = 60.0, days: int = DAYS, fleet: Fleet | None = None
) -> HourAnswers:
    """All hours of a fleet on drawn days. What scales follows the rate of the last interval, s."""
    fleet, number = fleet or FLEETS[name], lambda key: np.array([float(row[key]) for row in ROWS])
    requests, reuse = number("requests"), number(f"reuse_{name}")
    isl, osl = number("input_tokens") / requests, number("output_tokens") / requests

    def of_hour(hour: tuple[Array, ...]) -> tuple[Array, ...]:
        isl, osl, reuse, rates = hour
        replica = replica_of(fleet, isl, osl, isl * reuse)
        scaled = Predictive.of(interval=interval, minimum=1.0, maximum=16.0)
        steady = Schedule.of(replicas=jnp.ones(rates.shape[1]))

        def of_day(rates: Array) -> tuple[Array, ...]:
            found = _outcome(replica, LIMITS, rates, scaled if name == "scaled" else steady)
            (course,) = found.courses
            met, weight = service_of(course, replica), course.arriving / jnp.sum(rates)
            gpus = jnp.mean(course.wanted) * fleet.pools.chips
            ttft = jnp.maximum(met.ttft, met.prefill + jnp.mean(course.waits, axis=-1))
            return found.goodput, jnp.sum(weight * ttft), jnp.sum(weight * met.tpot), gpus

        return jax.vmap(of_day)(rates)

    columns = (isl, osl, reuse, waves(requests, days))
    all_hours = jax.jit(lambda *columns: jax.lax.map(of_hour, columns))
    return HourAnswers(*map(np.asarray, all_hours(*map(jnp.asarray, columns))))


def printed(name: str) -> HourAnswers:
    """The same as published."""

    def column(key: str, unit: float = 1.0) -> np.ndarray:
        return np.array([float(row[f"{key}_{name}"]) for row in ROWS]) / unit

    gpus = column("gpus") if name == "scaled" else np.full(len(ROWS), float(name))
    return HourAnswers(column("good"), column("ttft", 1e3), column("tpot", 1e3), gpus)


def provisioning(
    share: float = 0.99, most: int = 24, days: int = 8
) -> dict[str, tuple[float, ...]]:
    """Pairs that the busiest hour needs, by its mean rate and by its waves.

    Poisson requests at the mean rate need what one pair carries within limits. Waves need as many
    pairs as keep ``share`` of the requests within both, in the mean over drawn days.
    """
    row = max(ROWS, key=lambda row: float(row["requests"]))
    count, *tokens = (float(row[key]) for key in ("requests", "input_tokens", "output_tokens"))
    isl, osl = (jnp.asarray(x / count) for x in tokens)
    replica = jax.jit(lambda *x: replica_of(FLEETS["scaled"], *x))(isl, osl, isl * 0.0)
    limits = LIMITS.replace(goodput=jnp.asarray(share))
    alone = np.ceil(count / HOUR / float(replica.rate_within(limits)))
    rates = jnp.asarray(waves(np.array([count]), days)[0])

    def good(pairs: Array, rates: Array) -> Array:
        plan = Schedule.of(replicas=jnp.full(rates.shape, pairs))
        return _outcome(replica, limits, rates, plan, pairs).goodput

    every = jnp.arange(1.0, most + 1.0)
    kept = jax.jit(jax.vmap(lambda n: jnp.mean(jax.vmap(lambda x: good(n, x))(rates))))(every)
    needed = float(every[jnp.argmax(kept >= share)])
    return {"provisioning": (100.0 * (1.0 - alone / needed), alone, needed)}


def figures() -> dict[str, tuple[float, ...]]:
    """What the claims are about, by key; shares and GPUs in the mean over drawn days."""
    requests = np.array([float(row["requests"]) for row in ROWS])

    def share(hours: HourAnswers) -> float:
        return float(100.0 * requests @ np.mean(hours.good, axis=1) / sum(requests))

    found: dict[str, tuple[float, ...]] = {}
    for name in ("40", "72"):
        ours, theirs = hour_answers(name), printed(name)
        apart = np.mean(np.abs(np.mean(ours.good, axis=1) - theirs.good))
        found[f"good_{name}"] = share(ours), 100.0 * apart
        quiet = theirs.good > 0.998  # nobody waits
        slower = [np.mean(x, axis=1) / y for x, y in zip(ours, theirs, strict=True)]
        found[f"tpot_{name}"] = (_mean(slower[2]), float(np.sum(np.abs(slower[2] - 1.0) < 0.1)))
        beside = beside_the_pass(name) / theirs.ttft
        found[f"ttft_{name}"] = _mean(slower[1][quiet]), _mean((slower[1] - beside)[quiet])
    (slow, fast), theirs = (hour_answers("scaled", x) for x in (60.0, 5.0)), printed("scaled")
    gpus = np.mean(slow.gpus, axis=1)
    found["gpus"] = float(np.mean(gpus)), 100.0 * float(np.max(np.abs(gpus / theirs.gpus - 1.0)))
    found["good_scaled"] = share(slow), share(fast)
    found["good_72"] += (share(hour_answers("72", fleet=ONE_LESS)),)
    return found


def _mean(ratios: np.ndarray) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(ratios))))
