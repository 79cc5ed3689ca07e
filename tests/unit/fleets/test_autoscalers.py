"""Autoscalers against the cases that Kubernetes' own tests have, and against their rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.fleets import (
    EventDriven,
    Horizontal,
    Lifecycle,
    Observed,
    Predictive,
    ServiceLimits,
    depth_of,
)
from infer_jax.fleets.autoscalers import Autoscaler, extreme
from tests.unit.fleets.toys import exponential_replica


def seen(step=0, in_flight=0.0, waiting=0.0, ready=1.0, replicas=None, rate=0.0, seconds=15.0):
    """What a fleet shows."""
    replicas = ready if replicas is None else replicas
    values = (step, seconds, rate, in_flight, waiting, ready, replicas)
    return Observed(*(jnp.asarray(x, float) for x in values))


# replica_calculator_test.go: (metric in all, target, replicas, expected), thousandths of a unit
BY_PODS = {
    "ScaleUpCM": (20.0 + 10.0 + 30.0, 15.0, 3, 4),
    "ScaleDownCM": (5 * 12.0, 20.0, 5, 3),
    "ToleranceCM": (20.0 + 21.0 + 21.0, 20.0, 3, 3),
}
EXTERNAL = {
    "ScaleUpPerPodCMExternal": (8.6, 2.15, 3, 4),
    "ScaleDownPerPodCMExternal": (8.6, 2.867, 5, 3),
    "TolerancePerPodCMExternal": (8.6, 2.2, 4, 4),
}


@pytest.mark.parametrize("case", BY_PODS)
def test_a_metric_of_pods_recommends_what_kubernetes_tests_expect(case):
    metric, target, replicas, expected = BY_PODS[case]
    policy = Horizontal.of(target=target)
    here = seen(ready=replicas, in_flight=metric)
    assert float(policy.recommendation(here.in_flight, here)) == expected


@pytest.mark.parametrize("case", EXTERNAL)
def test_an_external_metric_recommends_what_kubernetes_tests_expect(case):
    metric, target, replicas, expected = EXTERNAL[case]
    here = seen(ready=replicas, waiting=metric)
    assert float(EventDriven.of(target=target).recommendation(here.waiting, here)) == expected


def test_replicas_that_load_count_as_idle_upwards_and_as_at_the_target_downwards():
    """The rule of calcPlainMetricReplicas for missing pods, by hand: 2 of 4 serve."""
    policy = Horizontal.of(target=10.0)

    def wants(in_flight):
        here = seen(ready=2.0, replicas=4.0, in_flight=in_flight)
        return float(policy.recommendation(here.in_flight, here))

    assert wants(60.0) == 6.0  # 60 / 10 over four
    assert wants(30.0) == 4.0  # above the target of two, below that of four: no change
    assert wants(5.0) == 3.0  # (5 + 2 x 10) / 10


def steps_of(policy, metrics, first):
    """Replicas wanted where the metric in flight is given step by step and all are ready."""
    state = policy.begin(jnp.asarray(first), 64, exponential_replica(), None)
    wanted, replicas = [], first
    for i, metric in enumerate(metrics):
        state, answer = policy.decide(state, seen(i, metric, metric, replicas, rate=metric))
        replicas = float(answer)
        wanted.append(replicas)
    return wanted


def test_a_fleet_shrinks_after_the_window_and_grows_by_four_or_by_half_of_it():
    """300 s of 15 s: the recommendation of step 0 keeps ten replicas up to step 19."""
    metrics = [100.0] + [20.0] * 25
    wanted = steps_of(Horizontal.of(target=10.0), metrics, 10.0)
    assert wanted == [10.0] * 20 + [2.0] * 6
    grown = steps_of(Horizontal.of(target=1.0), [1000.0] * 5, 1.0)
    assert grown == [5.0, 10.0, 20.0, 40.0, 80.0]  # 4 more, then twice as many
    slow = Horizontal.of(target=1.0, pods=1, percent=0.5, maximum=7)
    assert steps_of(slow, [1000.0] * 5, 1.0) == [2.0, 3.0, 5.0, 7.0, 7.0]


def test_a_planner_divides_the_rate_it_expects_by_that_of_a_replica():
    """Rates of 2, then 4 over 30 s each; a replica has 1.5 requests/s: 2, then 3, or 4 by trend."""
    replica = exponential_replica()
    limits = ServiceLimits.of(ttft=1e3, tpot=0.01 + 0.03 * 0.75)
    for trend, expected in ((0.0, [5.0, 5.0, 2.0, 2.0, 3.0]), (1.0, [5.0, 5.0, 2.0, 2.0, 4.0])):
        policy = Predictive.of(interval=30.0, trend=trend)
        state = policy.begin(jnp.asarray(5.0), 8, replica, limits)
        wanted, replicas = [], 5.0
        for i, rate in enumerate((0.0, 2.0, 2.0, 4.0, 4.0)):
            state, answer = policy.decide(state, seen(i, rate=rate, ready=replicas))
            replicas = float(answer)
            wanted.append(replicas)
        assert wanted == expected


def test_an_error_of_the_profile_that_is_corrected_changes_nothing():
    """Times twice those of the profile: without correction a replica is thought to serve more."""
    replica = exponential_replica()
    limits = ServiceLimits.of(ttft=1e3, tpot=0.02)
    each = [
        float(Predictive.of(**x).begin(jnp.asarray(1.0), 8, replica, limits)[-1])
        for x in ({}, {"profile_error": 1.5}, {"profile_error": 1.5, "correction": 0.0})
    ]
    assert each[0] == each[1] < each[2]


def test_extremes_of_windows_are_exact_at_whole_steps_and_linear_between():
    history = jnp.asarray([3.0, 7.0, 1.0, 9.0])
    for count in range(1, 5):
        part = np.asarray(history)[:count]
        assert float(extreme(history, jnp.asarray(float(count)), largest=True)) == part.max()
        assert float(extreme(history, jnp.asarray(float(count)), largest=False)) == part.min()
    assert float(extreme(history, jnp.asarray(1.25), largest=True)) == 4.0
    slope = jax.grad(lambda n: extreme(history, n, largest=False))(jnp.asarray(2.5))
    assert float(slope) == -2.0


def test_a_policy_that_decides_nothing_says_so():
    with pytest.raises(NotImplementedError):
        Autoscaler.of().decide((), seen())


def test_a_fleet_looks_back_as_far_as_its_delay_and_its_window():
    assert depth_of(Lifecycle.of(start_delay=600.0), 15.0) == 64
    assert depth_of(Lifecycle.of(start_delay=0.0), 15.0, 600.0) == 64
