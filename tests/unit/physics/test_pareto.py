"""The frontier of two objectives against a comparison of all rows with all."""

import numpy as np
import pytest

from infer_jax.physics.pareto import frontier_rows


@pytest.mark.parametrize("seed", range(20))
def test_the_rows_are_those_that_no_other_beats(seed):
    dice = np.random.default_rng(seed)
    first, second = dice.integers(0, 12, (2, dice.integers(1, 60))).astype(float)  # many ties
    no_worse = (first[:, None] <= first) & (second[:, None] <= second)
    better = (first[:, None] < first) | (second[:, None] < second)
    free = np.flatnonzero(~(no_worse & better).any(axis=0))
    answer = frontier_rows(first, second)
    assert (np.diff(first[answer]) > 0).all() and (np.diff(second[answer]) < 0).all()
    assert {(first[i], second[i]) for i in free} == {(first[i], second[i]) for i in answer}
    for i in answer:  # of equal rows the first
        assert i == np.flatnonzero((first == first[i]) & (second == second[i]))[0]


def test_no_rows_and_one():
    assert frontier_rows([], []).tolist() == []
    assert frontier_rows([np.inf], [1.0]).tolist() == [0]
