"""What is uncertain of a system: the fit's intervals, a calibration's own, and which bands."""

import numpy as np
import pytest

from infer_jax.calibration.plan_unknowns import Unknowns
from infer_jax.physics.chance import ratio
from infer_jax.planning import Requirements
from infer_jax.verbs.inputs import system_of
from infer_jax.verbs.plan_search import Question, plan_system
from infer_jax.verbs.requests import read_requests

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


def system_with(hardware, model="llama-3.1-8b"):
    requests = read_requests(None, None, 0.0, None, None)
    question = Question(model, [], requests, Requirements(chips=1.0), modes=("aggregated",))
    return plan_system(question, system_of(hardware), None)


LENGTHS = (1000.0, 500.0)


def upper(posterior, mode, output, load=32.0):
    """The factor below which nine tenths of measured runs are."""
    spread = posterior.errors[mode](load)[output].spread
    return float(np.exp(ratio(1.2815515655446004, spread)))


def test_a_calibration_brings_its_own_intervals_and_bands(tmp_path):
    (tmp_path / "mine.toml").write_text(MINE)
    unknowns = Unknowns(64)
    posterior = unknowns.posterior([system_with(tmp_path / "mine.toml")], LENGTHS)
    serving = posterior.servings[0]
    factor, gap = np.asarray(serving.decode_factor), np.asarray(serving.vllm.layer_gap)
    assert factor[0] == 1.1 and gap[0] == pytest.approx(80e-6)
    assert np.mean(factor[1:] > 1.16) == pytest.approx(0.1, abs=0.03)
    assert np.mean(gap[1:] < 70e-6) == pytest.approx(0.1, abs=0.03)
    # nothing else is drawn: a calibration takes up what coefficients it leaves are wrong by
    assert np.ptp(serving.weight_read) == 0.0 and np.ptp(serving.vllm.eager) == 0.0
    assert upper(posterior, "aggregated", 0) == pytest.approx(1.2)
    errors = posterior.errors["aggregated"]
    assert [errors(1.0, layout=x)[0].calibrated for x in (None, "TP1", "TP2")] == [1.0, 1.0, 0.0]
