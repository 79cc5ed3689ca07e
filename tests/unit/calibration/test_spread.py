"""Offsets, scores, the next measurement, predictive checks and the learned residual."""

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.calibration import (
    FitProblem,
    at,
    covariance,
    cross_validate,
    interval_score,
    learn_residual,
    left_out_log_errors,
    next_measurements,
    offsets,
    predictive_checks,
    random_groups,
    score,
    spearman,
)
from infer_jax.errors import InputError
from infer_jax.specs import Spec, number, spec

WORK = np.geomspace(1.0, 1000.0, 48)
CLUSTER = np.arange(48) % 8


@spec
class Line(Spec):
    """Seconds: work / rate + start."""

    rate: np.ndarray = number("rate", unit="1/s", kind="rate")
    start: np.ndarray = number("fixed time", unit="s", kind="time")


def predict(line):
    return jnp.asarray(WORK) / line.rate + line.start


@pytest.fixture(scope="module")
def problem():
    random = np.random.default_rng(0)
    noise = 0.05 * random.normal(size=48) + 0.05 * random.normal(size=8)[CLUSTER]
    line = Line.of(rate=100.0, start=0.1)
    data = np.asarray(predict(line)) * np.exp(noise)
    return FitProblem.of(predict, data, line, ("rate", "start"), scale=0.5)


@pytest.fixture(scope="module")
def result(problem):
    ends, _ = problem.solve(problem.starts(), problem.weighted(None), 60)
    return at(problem, ends[0])


def test_left_out_errors_are_those_of_refits(x64, problem, result):
    guessed = left_out_log_errors(result, CLUSTER.tolist())
    folds = {str(k): np.equal(CLUSTER, k) for k in range(8)}
    refitted = np.empty(48)
    for held in cross_validate(problem, folds, starts=result.free):
        refitted[held.inside] = at(problem, held.free).residuals[held.inside]
    np.testing.assert_allclose(guessed, refitted, atol=0.01)
    assert np.abs(guessed - refitted).max() < 0.2 * np.abs(guessed - result.residuals).max()


def test_offsets_are_shrunk_by_what_the_rows_bear():
    random = np.random.default_rng(2)
    server = np.repeat(np.arange(30), 10)
    apart = 0.3 * random.normal(size=30)[server] + 0.05 * random.normal(size=300)
    same = 0.3 * random.normal(size=300)
    output = offsets(apart, [server.tolist()])
    assert output.shrinkage[0] < 0.3
    np.testing.assert_allclose(output.at([server.tolist()]), apart, atol=0.25)
    assert offsets(same, [server.tolist()]).shrinkage[0] > 5.0
    assert output.at([["unknown"]])[0] == 0.0
    half = offsets(np.asarray([1.0]), [["x"]], [1.0])
    assert half.values[0]["x"] == 0.5


def test_scores_against_figures_done_by_hand():
    ours, theirs = np.asarray([1.1, 2.0, 2.0]), np.asarray([1.0, 2.0, 4.0])
    one = score(ours, theirs, np.zeros(3), np.full(3, 3.0))
    assert (one.rows, one.median, one.cover80) == (3, pytest.approx(10.0), pytest.approx(200 / 3))
    assert one.mean == pytest.approx(20.0)
    assert spearman(np.asarray([1.0, 2.0, 3.0]), np.asarray([10.0, 30.0, 20.0])) == 0.5
    assert spearman(np.ones(3), np.asarray([1.0, 2.0, 3.0])) == 0.0
    ends = np.asarray([1.0]), np.exp([2.0])
    found = [interval_score(np.exp([x]), *ends) for x in (1.0, 3.0)]
    assert found == pytest.approx([2, 2 + 10])  # inside, and outside by one


def test_random_groups_hold_whole_groups():
    groups = [f"g{i % 10}" for i in range(50)]
    for inside in random_groups(groups).values():
        assert inside.sum() == 15
        assert len({g for g, i in zip(groups, inside, strict=True) if i}) == 3


def test_the_next_measurement_is_where_the_fit_knows_least(x64, result):
    short, long = [0.0, 1.0], [-1.0, 0.0]
    loose = np.diag([0.04, 0.0001])
    rows = np.asarray([short, long])
    first, second = next_measurements(result, rows, 0.05, covered=loose, count=2)
    assert first.index == 1 and first.bits > second.bits > 0
    assert first.bits == pytest.approx(0.5 * np.log2(1 + 0.04 / 0.0025))
    wanted = next_measurements(result, rows, 0.05, wanted=rows[:1], covered=loose)
    assert wanted[0].index == 0


def test_predictive_checks_find_errors_that_belong_together(x64, problem, result):
    covered, scale = covariance(result, CLUSTER.tolist()), 0.07
    plain = {c.name: c for c in predictive_checks(result, covered, scale, {"work": np.log(WORK)})}
    assert plain["spread"].passes and plain["trend with work"].passes
    shared = 0.2 * np.repeat(np.random.default_rng(3).normal(size=8), 6)
    spoiled = problem.with_(result.predicted * np.exp(shared))
    seen = {c.name: c for c in predictive_checks(at(spoiled, result.free), covered, scale)}
    assert not seen["likeness of neighbours"].passes and not seen["spread"].passes


def test_a_residual_is_learnt_where_there_is_one_and_only_there(x64):
    random = np.random.default_rng(4)
    features = random.normal(size=(300, 3))
    groups = (np.arange(300) % 30).tolist()
    noise = 0.05 * random.normal(size=(300, 1))
    learnt = learn_residual(features, 0.4 * np.tanh(features[:, :1]) + noise, groups, [0.1])
    assert learnt.gain > 0.5
    wrong = learnt(features)[:, 0] - 0.4 * np.tanh(features[:, 0])
    assert np.std(wrong) < 0.1
    nothing = learn_residual(features, noise, groups, [0.1])
    assert np.abs(nothing(features)).mean() < 0.03


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: random_groups(["a"]), "two groups"),
        (lambda: score(np.ones(0), np.ones(0)), "rows"),
        (lambda: offsets(np.ones(3), [["a"]]), "label"),
        (lambda: learn_residual(np.ones((4, 2)), np.ones((4, 1)), ["a"] * 4, [1.0]), "groups"),
        (lambda: learn_residual(np.ones((4, 2)), np.ones((3, 1)), ["a"] * 4, [1.0]), "features"),
    ],
)
def test_bad_input_is_told_in_one_sentence(call, said):
    with pytest.raises(InputError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)
