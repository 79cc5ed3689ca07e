"""A fleet beside replays: its law of replicas and of a short day; copies that come and go."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.fleets import day, figures_of, traffic_of
from infer_jax.fleets import Course, ServiceLimits
from infer_jax.fleets.confirmation import replay_course
from infer_jax.planning import Layout
from infer_jax.replays import Requests
from infer_jax.replays.cluster import Windows
from infer_jax.verbs import fleet_replica, inputs
from infer_jax.verbs.fleet_replay import replayed_server

from . import copies as referee
from .servers import FEW, Drawn, compare, machine_of, small, vllm
from .serving import step_time
from .test_copies import replayed, requests_of

pytestmark = pytest.mark.usefixtures("x64")
STEP = 15.0  # s
FLEET = 4  # copies of a fleet, of which some are there at a time


def course_of(rate: float, replicas: int, steps: int) -> Course:
    every = np.full(steps, rate), *2 * [np.full(steps, float(replicas))]
    return Course(*map(jnp.asarray, (*every, *7 * [np.zeros(steps)])))


@pytest.mark.slow
def test_one_replica_and_three():
    """One replica has the law's times; with a choice of three requests wait less, never more."""
    traffic = traffic_of(np.random.default_rng(0), 24, 1200.0)
    setup = inputs.setup("qwen3-30b-a3b", "h100_sxm", None, None, None, None, None)
    limits, layout = ServiceLimits.of(ttft=2.0, tpot=1e6), Layout(2.0, 1.0, 1.0, 1.0)
    one = fleet_replica.find_replica(setup, "serving", layout, traffic, limits)
    server, capacity = replayed_server(one, "serving", traffic), float(one.replica.capacity)
    for load in (0.5, 0.7):
        law = one.replica.at_rate(jnp.asarray(load * capacity))
        runs = []
        for replicas in (1, 3):
            rate = load * capacity * replicas
            course = course_of(rate, replicas, round(10_000 / rate / STEP))
            run = replay_course(server, traffic, course, STEP, slice(None), 5)
            runs.append(run.between(300.0, np.inf))
        alone, chosen = runs
        assert float(law.ttft) == pytest.approx(alone.ttft.mean(), rel=0.1)
        assert float(law.ttft_within(0.99)) == pytest.approx(alone.ttft_within(0.99), rel=0.15)
        assert float(law.tpot) == pytest.approx(alone.tpot.mean(), rel=0.1)
        assert chosen.ttft.mean() < alone.ttft.mean()
        assert chosen.ttft_within(0.99) < float(law.ttft_within(0.99))


@pytest.mark.slow
def test_a_short_day():
    """Static replicas over six periods of ten minutes: p99 of most, and none on the wrong side."""
    found = figures_of([day(3, hours=6, period=600.0)])
    assert found["share within 15 %"] >= 0.6
    assert found["hours on the wrong side of the limit"] == 0


def fleet_of(seed: int, d: Drawn) -> Windows:
    """Copies that are there from the start, start late, or leave while requests come."""
    random, last = np.random.default_rng(seed), float(d.arrival[-1])
    begin = np.where(random.random(FLEET) < 0.5, 0.0, random.uniform(0.0, last, FLEET))
    end = begin + random.uniform(0.2, 1.2, FLEET) * last
    begin[0], end[0] = 0.0, last + 1.0
    return Windows(jnp.asarray(begin), jnp.asarray(end))


def check_fleets(router: str, count: int) -> None:
    """Every event of random small fleets: starts, departures, what is left when one leaves."""
    late = 0
    for i, case in enumerate(small(count, 500)):
        case = case._replace(concurrency=None)
        server = vllm(case, overlap=i % 2 > 0)
        d = requests_of(case, server, 700 + i, FLEET)
        windows = fleet_of(i, d)
        front = referee.Router(router, windows=list(zip(*map(np.asarray, windows), strict=True)))
        how = {"copies": FLEET, "router": router}
        log = replayed(machine_of(case), server.rules, Requests.of(*d), None, None, windows, **how)
        theirs = referee.serve(
            lambda b, c, n, p: float(step_time(case.machine, b, c, n, p)),  # noqa: B023
            [server.engine() for _ in range(FLEET)], d.lengths(), front,
        )  # fmt: skip
        assert np.asarray(log.server)[:FEW].tolist() == front.copy
        compare(log.log, theirs, f"{server.rules}: ")
        late += sum(r.last > float(windows.end[k]) for r, k in zip(theirs, front.copy, strict=True))
    assert late > 0  # some drain


@pytest.mark.parametrize("router", ["shortest_queue", "round_robin"])
def test_copies_that_come_and_go(router):
    check_fleets(router, 12)


@pytest.mark.slow
@pytest.mark.parametrize("router", ["shortest_queue", "round_robin", "weighted_queue"])
def test_two_hundred_fleets_whose_copies_come_and_go(router):
    check_fleets(router, 200)
