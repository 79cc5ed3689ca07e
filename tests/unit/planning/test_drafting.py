"""Which drafts are accepted: curves as measured, and what is taken where there are none."""

from pathlib import Path

import numpy as np
import pytest

from infer_jax.catalog.acceptance import make_nonincreasing, read_acceptance
from infer_jax.physics.speculation import HEADS_DECLINE as DECLINE

MEASURED = Path(__file__).parents[4] / "shared/data/bench_samples"


def test_heads_decline_as_measured():
    path = MEASURED / "inferencex_acceptance_dsv4_mtp.yaml"
    if not path.is_file():
        pytest.skip("the measured acceptance lengths are not beside the checkout")
    modes = []
    for curve in read_acceptance(path):
        lengths = [1.0, *(tokens for _, tokens in curve.lengths[:4])]
        reached = np.array([1.0, *make_nonincreasing(list(np.diff(lengths)))])
        rates = reached[1:] / reached[:-1]
        modes.append(rates / rates[0])
    assert DECLINE[:4] == pytest.approx(np.mean(modes, axis=0), abs=0.01)
    assert np.all(np.diff(DECLINE) <= 0.0)
