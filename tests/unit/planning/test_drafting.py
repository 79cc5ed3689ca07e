"""Which drafts are accepted: curves as measured, and what is taken where there are none."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.catalog.acceptance import AcceptanceCurve, falling, read_acceptance
from infer_jax.physics.speculation import (
    HEADS_DECLINE as DECLINE,
    acceptance_by_position,
    curve_yield,
)

MEASURED = Path(__file__).parents[4] / "shared/data/bench_samples"


def test_a_curve_yields_what_was_measured():
    curve = AcceptanceCurve("m", "on", ((1, 1.8), (2, 2.4), (3, 2.6), (4, 2.6)))
    accepted = acceptance_by_position(jnp.asarray(curve.per_position))
    for drafts, tokens in curve.lengths:
        assert float(curve_yield(accepted, jnp.asarray(drafts))) == pytest.approx(tokens)


def test_heads_decline_as_measured():
    path = MEASURED / "inferencex_acceptance_dsv4_mtp.yaml"
    if not path.is_file():
        pytest.skip("the measured acceptance lengths are not beside the checkout")
    modes = []
    for curve in read_acceptance(path):
        lengths = [1.0, *(tokens for _, tokens in curve.lengths[:4])]
        reached = np.array([1.0, *falling(list(np.diff(lengths)))])
        rates = reached[1:] / reached[:-1]
        modes.append(rates / rates[0])
    assert DECLINE[:4] == pytest.approx(np.mean(modes, axis=0), abs=0.01)
    assert np.all(np.diff(DECLINE) <= 0.0)
