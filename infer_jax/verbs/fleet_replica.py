"""The replica of a fleet, its table, and the conditions under which policies are compared."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.arrivals import Traffic
from infer_jax.compiling import SOME, once
from infer_jax.estimators.serving import Deployment, ServerEstimate, Serving, shape
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
from infer_jax.verbs.fleet_policies import Fleet
from infer_jax.verbs.fleet_result import FleetResult
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.progress import busy
from infer_jax.verbs.split import check_split

UNLIMITED = 1e6  # s, where no TPOT is limited
GIGA = 1e9
MOST_STEPS = 1_000_000  # half a year in steps of 15 s


class FleetOptions(NamedTuple):
    """Limits, lifecycle and prices of a fleet; see the options of ``fleet``."""

    ttft: float
    tpot: float | None
    goodput: float
    start_delay: float
    load_bandwidth: float | None
    max_replicas: float | None
    departures: float
    reserved: float
    pue: float
    grid: float
    seed: int

    @property
    def limits(self) -> ServiceLimits:
        """What a good request keeps."""
        tpot = UNLIMITED if self.tpot is None else self.tpot
        return ServiceLimits.of(ttft=self.ttft, tpot=tpot, goodput=self.goodput)


def fleet_result(
    setup: Setup, name: str, layout: Layout | None, traffic: Traffic, asked: FleetOptions
) -> FleetResult:
    """The answer to a question about a fleet.

    Raises:
        InputError: traffic without requests, or of too many steps; limits that no replica keeps.
    """
    rates, period = np.atleast_1d(np.asarray(traffic.rates)), float(traffic.period)
    steps = steps_of(period)
    if not rates.max() > 0.0 or len(rates) * steps > MOST_STEPS:
        allowed = "requests at some time, and half a year at most"
        raise refuse("traffic", f"{len(rates)} periods of {period:g} s", allowed)
    work = traffic.workload(float(rates.max()))
    inputs.check_context(setup.model, work)
    serving = inputs.serving(name, setup)
    found = layout is None
    if layout is None:
        layout = _cheapest(setup, name, traffic, float(rates.max()), asked)
    check_split(setup.model.architecture, layout)
    with busy("evaluating a replica at every load"):
        replica, weights = _replica(setup, serving, traffic, layout)
    _check_limits(replica, asked)
    link = 0.0 if asked.load_bandwidth is None else weights / (GIGA * asked.load_bandwidth)
    life = Lifecycle.of(start_delay=asked.start_delay + link, departures=asked.departures)
    seconds = period / steps
    factors = surges(asked.seed, len(rates) * steps, jnp.asarray(seconds),
                     jnp.asarray(traffic.surge), jnp.asarray(traffic.sojourn))  # fmt: skip
    numbers = (seconds, 1.0, asked.pue, asked.grid)
    given = Conditions(replica, life, asked.limits, ramp(jnp.asarray(rates), steps) * factors,
                       *(jnp.asarray(x) for x in numbers))  # fmt: skip
    fleet = Fleet.of(given, steps, period, asked.max_replicas)
    with busy("running every policy"):
        policies = list(fleet.policies())
    return FleetResult(
        setup=setup,
        estimator=name,
        trust=inputs.trust(name, serving, setup),
        traffic=traffic,
        layout=str(layout),
        found=found,
        fleet=fleet,
        policies=policies,
        reserved=asked.reserved,
        grid=asked.grid,
    )


def _replica(
    setup: Setup, serving: Serving, traffic: Traffic, layout: Layout
) -> tuple[Replica, float]:
    """The table of a replica, and the bytes of its weights.

    Raises:
        InputError: it has no memory for a request.
    """
    arch, rows = setup.model.architecture, degrees([layout], np.zeros(POINTS, int))
    models = once(shape, arch), None
    served = PlannedServer(serving, models, setup.hardware, traffic.workload(1.0), Deployment.of())
    answers = list[ServerEstimate]()

    def estimate(rate: Array) -> ServerEstimate:
        answers.append(once(instance_estimates, served, rows, np.asarray(rate), points=SOME))
        return answers[-1]

    replica = tabulate(estimate, setup.hardware)
    memory = answers[0].decode.limits["memory"]
    need, room = (float(np.asarray(x)[0]) for x in (memory.need, memory.capacity))
    if need > room:
        allowed = f"one whose {size(need)} of a GPU fit into {size(room)}"
        raise refuse("layout", str(layout), allowed)
    return replica, float(answers[0].memory["weights"][0]) * float(answers[0].chips[0])


def _check_limits(replica: Replica, asked: FleetOptions) -> None:
    """Raise InputError where an idle replica breaks a limit."""
    idle = replica.at_rate(jnp.asarray(0.0))
    times = {"ttft": float(idle.ttft_within(asked.goodput)), "tpot": float(idle.tpot)}
    words = {"ttft": f"p{100 * asked.goodput:.4g} of TTFT", "tpot": "TPOT"}
    for name, limit in (("ttft", asked.ttft), ("tpot", asked.tpot)):
        if limit is not None and times[name] > limit:
            allowed = f"above {1e3 * times[name]:.4g}ms, the {words[name]} of an idle replica"
            raise refuse(name, f"{1e3 * limit:.4g}ms", allowed)


def _cheapest(
    setup: Setup, name: str, traffic: Traffic, rate: float, asked: FleetOptions
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
    limits = {"p99_ttft" if asked.goodput > 0.95 else "p95_ttft": asked.ttft, "tpot": asked.tpot}
    question = Question(
        setup.model,
        [setup.system],
        RequestOptions(work, "traffic", [], longest),
        Requirements.of(frontier=False, rate=rate, **limits),
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
        raise refuse("ttft", f"{1e3 * asked.ttft:.4g}ms", f"{allowed}; or {option('layout')}")
    return answer.best.pools[0].layout
