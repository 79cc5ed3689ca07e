"""The replicas of a fleet, and their tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.arrivals import Traffic
from infer_jax.arrivals.traffic import quantile
from infer_jax.compiling import BRISK, once
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment, ServerEstimate, shape
from infer_jax.fleets import Lifecycle, Replica, ServiceLimits, ramp, steps_of, surges, tabulate
from infer_jax.fleets.fluid import HOUR
from infer_jax.fleets.replica import COPIES, IDLE, POINTS, capacity_of
from infer_jax.planning import USUAL_TTFT, Layout, Requirements
from infer_jax.planning.instances import PlannedServer, degrees, varied_estimates
from infer_jax.results import option, percent
from infer_jax.results.numbers import size
from infer_jax.results.problems import refuse
from infer_jax.verbs import inputs
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.option import either, unique_texts
from infer_jax.verbs.progress import busy
from infer_jax.verbs.split import LayoutOptions, check_split

GIGA = 1e9
UNLIMITED = 1e6  # s, of a TPOT without a limit
LEVELS_TRIED = 10_000  # prompts that stand for all
MOST_STEPS = 1_000_000  # half a year in steps of 15 s


class FleetReplica(NamedTuple):
    """The replicas of a plan in a fleet; ``gpus``: those that there are of its system."""

    setup: Setup
    layout: Layout
    replica: Replica
    life: Lifecycle
    gpus: float

    @property
    def system(self) -> str:
        """Its system by name."""
        return self.setup.system.name

    @property
    def name(self) -> str:
        """What it runs on, in words."""
        return f"{self.layout} {self.system}"

    def rate_within(self, limits: ServiceLimits) -> float:
        """The most requests/s within limits of one alone; 0 where an idle one breaks them."""
        return float(once(Replica.rate_within, self.replica, limits))


def limits_of(ttft: float | None, tpot: float | None, goodput: float = 0.99) -> ServiceLimits:
    """What a good request keeps: where not given the usual limit of TTFT, and none of TPOT."""
    ttft, tpot = either(ttft, USUAL_TTFT), either(tpot, UNLIMITED)
    return ServiceLimits.of(ttft=ttft, tpot=tpot, goodput=goodput)


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
    factors = surges(seed, len(rates) * steps, seconds, traffic.surge, traffic.sojourn)
    return ramp(jnp.asarray(rates), steps) * factors, seconds


def traffic_notes(traffic: Traffic, longest: float) -> Iterator[str]:
    """What a fleet takes its traffic for: whole prompts, up to the ``longest`` context.

    >>> from infer_jax.arrivals import read_traffic
    >>> [note] = traffic_notes(read_traffic("examples/agents.toml"), 1e6)
    >>> note
    'Turns of sessions compute all of their prompts here; `sessions` says what a cache saves.'
    """
    if traffic.sessions is not None and not float(traffic.reuse):
        yield (
            "Turns of sessions compute all of their prompts here; `sessions` says what a cache "
            "saves."
        )
    levels = (np.arange(LEVELS_TRIED) + 0.5) / LEVELS_TRIED
    beyond = float(np.mean(quantile(np.asarray(traffic.prompts), levels) >= longest))
    if beyond:
        yield (
            f"{percent(beyond)} % of the prompts are longer than the model's context of "
            f"{longest:,.0f} tokens: a server refuses them, and here they are computed."
        )


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
    layouts = [pool.layout if pool else None for pool in pools]
    every = np.broadcast(np.arange(len(setups)), np.arange(len(layouts)))
    return [(setups[i], layouts[j]) for i, j in every]


def find_replicas(
    setup: Setup, name: str, layout: Layout | None, traffic: Traffic, limits: ServiceLimits,
    count: int, *more: Any,
) -> list[FleetReplica]:  # fmt: skip
    """The replica of a layout; where None is given, of the ``count`` cheapest plans at the peak.

    Raises:
        InputError: as ``find_replica``, of all of them.
    """
    busiest, found, refused = float(np.max(traffic.rates)), list[FleetReplica](), None
    inputs.check_context(setup.model, traffic.workload(busiest))
    for one in [layout] if layout else _cheapest(setup, name, traffic, busiest, limits, count):
        try:
            found.append(find_replica(setup, name, one, traffic, limits, *more))
        except InputError as error:
            refused = refused or error
    if refused and not found:
        raise refused
    return found


def find_replica(
    setup: Setup, name: str, layout: Layout, traffic: Traffic, limits: ServiceLimits,
    life: Lifecycle | None = None, bandwidth: float | None = None, gpus: float = np.inf,
    copies: Sequence[float] = COPIES,
) -> FleetReplica:  # fmt: skip
    """The replica of a layout.

    ``bandwidth`` of the link that its weights come over, GB/s, adds to the start of its ``life``;
    ``gpus``: those that there are; ``copies``: of the table.

    Raises:
        InputError: a replica that has no memory for a request or needs more GPUs, or breaks the
            limits while it is idle.
    """
    life = life or Lifecycle.of()
    serving, arch = inputs.serving(name, setup), setup.model.architecture
    check_split(arch, layout)
    if gpus < layout.chips:
        raise refuse("available", gpus, f"at least the {layout.chips:g} GPUs of {layout}")
    rows, models = degrees([layout], np.zeros(POINTS, int)), (once(shape, arch), None)
    server = PlannedServer(serving, models, setup.hardware, traffic.workload(1.0), Deployment.of())
    # a dozen answers, for which code optimised a little wins its compilation back
    answers = list[ServerEstimate]()

    def estimate(rate: np.ndarray, variability: np.ndarray) -> ServerEstimate:
        answers.append(once(varied_estimates, server, rows, rate, variability, options=BRISK))
        return answers[-1]

    with busy("evaluating a replica at every load"):
        # one token each: what prompts alone would be, in as many rows so that one program does
        first = traffic.with_(outputs=np.ones_like(traffic.outputs)).workload(1.0)
        rate = np.full(POINTS, IDLE), np.ones(POINTS)
        alone = once(varied_estimates, server._replace(work=first), rows, *rate, options=BRISK)
        numbers = float(traffic.variability), capacity_of(alone), traffic.output_variation
        replica = tabulate(estimate, setup.hardware, *numbers, copies)
    memory = answers[0].decode.limits["memory"]
    need, room = (float(np.asarray(x)[0]) for x in (memory.need, memory.capacity))
    if need > room:
        allowed = f"one whose {size(need)} of a GPU fit into {size(room)}"
        raise refuse("layout", str(layout), allowed)
    idle = map(float, once(Replica.idle_times, replica, limits.goodput))
    words = {"ttft": f"p{100 * float(limits.goodput):.4g} of TTFT", "tpot": "TPOT"}
    for field, least in zip(words, idle, strict=True):
        if least > (limit := float(getattr(limits, field))):
            allowed = f"above {1e3 * least:.4g}ms, the {words[field]} of an idle replica"
            raise refuse(field, f"{1e3 * limit:.4g}ms", allowed)
    if bandwidth is not None:
        weights = float(answers[0].memory["weights"][0]) * layout.chips
        life = life.with_(start_delay=life.start_delay + weights / (GIGA * bandwidth))
    return FleetReplica(setup, layout, replica, life, gpus)


def _cheapest(
    setup: Setup, name: str, traffic: Traffic, rate: float, limits: ServiceLimits, count: int
) -> list[Layout]:
    """The layouts of the cheapest plans for the busiest period, as ``plan`` finds them.

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
        top=count,
        set=setup.changes.texts,
    )
    answer = plans(question)
    if answer.best is None:
        near = answer.missed[0].layout if answer.missed else "none"
        allowed = f"more: no plan for {rate:.4g} requests/s keeps the limits, the nearest is {near}"
        raise refuse("ttft", f"{1e3 * ttft:.4g}ms", f"{allowed}; or {option('layout')}")
    return [x.pools[0].layout for x in answer.met]
