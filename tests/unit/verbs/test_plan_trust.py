"""What is uncertain of a plan: its bands, the odds of its limits, and what is preferred then."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from experiments._validation import board
from infer_jax.calibration.plan_unknowns import Unknowns
from infer_jax.calibration.pooled.rows import BF16, PooledRow, ServedModel, StoredFormats
from infer_jax.estimators import measured_within
from infer_jax.estimators.serving import ServingWorkload
from infer_jax.physics.chance import Spread, ratio
from infer_jax.planning import USUAL_TTFT, Requirements
from infer_jax.planning.bands import probability, with_odds
from infer_jax.servers import runs
from infer_jax.verbs.inputs import system_of
from infer_jax.verbs.plan_search import Question, plan_system
from infer_jax.verbs.requests import read_requests


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
        chance: Any = probability
        found = float(chance(limits, times, spare, spreads))
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
        holds = with_odds(c, sure.question.requirements, usual=False).holds
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
    monkeypatch.setattr(runs, "ARRIVALS", 500)
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


MINE = """
title = "mine"
base = "h100_sxm"
[serving]
decode_factor = { value = 1.1, low = 1.05, high = 1.16, source = "me", note = "well known" }
[serving.vllm]
layer_gap_us = { value = 80.0, low = 70, high = 90.0, source = "me", note = "known" }
[calibrated]
model = "llama-3.1-8b"
formats = "bfloat16; KV cache bfloat16"
layouts = ["TP1"]
[serving_bands]
tpot_low = { value = 0.9, source = "me" }
tpot_high = { value = 1.2, source = "me" }
ttft_low = { value = 0.8, source = "me" }
ttft_high = { value = 1.5, source = "me" }
[sources]
me = "a test"
"""


def test_a_calibration_brings_its_own_intervals_and_bands(tmp_path):
    (tmp_path / "mine.toml").write_text(MINE)
    requests = read_requests(None, None, 0.0, None, None)
    asked = Question("llama-3.1-8b", [], requests, Requirements(chips=1.0), modes=("aggregated",))
    system = plan_system(asked, system_of(tmp_path / "mine.toml"), None)
    posterior = Unknowns(64).posterior([system], (1000.0, 500.0))
    serving = posterior.servings[0]
    factor, gap = np.asarray(serving.decode_factor), np.asarray(serving.vllm.layer_gap)
    assert factor[0] == 1.1 and gap[0] == pytest.approx(80e-6)
    assert np.mean(factor[1:] > 1.16) == pytest.approx(0.1, abs=0.03)
    assert np.mean(gap[1:] < 70e-6) == pytest.approx(0.1, abs=0.03)
    # nothing else is drawn: a calibration takes up what coefficients it leaves are wrong by
    assert np.ptp(serving.weight_read) == 0.0 and np.ptp(serving.vllm.eager) == 0.0
    spread = posterior.errors["aggregated"](32.0)[0].spread
    assert float(np.exp(ratio(TENTH, spread))) == pytest.approx(1.2)
    errors = posterior.errors["aggregated"]
    assert [errors(1.0, layout=x)[0].calibrated for x in (None, "TP1", "TP2")] == [1.0, 1.0, 0.0]
    asked = {"isl": 2000, "osl": 200, "total_gpus": 2.0}
    plans = ij.plan("llama-3.1-8b", tmp_path / "mine.toml", **asked)
    assert {c.mode for c in plans.plans} == {"aggregated", "disaggregated"}
    for c in plans.plans:  # two pools and other layouts were not calibrated
        for found, own in zip(factors(c.intervals, c), ((0.9, 1.2), (0.8, 1.5)), strict=True):
            calibrated = c.mode == "aggregated" and c.layout.endswith("x TP1")
            assert (found == pytest.approx(own)) == calibrated
            assert c.mode == "disaggregated" or (
                found[0] < 1.001 * own[0] and found[1] > 0.999 * own[1]
            )
    assert "80 % of measured runs" in str(plans)


TENTH = 1.2815515655446004  # normal score beyond which a tenth lies
NAMES = ("tpot", "ttft")
ASKED: dict[str, Any] = {"isl": 1000, "osl": 100}


def factors(intervals, answer):
    """Low and high end over the prediction, of both times."""
    ends = (intervals[f"{name}_interval80_ms"] for name in NAMES)
    return [
        np.asarray(x) / (1e3 * float(getattr(answer, n))) for n, x in zip(NAMES, ends, strict=True)
    ]


def believed(plans, c):
    """The same as ``plan --confidence`` believes."""
    systems = plans.systems_of(c)
    models = Unknowns(8).posterior(systems, (c.isl, c.osl)).errors[c.mode](c.batch)
    return [np.exp([float(ratio(z, model.spread)) for z in (-TENTH, TENTH)]) for model in models]


def scored(c):
    """The same as the scoreboard has of a row."""
    mode = "loop" if c.mode == "aggregated" else "pools"
    work = ServingWorkload.of(isl=c.isl, osl=c.osl, batch=c.batch)
    stored = ServedModel("llama-3.1-8b", StoredFormats(BF16, BF16, BF16, 2.0, 0.0))
    row = PooledRow(
        id="", dataset="here", measured={}, group="llama-3.1-8b h100_sxm vllm bf16",
        system="h100_sxm", engine="vllm", served=stored, workload=work, mode=mode,
    )  # fmt: skip
    ones = {name: np.ones(1) for name in NAMES}
    low, high = board.bands([row], ones)
    return [np.asarray([low[name][0], high[name][0]]) for name in NAMES]


@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
def test_every_verb_has_the_same_band_of_the_same_server(mode):
    gpus = 1.0 if mode == "aggregated" else 2.0
    few: dict[str, Any] = {"total_gpus": gpus, "mode": mode, "top": 1, "ttft": "none", **ASKED}
    answer = ij.plan("llama-3.1-8b", "h100_sxm", **few)
    c = answer.plans[0]
    bands = [factors(c.intervals, c), believed(answer.searched, c), scored(c)]
    if mode == "aggregated":
        one = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, batch=c.batch, **ASKED)
        report = ij.report("llama-3.1-8b", "h100_sxm", tp=1, batch=c.batch, **ASKED).answers
        bands.append(factors(one.intervals, one.estimate))
        bands.append(factors(report.intervals, report.estimate))
    for other in bands[1:]:
        for one, two in zip(bands[0], other, strict=True):
            assert one == pytest.approx(two)
