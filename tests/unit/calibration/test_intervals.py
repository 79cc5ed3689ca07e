"""Do intervals cover the truth as often as they say: of fits, new sources, drawn coefficients?"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.calibration import (
    FitProblem,
    Prior,
    at,
    covariance,
    identifiability,
    interval,
    learn_error_law,
)
from infer_jax.calibration.posterior import (
    normal_scores,
    perfect_information,
    shadow_price,
    shipped_intervals,
    with_draws,
)
from infer_jax.calibration.problem import levenberg_marquardt
from infer_jax.calibration.statistics import MAX_CLUSTER_ROWS, counts
from infer_jax.catalog.published import serving_coefficients
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving
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


OF_SOURCE, OF_ROW, PLAIN = 0.2, 0.06, 0.2
TAKEN = 40


def publishers(random, count, rows=(20, 400)):
    """Errors of rows of new publishers: one offset each, noise, and twice both of two pools."""
    errors, pools, source = [], [], []
    for k in range(count):
        many = int(random.integers(*rows))
        double = random.random(many) < 0.3
        offset = OF_SOURCE * random.normal()
        noise = OF_ROW * random.standard_t(4, many)
        errors.append((offset + noise) * np.where(double, 2.0, 1.0))
        pools.append(double)
        source.append(np.full(many, k))
    return np.concatenate(errors), np.concatenate(pools).astype(float), np.concatenate(source)


def inside(law, errors, pools):
    low, high = np.log([law.within({"pools": x})[80] for x in pools]).T
    return (low <= errors) & (errors <= high)


def covered(seed, spoil=lambda errors, source: errors):
    """The share of rows in their band, of each of many publishers, by laws of eight others."""
    random = np.random.default_rng(seed)
    shares = []
    for _ in range(TAKEN):
        errors, pools, source = publishers(random, 8)
        label = [f"{s} {p}" for s, p in zip(source, pools, strict=True)]
        law = learn_error_law(spoil(errors, source), {"pools": pools}, label, PLAIN)
        new, new_pools, _ = publishers(random, 1)
        shares.append(np.mean(inside(law, new, new_pools)))
    return np.asarray(shares)


def test_bands_hold_eighty_per_cent_of_the_rows_of_publishers_that_are_new():
    shares = covered(0)
    # each publisher is nearly all in or all out: within two standard errors of their mean
    assert abs(np.mean(shares) - 0.8) < 2.0 * np.std(shares) / np.sqrt(TAKEN) + 0.02


def test_residuals_of_publishers_that_were_fitted_make_bands_that_do_not_hold():
    def fitted(errors, source):
        return errors - np.asarray([errors[source == s].mean() for s in source])

    assert np.mean(covered(0, fitted)) < 0.6


def test_what_a_fact_adds_is_found_and_what_says_nothing_adds_nothing():
    random = np.random.default_rng(1)
    errors, pools, source = publishers(random, 300, rows=(4, 12))
    other = (random.random(len(errors)) < 0.5).astype(float)
    law = learn_error_law(errors, {"pools": pools, "other": other}, source.tolist(), PLAIN)
    assert law.slopes["pools"] == pytest.approx(np.log(2.0), abs=0.1)
    assert abs(law.slopes["other"]) < 0.1
    both = [law.within({"pools": x, "other": 0.0}) for x in (0.0, 1.0)]
    for share in (50, 80, 95):
        low, high = np.log([x[share] for x in both]).T
        assert low[1] / low[0] == pytest.approx(high[1] / high[0])  # one scale, wider
        assert low[1] < low[0] < 0.0 < high[0] < high[1]


def test_the_largest_cluster_does_not_decide_and_a_side_that_few_erred_on_counts_half():
    random = np.random.default_rng(2)
    small = [random.normal(0.0, 0.3, 12) for _ in range(8)]
    large = random.normal(0.0, 0.01, 3000)
    label = [*np.repeat(np.arange(8), 12).tolist(), *["large"] * len(large)]
    law = learn_error_law(np.concatenate([*small, large]), {}, label, PLAIN)
    low, high = np.log(law.within({})[80])
    assert high - low > 0.5  # 0.03 if rows counted alike
    assert counts(label)[-1] * len(large) == pytest.approx(MAX_CLUSTER_ROWS)
    slow = learn_error_law(np.abs(random.normal(0.0, 0.3, 200)), {}, range(200), PLAIN).ends[80]
    assert slow[0] < 0.0 and slow[1] > -slow[0]


def test_a_law_of_no_rows_or_of_facts_of_others_is_refused():
    for errors, facts, label in (([], {}, []), ([0.1], {"pools": [0.0, 1.0]}, ["a"])):
        with pytest.raises(InputError, match="law of errors"):
            learn_error_law(
                np.asarray(errors), {k: np.asarray(x) for k, x in facts.items()}, label, PLAIN
            )


def _normal(z: float) -> tuple[float, float]:
    """Density and distribution of a normal number."""
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return density, 0.5 * math.erfc(-z / math.sqrt(2))


def test_the_worth_of_a_linear_benefit_is_the_unit_normal_loss():
    """b = m + s x + noise beside 0: E max(0, m + s x) = s phi(m / s) + m Phi(m / s)."""
    x, noise = normal_scores(2, 4096).T
    for mean, slope in ((0.0, 1.0), (0.5, 1.0), (-0.5, 0.25)):
        benefits = np.stack([np.zeros_like(x), mean + slope * x + 0.5 * noise], axis=1)
        density, below = _normal(mean / slope)
        expected = slope * density + mean * below - max(mean, 0.0)
        assert perfect_information(benefits, x) == pytest.approx(expected, abs=0.015)
    # what says nothing of the benefits is worth nothing, nor is a constant
    benefits = np.stack([np.zeros_like(x), 0.2 + x], axis=1)
    assert perfect_information(benefits, noise) < 0.01
    assert perfect_information(benefits, np.ones_like(x)) == 0.0


def test_the_worth_of_a_step_is_found_where_it_is():
    """Worth 1 above a step and -1 below it, beside 0: known, half of the draws gain 1."""
    (x,) = normal_scores(1, 4096).T
    benefits = np.stack([np.zeros_like(x), np.where(x > 0.0, 1.0, -1.0)], axis=1)
    assert perfect_information(benefits, x, [0.0]) == pytest.approx(0.5, abs=1e-6)


def test_the_shadow_price_is_the_slope_of_the_hull():
    costs, chances = np.array([1.0, 2.0, 5.0, 4.9]), np.array([0.5, 0.8, 0.95, 0.6])
    assert shadow_price(costs, chances, 0.9) == pytest.approx((5 - 2) / (0.95 - 0.8))
    assert shadow_price(costs, chances, 0.7) == pytest.approx((2 - 1) / (0.8 - 0.5))
    assert shadow_price(costs, chances, 0.4) == 0.0  # the cheapest keeps it
    assert shadow_price(costs, chances, 0.99) == pytest.approx(20.0)  # none does


def test_drawn_coefficients_have_their_intervals():
    """A tenth of the draws lies below each interval, a tenth above, and bounds hold."""
    serving = Serving.vllm_engine()
    known = shipped_intervals(serving)
    assert "vllm.eager" in known and "trtllm.eager" not in known
    changed = shipped_intervals(serving.with_(cache_read=0.7))
    assert set(known) - set(changed) == {"cache_read"}
    scores = {one.symbol: normal_scores(1, 256, seed=3)[:, 0] for one in known.values()}
    draws = with_draws(serving, known, scores, 256)
    assert float(draws.weight_read[0]) == float(serving.weight_read)
    for path, one in known.items():
        value = draws
        for name in path.split("."):
            value = getattr(value, name)
        values, high = np.asarray(value)[1:], serving_coefficients()[path].high
        assert np.mean(values < one.low) == pytest.approx(0.1, abs=0.02), path
        assert np.mean(values > high) == pytest.approx(0.0 if high == 1.0 else 0.1, abs=0.02), path
