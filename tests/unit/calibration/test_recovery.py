"""Do intervals cover the truth as often as they say, where errors come in clusters?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.calibration import FitProblem, Prior, at, covariance, identifiability, interval
from infer_jax.calibration.problem import levenberg_marquardt
from infer_jax.specs import Spec, number, spec

CLUSTERS, EACH, DRAWS = 40, 6, 200
RANDOM = np.random.default_rng(7)
BYTES = np.exp(RANDOM.uniform(np.log(1e9), np.log(4e11), CLUSTERS * EACH))
FLOP = np.exp(RANDOM.uniform(np.log(1e11), np.log(4e14), CLUSTERS * EACH))
CLUSTER = np.repeat(np.arange(CLUSTERS), EACH)


@spec
class Server(Spec):
    """A small roofline: bytes over a share of bandwidth, FLOP over a share of peak, a start."""

    read: np.ndarray = number("share of bandwidth reached", kind="fraction", high=1)
    computed: np.ndarray = number("share of peak reached", kind="fraction", high=1)
    start: np.ndarray = number("fixed time", unit="s", kind="time")
    slower: np.ndarray = number("a factor on all times", kind="size", default=1.0)


NAMES = ("read", "computed", "start")
GUESS = Server.of(read=0.7, computed=0.5, start=1e-3)


def predict(server):
    reading = jnp.asarray(BYTES) / (3.35e12 * server.read)
    computing = jnp.asarray(FLOP) / (9.89e14 * server.computed)
    return server.slower * (reading + computing + server.start)


@pytest.fixture(scope="module")
def problem():
    return FitProblem.of(predict, np.ones(len(BYTES)), GUESS, NAMES, scale=0.2, tolerance=1e-8)


@pytest.fixture(scope="module")
def draws(problem):
    """True parameters, and fits to their times with noise of rows and of clusters."""
    random, trues, logs = np.random.default_rng(0), [], []
    for _ in range(DRAWS):
        true = {"read": random.uniform(0.5, 0.9), "computed": random.uniform(0.3, 0.8)}
        true |= {"start": np.exp(random.uniform(np.log(5e-4), np.log(2e-2)))}
        shared = 0.05 * random.normal(size=CLUSTERS)
        noise = 0.05 * random.normal(size=len(BYTES)) + shared[CLUSTER]
        trues.append(true)
        logs.append(np.log(predict(Server.of(**true))) + noise)
    descent = levenberg_marquardt(problem.losses, problem.tolerance, 50)
    solve = jax.jit(jax.vmap(descent, in_axes=(None, None, 0)))
    ends, _ = solve(problem.starts()[0], problem.weighted(None), np.stack(logs))
    ends = np.asarray(ends)
    result = [at(problem.with_(np.exp(x)), end) for x, end in zip(logs, ends, strict=True)]
    return list(zip(trues, result, strict=True))


def share_covered(draws, clusters):
    inside: dict[str, float] = dict.fromkeys(NAMES, 0.0)
    for true, result in draws:
        bounds = interval(result, covariance(result, clusters), 0.8)
        for name, (low, high) in bounds.items():
            inside[name] += low <= true[name] <= high
    return {name: count / len(draws) for name, count in inside.items()}


def test_intervals_by_cluster_cover_the_truth_and_those_of_rows_are_too_narrow(x64, draws):
    apart, together = share_covered(draws, None), share_covered(draws, CLUSTER.tolist())
    assert all(0.7 <= share <= 0.9 for share in together.values()), together
    assert np.mean(list(apart.values())) < np.mean(list(together.values())) - 0.05
    assert min(apart.values()) < 0.7
    wrong = [abs(result.values["read"] / true["read"] - 1.0) for true, result in draws]
    assert np.median(wrong) < 0.03


def test_a_pair_that_the_runs_cannot_tell_apart_is_reported_in_words(x64):
    noise = 0.05 * np.random.default_rng(1).normal(size=len(BYTES))
    names = ("read", "slower")
    priors = {name: Prior(float(getattr(GUESS, name)), 0.5) for name in names}
    law = lambda s: jnp.asarray(BYTES) / (3.35e12 * s.read) * s.slower  # noqa: E731
    times = np.asarray(predict(GUESS)) * np.exp(noise)
    one = FitProblem.of(law, times, GUESS, names, priors=priors, scale=0.05)
    said = identifiability(at(one, one.starts()[0]))
    (pair,) = said.pairs
    assert pair[:2] == ("read", "slower") and pair[2] > 0.99
    assert "cannot be told apart by these runs" in said.sentences[-1]
    assert "ratio" in said.sentences[-1]


def test_parameters_that_runs_bound_are_said_to_be_identified(x64, draws):
    said = identifiability(draws[0][1])
    assert [p.verdict for p in said.parameters] == ["identified"] * 3
    assert said.pairs == () and said.sentences == ()
