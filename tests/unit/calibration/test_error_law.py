"""The law of errors of a new source: coverage on sources unseen, what facts widen, who counts."""

import numpy as np
import pytest

from infer_jax.calibration import learn_error_law
from infer_jax.calibration.statistics import MAX_CLUSTER_ROWS, counts
from infer_jax.errors import InputError

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
