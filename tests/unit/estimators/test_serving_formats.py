"""What formats and pipelines change in a server's estimate, by hand."""

from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.estimators.serving import Serving
from infer_jax.planning import PlanSpace, Requirements, Side, layouts, table
from infer_jax.specs import Workload

FEW: dict[str, Any] = {"isl": 2000, "osl": 100, "batch": 8}


def launches(quant):
    answer = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, quant=quant, **FEW).estimate
    return float(answer.decode.terms["launch"])


def test_quantising_at_run_time_costs_launches():
    """Scales by block are computed of every activation, a scale per tensor is stored with it."""
    plain = launches("bf16")
    assert launches("fp8") == pytest.approx(plain)
    assert launches("fp8_block") > 1.05 * plain


def test_stages_share_the_flop_of_a_prompt():
    """MFU times the time is the prompt's work at the peak of all chips: half on twice as many."""
    one, two = (
        ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, pp=pp, **FEW).estimate for pp in (1, 2)
    )
    work = [float(x.prefill.mfu * x.prefill.time) for x in (one, two)]
    assert work[1] == pytest.approx(work[0] / 2.0, rel=1e-6)
    # 2 FLOP for each weight of the layers and token of the prompt
    arch, chip = (
        ij.load_model("llama-3.1-8b").architecture,
        ij.load_system("h100_sxm").hardware.chip,
    )
    attention, feedforward = 4096 * (2 * 4096 + 2 * 1024), 3 * 4096 * 14336
    flop = 2.0 * 2000 * 32 * (attention + feedforward)
    assert float(arch.blocks[0].count) == 32
    assert work[0] == pytest.approx(flop / float(chip.flops_16), rel=1e-6)


def test_every_attention_group_has_requests():
    system, arch = ij.load_system("h200_sxm"), ij.load_model("qwen3-30b-a3b").architecture
    serving = Serving.of().fitted(system.coefficients["serving"])
    legal = [x for x in layouts(arch, 4) if x.chips == 4 and x.pp == 1]
    side, work = Side("h200_sxm", system.hardware, serving), Workload.of(isl=500, osl=50)
    found = table(PlanSpace((side,), arch, work, Requirements()), legal)
    groups = np.array([found.at(i).attention_dp for i in range(len(found.batch))])
    assert groups.max() == 4 and np.all(found.batch % groups == 0)
    np.testing.assert_allclose(np.asarray(found.estimates.in_flight), found.batch)
