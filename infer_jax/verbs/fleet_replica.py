"""The replicas of a fleet, and their tables."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.arrivals import Traffic
from infer_jax.compiling import SOME, once
from infer_jax.estimators.serving import Deployment, ServerEstimate, shape
from infer_jax.fleets import (
    Conditions,
    Lifecycle,
    Replica,
    ServiceLimits,
    ramp,
    steps_of,
    surges,
    tabulate,
)
from infer_jax.fleets.replica import POINTS
from infer_jax.planning import Layout, Requirements
from infer_jax.planning.instances import PlannedServer, degrees, instance_estimates
from infer_jax.results import option
from infer_jax.results.numbers import size
from infer_jax.results.problems import refuse
from infer_jax.verbs import inputs
from infer_jax.verbs.fleet_policies import HOUR, Fleet, Pool
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.progress import busy
from infer_jax.verbs.split import LayoutOptions, check_split
from infer_jax.verbs.texts import unique_texts

GIGA = 1e9
MOST_STEPS = 1_000_000  # half a year in steps of 15 s


class FleetReplica(NamedTuple):
    """A replica of a fleet: its layout, its table, the bytes of its weights, and its GPUs.

    ``found``: whether the layout is the cheapest plan's.
    """

    setup: Setup
    layout: Layout
    replica: Replica
    weights: float
    chips: float
    found: bool

    @property
    def name(self) -> str:
        """What it runs on, in words."""
        return f"{self.layout} {self.setup.system.name}"


def steps_of_traffic(traffic: Traffic, seed: int) -> tuple[Array, Array]:
    """Requests/s of each step, and its seconds.

    Raises:
        InputError: traffic without requests, or of too many steps.
    """
    rates, period = np.asarray(traffic.rates), float(traffic.period)
    steps = steps_of(period)
    if not rates.max() > 0.0 or len(rates) * steps > MOST_STEPS:
        allowed = "requests at some time, and half a year at most"
        raise refuse("traffic", f"{len(rates)} periods of {period:g} s", allowed)
    seconds = jnp.asarray(period / steps)
    factors = surges(seed, len(rates) * steps, seconds, jnp.asarray(traffic.surge),
                     jnp.asarray(traffic.sojourn))  # fmt: skip
    return ramp(jnp.asarray(rates), steps) * factors, seconds


def plans_of(
    setups: Sequence[Setup], layout: str | Sequence[str] | None, tp: Mapping[str, float | None]
) -> list[tuple[Setup, Layout | None]]:
    """The systems and layouts of replicas: one of each system, or several layouts of one.

    Raises:
        InputError: other numbers of both, a layout of several copies.
    """
    texts = unique_texts(layout) or [None]
    if 1 not in (len(setups), len(texts)) and len(setups) != len(texts):
        raise refuse("layout", f"{len(texts)} of them", f"one, or {len(setups)} as of systems")
    pools = [LayoutOptions.of(x, tp).pool for x in texts]
    for text, pool in zip(texts, pools, strict=True):
        if pool is not None and pool.copies > 1:
            allowed = f"one replica, without a number: {option('layout', str(pool.layout))}"
            raise refuse("layout", text, allowed)
    count = max(len(setups), len(pools))
    every = zip([*setups] * (count // len(setups)), pools * (count // len(pools)), strict=True)
    return [(setup, pool.layout if pool else None) for setup, pool in every]


def fleet_of(
    replicas: Sequence[FleetReplica], start: tuple[float, float | None, float],
    available: Mapping[str, float], given: tuple[ServiceLimits, Array, Array, float, float],
    traffic: Traffic, most: float | None,
) -> Fleet:  # fmt: skip
    """The question about pools of such replicas.

    ``start``: seconds until a replica serves, GB/s of the link that its weights come over,
    departures an hour; ``available``: GPUs of systems; ``given``: limits, requests/s and seconds
    of steps, PUE and kg of CO2 for a kWh; ``most``: replicas of an autoscaler.

    Raises:
        InputError: fewer GPUs than a replica has.
    """
    limits, rates, seconds, pue, grid = given
    delay, bandwidth, departures = start
    pools = list[Pool]()
    for one in replicas:
        link = 0.0 if bandwidth is None else one.weights / (GIGA * bandwidth)
        life = Lifecycle.of(start_delay=delay + link, departures=departures)
        gpus = available.get(one.setup.system.name, np.inf)
        if gpus < one.chips:
            raise refuse("available", gpus, f"at least the {one.chips:g} GPUs of {one.name}")
        pools.append(Pool(one.name, one.replica, life, float(np.floor(gpus / one.chips))))
    one, pue, grid = (jnp.asarray(x) for x in (1.0, pue, grid))
    first = pools[0]
    conditions = Conditions(first.replica, first.life, limits, rates, seconds, one, pue, grid)
    return Fleet(conditions, tuple(pools), np.asarray(traffic.rates), float(traffic.period), most)


def find_replica(
    setup: Setup, name: str, layout: Layout | None, traffic: Traffic, limits: ServiceLimits
) -> FleetReplica:
    """The replica of a layout; of the cheapest plan for the busiest period where None is given.

    Raises:
        InputError: a replica that has no memory for a request, or breaks the limits while it is
            idle.
    """
    found, busiest = layout is None, float(np.max(traffic.rates))
    inputs.check_context(setup.model, traffic.workload(busiest))
    serving, arch = inputs.serving(name, setup), setup.model.architecture
    layout = layout or _cheapest(setup, name, traffic, busiest, limits)
    check_split(arch, layout)
    rows, models = degrees([layout], np.zeros(POINTS, int)), (once(shape, arch), None)
    server = PlannedServer(serving, models, setup.hardware, traffic.workload(1.0), Deployment.of())
    answers = list[ServerEstimate]()

    def estimate(rate: Array) -> ServerEstimate:
        answers.append(once(instance_estimates, server, rows, np.asarray(rate), points=SOME))
        return answers[-1]

    with busy("evaluating a replica at every load"):
        replica = tabulate(estimate, setup.hardware)
    memory = answers[0].decode.limits["memory"]
    need, room = (float(np.asarray(x)[0]) for x in (memory.need, memory.capacity))
    if need > room:
        allowed = f"one whose {size(need)} of a GPU fit into {size(room)}"
        raise refuse("layout", str(layout), allowed)
    idle, share = replica.at_rate(jnp.asarray(0.0)), float(limits.goodput)
    for field, least, words in (
        ("ttft", float(idle.ttft_within(share)), f"p{100 * share:.4g} of TTFT"),
        ("tpot", float(idle.tpot), "TPOT"),
    ):
        if least > (limit := float(getattr(limits, field))):
            allowed = f"above {1e3 * least:.4g}ms, the {words} of an idle replica"
            raise refuse(field, f"{1e3 * limit:.4g}ms", allowed)
    chips = float(answers[0].chips[0])
    weights = float(answers[0].memory["weights"][0]) * chips
    return FleetReplica(setup, layout, replica, weights, chips, found)


def _cheapest(
    setup: Setup, name: str, traffic: Traffic, rate: float, limits: ServiceLimits
) -> Layout:
    """The layout of the cheapest plan for the busiest period, as ``plan`` finds it.

    Its limit of TTFT is of p99, or of p95 where fewer requests are to keep it.

    Raises:
        InputError: no plan is within limits.
    """
    from infer_jax.verbs.plan_search import Question, plans
    from infer_jax.verbs.requests import RequestOptions

    work = traffic.workload(rate)
    longest = float(np.max(traffic.prompts) + np.max(traffic.outputs))
    ttft, tpot = float(limits.ttft), float(limits.tpot)
    first = "p99_ttft" if limits.goodput > 0.95 else "p95_ttft"
    bounds = {first: ttft, "tpot": tpot if tpot < HOUR else None}
    question = Question(
        setup.model,
        [setup.system],
        RequestOptions(work, "traffic", [], longest),
        Requirements.of(frontier=False, rate=rate, **bounds),
        estimator=name,
        rents={setup.system.name: float(setup.hardware.price)},
        engine_version=setup.engine_version,
        modes=("aggregated",),
        top=1,
        set=setup.changes.texts,
    )
    answer = plans(question)
    if answer.best is None:
        near = answer.missed[0].layout if answer.missed else "none"
        allowed = f"more: no plan for {rate:.4g} requests/s keeps the limits, the nearest is {near}"
        raise refuse("ttft", f"{1e3 * ttft:.4g}ms", f"{allowed}; or {option('layout')}")
    return answer.best.pools[0].layout
