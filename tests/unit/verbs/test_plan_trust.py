"""A plan whose kind was measured is preferred to one that may well cost more than it says."""

import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.physics.chance import Spread, ratio
from infer_jax.planning import USUAL_TTFT
from infer_jax.verbs.plan_trust import error_bands, probability


def test_the_probability_is_the_share_of_drawn_errors_that_keep_the_limits():
    """Also where a slower server could no longer carry the load."""
    spreads = Spread.of({80: (0.8, 1.5)}), Spread.of({50: (0.7, 1.2), 80: (0.5, 2.0)})
    draws = np.random.default_rng(0).standard_normal((2, 20_000))
    tpot, ttft = (np.exp(ratio(jnp.asarray(z), s)) for z, s in zip(draws, spreads, strict=True))
    for limits, times, spare in (
        ((0.02, 1.0, np.inf), (0.018, 0.7, 0.9), np.inf),
        ((0.02, np.inf, 1.0), (0.018, 0.7, 0.9), np.inf),
        ((np.inf, 1.0, np.inf), (0.018, 0.7, 0.9), 1.05),
    ):
        kept = (times[0] * tpot <= limits[0]) & (tpot <= spare)
        kept &= (times[1] * ttft <= limits[1]) & (times[2] * ttft <= limits[2])
        numbers = [np.float64(x) for x in (*limits, *times, spare)]
        found = float(probability(*map(jnp.asarray, numbers), spreads))
        assert found == pytest.approx(np.mean(kept), abs=0.012)  # three standard errors


def test_what_was_never_measured_leads_only_by_more_than_its_band():
    """Two pools, and an engine without a row on the chip, beside servers that were measured."""
    asked = {"quant": "fp8", "total_gpus": 8.0, "ttft": 1.0, "tpot": 0.02}
    for systems in (["b200_sxm"], ["h200_sxm", "l40s"]):
        answer = ij.plan("llama-3.3-70b", systems, **asked)
        best, plans = answer.best, answer.searched
        assert best is not None
        for c in answer.plans:
            band = error_bands(c, plans.pools_of(c))["tpot"][80][1]
            measured = c.mode == "aggregated" and plans.trusted[c.system].rows > 0
            assert c.slow == (1.0 if measured else max(band, 1.0))
            assert best.usd_per_mtok * best.slow <= c.usd_per_mtok * c.slow * (1 + 1e-6)
        cheaper = [c for c in answer.plans if c.usd_per_mtok < best.usd_per_mtok]
        assert ("is predicted to cost" in str(answer)) == bool(cheaper)
        if cheaper:
            assert f"{cheaper[0].layout} on" in " ".join(str(answer).split())


def test_the_odds_stand_beside_every_plan_that_has_a_limit():
    few = {"total_gpus": 1.0, "mode": "aggregated", "top": 2}
    plans = ij.plan("llama-3.1-8b", "h100_sxm", tpot=0.012, **few)
    assert plans.searched.usual and "hold" in str(plans)
    for c in plans.plans:
        assert c.ttft < USUAL_TTFT and c.holds is not None and 0.0 < c.holds < 1.0
    free = ij.plan("llama-3.1-8b", "h100_sxm", ttft="none", **few)
    assert all(c.holds is None for c in free.plans) and "hold" not in str(free).split("$/Mtok")[0]
    looser = ij.plan("llama-3.1-8b", "h100_sxm", tpot=0.5, ttft="none", **few)
    assert min(c.holds or 0.0 for c in looser.plans) > 0.95


def test_a_format_that_the_chip_does_not_multiply_is_said_first():
    few = {"total_gpus": 1.0, "mode": "aggregated", "ttft": "none"}
    said = str(ij.plan("llama-3.1-8b", "h100_sxm", quant="nvfp4", **few)).split("tok/s/GPU")[0]
    assert "h100_sxm has no 4-bit products: 8-bit ones are priced." in said
    native = str(ij.plan("llama-3.1-8b", "b200_sxm", quant="nvfp4", **few))
    assert "4-bit products: 8-bit" not in native
