"""Every verb and the scoreboard have the same band of the same server."""

from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from experiments._validation import board
from infer_jax.calibration.plan_unknowns import Unknowns
from infer_jax.calibration.pooled.rows import BF16, PooledRow, ServedModel, StoredFormats
from infer_jax.estimators.serving import ServingWorkload
from infer_jax.physics.chance import ratio

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
