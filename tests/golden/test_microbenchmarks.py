"""Micro-benchmarks of two makes: what is published, and what it makes of a make without rows."""

import numpy as np
import pytest

from experiments._validation import folds
from infer_jax.catalog.published import measured_rates


def test_every_figure_is_of_a_bundled_chip_and_below_what_it_could_be():
    for one in measured_rates():
        assert one.source and one.what
        for name, value in one.measured.items():
            share = value / folds._sheet(one.quantity, name)
            # switches that add beside the GPUs: an all-reduce is faster than its links' ring
            assert 0.3 < share < (1.1 if one.quantity == "link" else 1.0), (one.quantity, name)


def test_a_ratio_is_of_shares_of_data_sheets_in_the_same_benchmark():
    ratio = folds.ratio
    assert ratio("gemm_16", "mi300x") == pytest.approx((758.3 / 1307.4) / (792.1 / 989.4), rel=1e-3)
    assert ratio("gemm_16", "mi355x") == pytest.approx((1610 / 2516.6) / (1570 / 2250), rel=1e-3)
    h100, h200 = 2.984 / 3.35, 4.158 / 4.8
    memory = (4.094 / 5.3) / np.sqrt(h100 * h200)
    assert ratio("memory", "mi300x") == pytest.approx(memory, rel=1e-3)
    # no benchmark of its memory or links is known: its make's
    assert ratio("memory", "mi355x") == ratio("memory", "mi300x")
    assert ratio("launch", "mi300x") == 1.0
