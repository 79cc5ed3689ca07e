"""The law of a fleet beside a replay: one replica, three behind a router, a short day."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.fleets import day, figures_of, traffic_of
from infer_jax.fleets import Course, ServiceLimits
from infer_jax.fleets.confirmation import replay_course
from infer_jax.planning import Layout
from infer_jax.verbs import fleet_replica, inputs
from infer_jax.verbs.fleet_replay import replayed_server

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]
STEP = 15.0  # s


def course_of(rate: float, replicas: int, steps: int) -> Course:
    every = np.full(steps, rate), *2 * [np.full(steps, float(replicas))]
    return Course(*map(jnp.asarray, (*every, *7 * [np.zeros(steps)])))


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


def test_a_short_day():
    """Static replicas over six periods of ten minutes: p99 of most, and none on the wrong side."""
    found = figures_of([day(3, hours=6, period=600.0)])
    assert found["share within 15 %"] >= 0.6
    assert found["hours on the wrong side of the limit"] == 0
