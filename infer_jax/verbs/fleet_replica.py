"""The replica of a fleet, and its table."""

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
from infer_jax.verbs.fleet_policies import HOUR, Fleet
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.progress import busy
from infer_jax.verbs.split import check_split

MOST_STEPS = 1_000_000  # half a year in steps of 15 s


class FleetReplica(NamedTuple):
    """Traffic, and the replica that serves it: layout, table, bytes of weights."""

    traffic: Traffic
    layout: Layout
    replica: Replica
    weights: float

    def fleet(
        self, limits: ServiceLimits, life: Lifecycle, seed: int, most: float | None, pue: float,
        grid: float,
    ) -> Fleet:  # fmt: skip
        """The question about such replicas, of which autoscalers have at most ``most``."""
        traffic, rates = self.traffic, np.atleast_1d(np.asarray(self.traffic.rates))
        steps, period = steps_of(float(traffic.period)), float(traffic.period)
        seconds, one, pue_, grid_ = (jnp.asarray(x) for x in (period / steps, 1.0, pue, grid))
        factors = surges(seed, len(rates) * steps, seconds, jnp.asarray(traffic.surge),
                         jnp.asarray(traffic.sojourn))  # fmt: skip
        every = ramp(jnp.asarray(rates), steps) * factors
        given = Conditions(self.replica, life, limits, every, seconds, one, pue_, grid_)
        return Fleet.of(given, rates, period, most)


def find_replica(
    setup: Setup, name: str, layout: Layout | None, traffic: Traffic, limits: ServiceLimits
) -> FleetReplica:
    """The replica of a layout; of the cheapest plan for the busiest period where None is given.

    Raises:
        InputError: traffic without requests, or of too many steps; a replica that has no memory
            for a request, or breaks the limits while it is idle.
    """
    rates, period = np.atleast_1d(np.asarray(traffic.rates)), float(traffic.period)
    if not rates.max() > 0.0 or len(rates) * steps_of(period) > MOST_STEPS:
        allowed = "requests at some time, and half a year at most"
        raise refuse("traffic", f"{len(rates)} periods of {period:g} s", allowed)
    work = traffic.workload(float(rates.max()))
    inputs.check_context(setup.model, work)
    serving, arch = inputs.serving(name, setup), setup.model.architecture
    layout = layout or _cheapest(setup, name, traffic, float(rates.max()), limits)
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
    return FleetReplica(traffic, layout, replica, float(answers[0].memory["weights"][0]) * chips)


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
