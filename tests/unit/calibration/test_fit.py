"""Fits: known parameters come back, bounds hold; offsets, scores and what to measure next."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.calibration import (
    FitProblem,
    Prior,
    at,
    bounded,
    covariance,
    cross_validate,
    fit,
    interval,
    interval_score,
    learn_residual,
    left_out_log_errors,
    next_measurements,
    offsets,
    parameters,
    predict_held_out,
    predictive_checks,
    random_groups,
    score,
    spearman,
)
from infer_jax.errors import InputError
from infer_jax.specs import Spec, number, spec

WORK = np.geomspace(1.0, 1000.0, 40)


@spec
class Line(Spec):
    """Seconds of work: work / (rate * cap) + start."""

    rate: np.ndarray = number("rate", unit="1/s", kind="rate")
    cap: np.ndarray = number("share of it", kind="fraction", high=1)
    start: np.ndarray = number("fixed time", unit="s", kind="time")
    mode: np.ndarray = number("which", kind="choice", high=1, default=0.0)


TRUE = Line.of(rate=100.0, cap=0.4, start=0.05)
GUESS = Line.of(rate=100.0, cap=0.9, start=1.0)


def predict(line):
    return jnp.asarray(WORK) / (line.rate * line.cap) + line.start


def noisy(seed, size=0.05):
    noise = size * np.random.default_rng(seed).normal(size=len(WORK))
    return np.asarray(predict(TRUE)) * np.exp(noise)


def test_known_parameters_come_back_exactly_without_noise(x64):
    result = fit(predict, np.asarray(predict(TRUE)), GUESS, ("cap", "start"))
    assert result.values == pytest.approx({"cap": 0.4, "start": 0.05}, rel=1e-6)
    assert np.abs(result.errors).max() < 1e-6
    assert float(result.tree.rate) == 100.0


def test_a_fit_has_its_error_bars(x64):
    """Of a linear model by hand; by cluster where the errors of rows belong together."""
    shared = np.repeat(np.random.default_rng(0).normal(size=8) * 0.1, 5)
    data = np.asarray(predict(TRUE)) * np.exp(shared)
    labels = np.repeat(np.arange(8), 5).tolist()
    alone = fit(predict, data, GUESS, ("cap",), restarts=1, scale=0.3)
    together = fit(predict, data, GUESS, ("cap",), restarts=1, scale=0.3, clusters=labels)
    np.testing.assert_allclose(alone.covariance, covariance(alone), rtol=1e-12)
    np.testing.assert_allclose(together.covariance, covariance(alone, labels), rtol=1e-12)
    for result in (alone, together):
        assert result.intervals == interval(result, result.covariance, 0.8)
        low, high = result.intervals["cap"]
        assert low < result.values["cap"] < high
    assert together.covariance[0, 0] > 2.0 * alone.covariance[0, 0]
    # one number scaled by a rate: its deviation is that of a mean of logarithms, over root n
    noise = noisy(5)
    rate = fit(lambda x: jnp.asarray(WORK) / x.rate, noise / predict(TRUE) * WORK / 40.0,
               GUESS, ("rate",), restarts=1, scale=1.0)  # fmt: skip
    spread = np.std(np.log(noise / predict(TRUE)), ddof=1) / np.sqrt(len(WORK))
    assert np.sqrt(rate.covariance[0, 0]) == pytest.approx(spread, rel=0.01)
    one = fit(predict, data, GUESS, ("cap",), restarts=1, clusters=["same"] * len(WORK))
    np.testing.assert_allclose(one.covariance, np.linalg.pinv(one.information))
    with pytest.raises(InputError, match="clusters"):
        fit(predict, data, GUESS, ("cap",), clusters=labels[1:])


def test_a_prior_decides_what_the_data_leave_open(x64):
    data = np.asarray(predict(TRUE))
    begin = GUESS.with_(start=0.05)
    result = fit(predict, data, begin, ("rate", "cap"), priors={"cap": Prior(0.5, 0.01)})
    assert result.values["cap"] == pytest.approx(0.5, rel=0.02)
    assert result.values["rate"] == pytest.approx(80.0, rel=0.05)


def test_one_wild_row_hardly_moves_a_robust_fit(x64):
    data = np.asarray(predict(TRUE)).copy()
    data[5] *= 10.0
    assert fit(predict, data, GUESS, ("cap", "start")).values["cap"] == pytest.approx(0.4, rel=0.02)
    left = np.ones(len(WORK))
    left[5] = 0.0
    result = fit(predict, data, GUESS, ("cap", "start"), weights=left)
    assert result.values["cap"] == pytest.approx(0.4, rel=1e-6)


def test_folds_predict_rows_they_have_not_seen(x64):
    folds = np.arange(len(WORK)) % 3
    times = predict_held_out(predict, noisy(3), GUESS, ("cap", "start"), folds.tolist())
    assert np.median(np.abs(times / noisy(3) - 1.0)) < 0.08
    spoiled = noisy(3)
    spoiled[folds == 1] *= 3.0  # what a fold holds must not reach its own prediction
    again = predict_held_out(predict, spoiled, GUESS, ("cap", "start"), folds.tolist())
    inside = folds == 1
    np.testing.assert_allclose(again[inside], times[inside], rtol=1e-6)
    assert not np.allclose(again[~inside], times[~inside], rtol=1e-2)


def test_a_fit_works_on_a_tuple_of_specs(x64):
    pair = (TRUE.with_(cap=0.8), TRUE)

    def both(trees):
        return jnp.concatenate([predict(tree) for tree in trees])

    data = np.asarray(both((TRUE, TRUE)))
    result = fit(both, data, pair, ("0.cap",), restarts=2)
    assert result.values == pytest.approx({"0.cap": 0.4}, rel=1e-6)
    assert jax.tree.structure(result.tree) == jax.tree.structure(pair)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"names": ("speed",)}, "parameter is 'speed'"),
        ({"names": ("cap", "cap")}, "each name once"),
        ({"names": ("mode",)}, "choices have no gradient"),
        ({"names": ()}, "at least one name"),
        ({"measured": [1.0]}, "the number of parameters"),
        ({"measured": [1.0] * 39 + [0.0]}, "measurement 40"),
        ({"measured": [1.0] * 39 + [float("nan")]}, "measurement 40"),
        ({"weights": [1.0]}, "one a measurement"),
        ({"weights": -1.0}, "weights"),
        ({"priors": {"start": Prior(1.0, 1.0)}, "names": ("cap", "rate")}, "prior is 'start'"),
        ({"priors": {"cap": Prior(0.0, 1.0)}}, "prior of cap"),
        ({"bounds": {"cap": (0.5, 2.0)}}, "bounds of cap"),
        ({"bounds": {"rate": (1.0, 2.0)}}, "bounds is 'rate'"),
    ],
)
def test_bad_input_is_told_in_one_sentence(change, said):
    given = {"measured": np.ones(40), "names": ("cap", "start"), **change}
    measured, names = given.pop("measured"), given.pop("names")
    with pytest.raises(InputError, match=said):
        fit(predict, measured, GUESS, names, **given)


def test_bounded_leaves_stay_within_their_bounds_under_any_solver(x64):
    """Where a fit of raw leaves passes them: measured at a share of 1.3, the best within is 1."""
    import optimistix as optx

    free = bounded(GUESS, ("cap", "start"))
    assert float(free(free.start).cap) == pytest.approx(0.9, rel=1e-12)
    data = jnp.log(jnp.asarray(WORK) / (100.0 * 1.3) + 0.05)
    solver = optx.LevenbergMarquardt(1e-9, 1e-9)
    wrong = lambda tree: jnp.log(predict(tree)) - data  # noqa: E731
    raw = optx.least_squares(
        lambda x, _: wrong(GUESS.replace(cap=x[0], start=x[1])), solver, jnp.asarray([0.9, 1.0])
    )
    within = optx.least_squares(lambda x, _: wrong(free(x)), solver, free.start, max_steps=512,
                                throw=False)  # fmt: skip
    assert raw.value[0] == pytest.approx(1.3, rel=1e-4)
    assert float(free.values(within.value)["cap"]) == pytest.approx(1.0, abs=1e-3)
    assert float(free(within.value).start) > 0.0


@pytest.mark.parametrize("wide", [True, False])
def test_bounded_numbers_are_finite_and_have_a_gradient_at_their_bounds(wide):
    with jax.enable_x64(wide):
        for cap in (0.0, 1.0):  # a start on a bound is moved inside
            free = bounded(GUESS.with_(cap=cap), ("cap", "start"))
            assert np.isfinite(free.start).all()
            assert float(free(free.start).cap) == pytest.approx(cap, abs=2e-6)
        slope = jax.jacobian(lambda x: free.parameters.values(x))
        for far in (-80.0, -5.0, 0.0, 5.0, 80.0):
            at = jnp.full(2, far)
            cap, start = free.parameters.values(at)
            assert 0.0 <= cap <= 1.0 and start >= 0.0 and np.isfinite(slope(at)).all()
        assert (np.diag(slope(jnp.asarray([3.0, -3.0]))) > 0).all()
        narrow = parameters(GUESS, ("start",), {"start": (0.5, 2.0)})
        assert 0.5 <= float(narrow.values(jnp.asarray([-50.0]))[0]) <= 2.0
    with pytest.raises(InputError, match=r"start is 0; allowed: a start above 0"):
        bounded(GUESS.with_(start=0.0), ("start",))
    with pytest.raises(InputError, match="choices have no gradient"):
        bounded(GUESS, ("mode",))


CLUSTER = np.arange(len(WORK)) % 8


@pytest.fixture(scope="module")
def problem():
    random = np.random.default_rng(0)
    noise = 0.05 * random.normal(size=len(WORK)) + 0.05 * random.normal(size=8)[CLUSTER]
    line = TRUE.with_(cap=1.0, start=0.1)
    data = np.asarray(predict(line)) * np.exp(noise)
    return FitProblem.of(predict, data, line, ("rate", "start"), scale=0.5)


@pytest.fixture(scope="module")
def result(problem):
    ends, _ = problem.solve(problem.starts(), problem.weighted(None), 60)
    return at(problem, ends[0])


def test_left_out_errors_are_those_of_refits(x64, problem, result):
    guessed = left_out_log_errors(result, CLUSTER.tolist())
    folds = {str(k): np.equal(CLUSTER, k) for k in range(8)}
    refitted = np.empty(len(WORK))
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


def test_ranks_and_intervals_are_scored_as_by_hand():
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
    shared = 0.2 * np.repeat(np.random.default_rng(3).normal(size=8), 5)
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
def test_bad_rows_are_told(call, said):
    with pytest.raises(InputError, match=said):
        call()
