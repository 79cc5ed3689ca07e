"""Courses replayed request by request: copies that come and go, and queues of a closed form."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from infer_jax.arrivals import LEVELS, Traffic
from infer_jax.engines import ENGINES
from infer_jax.fleets import Course, ServiceLimits
from infer_jax.fleets.confirmation import ReplayedRequests, copies_of, replay_course
from infer_jax.replays import vllm
from tests.unit.fleets.toys import wait_at

pytestmark = pytest.mark.usefixtures("x64")

SERVERS, TOKENS, PASS = 4, 200, 0.005  # requests at once, tokens in the mean, s of a pass


class Exponential:
    """An engine of four slots whose passes all take as long: M/M/4, of geometric outputs."""

    engine, front = ENGINES["vllm"], 0.25
    rules = vllm(blocks=10_000, slots=SERVERS, overlap=False)
    step = Partial(lambda c, *feeds: c + 0.0 * feeds[0], jnp.asarray(PASS))


def course_of(rate: np.ndarray, ready: np.ndarray) -> Course:
    nothing = np.zeros_like(rate)
    return Course(*map(jnp.asarray, (rate, ready, ready, *7 * [nothing])))


def traffic_of(outputs: np.ndarray) -> Traffic:
    return Traffic.of(rates=[1.0], period=60.0, prompts=np.ones(len(LEVELS)), outputs=outputs)


def test_copies_are_there_as_the_replicas_that_serve():
    random = np.random.default_rng(0)
    for _ in range(50):
        ready = random.integers(1, 6, 40).astype(float)
        windows = copies_of(ready, 15.0)
        for i, count in enumerate(ready):
            there = (windows.begin <= 15.0 * i) & (15.0 * i < windows.end)
            assert there.sum() == count
        assert len(windows.begin) & (len(windows.begin) - 1) == 0
    assert copies_of(np.array([0.2]), 15.0).begin.tolist() == [0.0]  # one at least


def test_one_replica_waits_as_erlang_says():
    """p90 and p95 of the wait in M/M/4; outputs are exponential at the levels of a traffic."""
    mu, load, steps = 1.0 / (TOKENS * PASS), 0.7, 100
    rate = np.full(steps, load * SERVERS * mu)
    levels = np.clip(np.asarray(LEVELS), 1e-3, 1.0 - 1e-5)
    outputs = np.maximum(-np.log1p(-levels) * TOKENS, 1.0)
    traffic = traffic_of(outputs)
    # what is drawn between levels is not quite exponential: its mean counts
    mean = float(np.asarray(traffic.lengths["osl"]))
    course = course_of(rate * TOKENS / mean, np.ones(steps))
    found = replay_course(Exponential(), traffic, course, 15.0, slice(0, steps), 1)  # pyright: ignore
    assert len(found.ttft) == pytest.approx(15.0 * rate.sum() * TOKENS / mean, rel=0.05)
    served = TOKENS / mean * mu
    for level in (0.9, 0.95):
        wait = wait_at(level, load * SERVERS * served, served, SERVERS)
        assert found.ttft_within(level) == pytest.approx(wait + 0.25 + PASS, rel=0.2)


def test_a_share_of_requests_keeps_both_limits():
    """By hand: one of four is late, another slow; it is so alone, and not with the one before."""
    ttft, tpot = np.array([1.0, 1.0, 3.0, 1.0]), np.array([0.01, 0.06, 0.01, 0.0])
    every = ReplayedRequests(np.arange(4.0), ttft, tpot)
    limits = ServiceLimits.of(ttft=2.0, tpot=0.05)
    assert every.share_each_good(limits) == 0.5
    assert every.between(2.0, 4.0).share_each_good(limits) == 0.5
    assert every.share_good(limits, 1.0) == 0.5
    assert every.share_good(limits, 2.0) == 0.75
    assert every.ttft_within(0.5) == 1.0


def test_a_second_copy_takes_what_the_first_cannot():
    """Six requests a second where a copy answers four: alone, and with a second from half on.

    A fluid: alone it has 2 t of them waiting, so that who comes after t waits t / 2. The second
    begins with none of the 600 at half time, and gets all that come until both have 200.
    """
    traffic, steps = traffic_of(np.full(len(LEVELS), float(TOKENS))), 40
    rate = np.full(steps, 1.5 * SERVERS / (TOKENS * PASS))
    one, two = np.ones(steps), np.where(np.arange(steps) < steps // 2, 1.0, 2.0)
    alone, both = (
        replay_course(Exponential(), traffic, course_of(rate, x), 15.0, slice(0, steps))  # pyright: ignore
        for x in (one, two)
    )
    assert alone.between(590.0, 600.0).ttft_within(0.5) == pytest.approx(300.0, rel=0.1)
    assert both.between(395.0, 405.0).ttft_within(0.5) == pytest.approx(50.0, rel=0.2)
