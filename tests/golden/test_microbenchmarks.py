"""Micro-benchmarks of two makes: what is published, and what it makes of a make without rows."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments._validation import folds, microbenchmarks
from infer_jax.calibration.pooled import answers, likelihood
from infer_jax.calibration.pooled.likelihood import PooledTimes
from infer_jax.calibration.pooled.rows import BF16, PooledRow, ServedModel, StoredFormats
from infer_jax.catalog import load_system
from infer_jax.catalog.published import measured_rates
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload
from infer_jax.specs import Hierarchy


def row(system):
    work = ServingWorkload.of(isl=1024.0, osl=256.0, batch=8.0)
    formats = StoredFormats(BF16, BF16, BF16, 2.0, 0.0)
    return PooledRow(
        id="", dataset="here", measured={"tpot": 0.01}, group=system, system=system, engine="vllm",
        served=ServedModel("llama-3.1-8b", formats), workload=work,
        plan=Deployment.of(tp=8.0),
    )  # fmt: skip


def test_every_figure_is_of_a_bundled_chip_and_below_what_it_could_be():
    for one in measured_rates():
        assert one.source and one.what
        for name, value in one.measured.items():
            share = value / microbenchmarks._sheet(one.quantity, name)
            # switches that add beside the GPUs: an all-reduce is faster than its links' ring
            assert 0.3 < share < (1.1 if one.quantity == "link" else 1.0), (one.quantity, name)


def test_a_ratio_is_of_shares_of_data_sheets_in_the_same_benchmark():
    ratio = microbenchmarks.ratio
    assert ratio("gemm_16", "mi300x") == pytest.approx((758.3 / 1307.4) / (792.1 / 989.4), rel=1e-3)
    assert ratio("gemm_16", "mi355x") == pytest.approx((1610 / 2516.6) / (1570 / 2250), rel=1e-3)
    h100, h200 = 2.984 / 3.35, 4.158 / 4.8
    memory = (4.094 / 5.3) / np.sqrt(h100 * h200)
    assert ratio("memory", "mi300x") == pytest.approx(memory, rel=1e-3)
    # no benchmark of its memory or links is known: its make's
    assert ratio("memory", "mi355x") == ratio("memory", "mi300x")
    assert ratio("launch", "mi300x") == 1.0


def test_a_left_out_make_has_its_own_rates_and_nvidia_keeps_the_data_sheets():
    base = answers.shipped_fit()
    amd, other = microbenchmarks.applied([row("mi300x"), row("h100_sxm")])
    assert other.rates == (1.0, 1.0)
    found, sheet = answers.inputs(amd, base).hardware, load_system("mi300x").hardware
    assert isinstance(found.network, Hierarchy) and isinstance(sheet.network, Hierarchy)
    for quantity, own, printed in (
        ("memory", found.chip.memory_bandwidth, sheet.chip.memory_bandwidth),
        ("link", found.network.domain_bandwidth, sheet.network.domain_bandwidth),
    ):
        factor = microbenchmarks.ratio(quantity, "mi300x")
        assert float(own) == pytest.approx(factor * float(printed))
    assert float(found.chip.flops_16) == float(sheet.chip.flops_16)
    made = likelihood.problem(PooledTimes.of([amd, other]))
    free = folds.without(np.asarray(made.starts(1, 0.0, 0)[0]), made, "amd")
    values = dict(
        zip(made.chosen.names, np.asarray(made.chosen.values(jnp.asarray(free))), strict=True)
    )
    serving = Serving.of()
    shared = np.sqrt(float(serving.hopper.gemm_8) * float(serving.blackwell.gemm_8))
    factor = microbenchmarks.ratio("gemm_8", "mi300x")
    assert values["cdna3.gemm_8"] == pytest.approx(shared * factor, rel=1e-3)
    assert values["cdna3.gap"] == pytest.approx(np.sqrt(values["blackwell.gap"]), rel=1e-3)
