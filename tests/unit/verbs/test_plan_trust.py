"""A plan whose kind was measured is preferred to one that may well cost more than it says."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.estimators import measured_within
from infer_jax.physics.chance import Spread, ratio
from infer_jax.planning import USUAL_TTFT
from infer_jax.planning.bands import odds, probability
from infer_jax.servers import samples


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
        chance: Any = probability
        found = float(chance(*(jnp.asarray(x) for x in numbers), spreads))
        assert found == pytest.approx(np.mean(kept), abs=0.012)  # three standard errors


def test_what_was_never_measured_leads_only_by_more_than_its_band():
    """Two pools, and an engine without a row on the chip, beside servers that were measured."""
    asked = {"quant": "fp8", "total_gpus": 8.0, "ttft": 1.0, "tpot": 0.02}
    for systems in (["b200_sxm"], ["h200_sxm", "l40s"]):
        answer = ij.plan("llama-3.3-70b", systems, **asked)
        best, plans = answer.best, answer.searched
        assert best is not None
        for c in answer.plans:
            lengths = c.isl, c.osl
            trusts, pools = [x.trust for x in plans.systems_of(c)], len(c.pools) > 1
            band = measured_within(trusts, c.batch, lengths, pools=pools)["tpot"][80][1]
            measured = c.mode == "aggregated" and plans.systems[c.system].trust.rows > 0
            assert c.slow == (1.0 if measured else max(band, 1.0))
            assert best.usd_per_mtok * best.slow <= c.usd_per_mtok * c.slow * (1 + 1e-6)
        cheaper = [c for c in answer.plans if c.usd_per_mtok < best.usd_per_mtok]
        assert ("is predicted to cost" in str(answer)) == bool(cheaper)
        if cheaper:
            assert f"{cheaper[0].layout} on" in " ".join(str(answer).split())


def test_a_first_plan_that_rather_breaks_its_limits_is_said_to():
    """Limits a hair above its times: half of all runs break each of them."""
    asked: dict[str, Any] = {"total_gpus": 4.0, "mode": "aggregated"}
    usual = ij.plan("llama-3.3-70b", "h200_sxm", tpot=0.03, **asked)
    assert usual.best is not None
    tpot, ttft = (1.0001 * x for x in (usual.best.tpot, usual.best.ttft))
    tight = ij.plan("llama-3.3-70b", "h200_sxm", tpot=tpot, ttft=ttft, **asked)
    best = tight.best
    assert best is not None and best.holds is not None and best.holds < 0.5
    said = " ".join(str(tight).split())
    assert f"{best.layout} keeps the limits with a probability of {100 * best.holds:.2g} %" in said
    likelier = [c for c in tight.searched.met if (c.holds or 0.0) >= 0.5 and not c.obstacle]
    if likelier:
        cheapest = min(likelier, key=lambda c: c.usd_per_mtok)
        assert f"{cheapest.layout} on h200_sxm, which costs" in said


def test_the_odds_stand_beside_every_plan_that_has_a_limit():
    few = {"total_gpus": 1.0, "mode": "aggregated", "top": 2}
    plans = ij.plan("llama-3.1-8b", "h100_sxm", tpot=0.012, **few)
    assert plans.searched.usual and "hold" in str(plans)
    for c in plans.plans:
        assert c.ttft < USUAL_TTFT and c.holds is not None and 0.0 < c.holds < 1.0
    # the same plan has the same odds where a confidence is asked for
    sure = ij.plan("llama-3.1-8b", "h100_sxm", tpot=0.012, ttft=0.1, confidence=0.5, **few)
    for c in sure.plans:
        holds, _ = odds(c, sure.question.requirements, usual=False)
        assert holds is not None and 0.5 <= holds < 1.0 and c.holds == pytest.approx(holds)
        likelier = replace(c, holds=0.999)
        assert min((c, likelier), key=lambda c: c.rank) is likelier  # at one price
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


def test_a_plan_that_its_replay_breaks_goes_down(monkeypatch):
    """And one of the same layout with more to spare, which the replay keeps, is looked for.

    The limit lies between the percentile that the law has for the first plan and the replay's.
    """
    monkeypatch.setattr(samples, "ARRIVALS", 500)
    asked = {"request_rate": 20.0, "isl": "1000±800", "osl": 200, "mode": "aggregated"}
    few = {"tpot": 0.03, "top": 3, **asked}
    loose = ij.plan("qwen3-32b", "h200_sxm", p99_ttft=10.0, replay=True, **few)
    law = {c.layout: c.p99_ttft for c in loose.plans}
    rows: dict[Any, Any] = {row["layout"]: row for row in loose.rows()}
    name, ratio = max(
        ((x, rows[x]["replay_p99_ttft_ms"] / (1e3 * p99)) for x, p99 in law.items()
         if p99 and rows[x]["replay_p99_ttft_ms"]),
        key=lambda pair: pair[1],
    )  # fmt: skip
    assert ratio > 1.01, "no replay is above its law: choose another question"
    between = 0.5 * (1.0 + ratio) * law[name]
    answer = ij.plan("qwen3-32b", "h200_sxm", p99_ttft=between, replay=True, **few)
    broken: dict[Any, Any] = {
        row["layout"]: row["replay_broken"] for row in answer.rows() if row["replay_broken"]
    }
    assert name in broken and "p99 of TTFT" in broken[name]
    order = [c.layout in broken for c in answer.plans]
    assert order == sorted(order) and answer.best is not None
    assert answer.best.replay is not None and not answer.best.replay.excess
    every: Any = answer.rows()
    for row in every:
        kept = (row["replay_p99_ttft_ms"] or 0.0) <= 1e3 * between
        assert kept == (not row["replay_broken"])
    assert "breaks" in str(answer) and answer.plans[0] is answer.best
