"""Spreads of lengths: means and what varies about them."""

import numpy as np
import pytest

from infer_jax.specs import lengths


def spread(quantile, moment):
    """A moment of outputs drawn so, over that power of their mean."""
    shares = lengths.independent(lengths.fixed(), quantile)
    return sum(float(s.weight) * float(s.osl) ** moment for s in shares)


def test_lengths_of_few_values_are_kept_as_they_are():
    """Four in five of 0.5 and one of 3: no edge of the strata is at 0.8 but by moving there."""

    def two(p):
        return np.where(p < 0.8, 0.5, 3.0)

    assert [spread(two, k) for k in (1, 2, 3)] == pytest.approx([1.0, 2.0, 5.5])


@pytest.mark.parametrize(
    ("quantile", "second"),
    [
        (lengths.uniform(0.1, 1.9), 1.27),
        (lengths.exponential(), 2.0),
        (lengths.lognormal(1.0), 2.0),
    ],
    ids=["uniform", "exponential", "lognormal"],
)
def test_strata_keep_means_and_nearly_all_of_the_variance(quantile, second):
    assert spread(quantile, 1) == pytest.approx(1.0, rel=1e-12)
    assert spread(quantile, 2) - 1.0 == pytest.approx(second - 1.0, rel=0.1)
    assert spread(quantile, 2) <= second
