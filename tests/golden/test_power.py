"""Power, and micro-benchmarks: rows that carry them, the fit to them, and which chips have what."""

import csv
from io import StringIO

import numpy as np
import pytest

from experiments._validation import board, folds, kinds, power
from experiments.power import ML_ENERGY
from infer_jax.calibration.pooled.rows import rows_of
from infer_jax.catalog import list_systems, load_system
from infer_jax.catalog.published import measured_rates, power_errors, power_shares
from infer_jax.estimators import make
from infer_jax.estimators.serving import GENERATIONS, Deployment, Serving


def lines(text):
    return list(csv.DictReader(StringIO(text)))


def test_rows_of_ml_energy_are_those_that_are_published():
    read = kinds.read(ML_ENERGY)
    assert len(read.rows) == 129 and not read.skipped
    one = next(row for row in read.rows if row.id == "gpt-oss-120b b200_sxm mxfp4 2 128")
    assert one.measured == pytest.approx({"tpot": 12.12e-3, "power": 1517.8 / 2})
    assert isinstance(one.plan, Deployment) and one.workload is not None
    assert float(one.plan.tp) == 2.0 and float(one.workload.osl) == 1760.0
    assert {row.dataset for row in read.rows} == {"ml.energy h100", "ml.energy b200"}
    assert not rows_of(lines("gpu_model,model\na40,qwen3-8b\n"), kinds._power_row).rows


def test_every_chip_draws_what_its_generation_does_and_others_the_mean():
    unseen = Serving.of().draw
    assert float(unseen.idle) == power_shares()["idle"]
    for name in list_systems():
        system = load_system(name)
        own = system.coefficients.get("serving", {})
        serving = make("serving", system.coefficients)
        assert isinstance(serving, Serving)
        drawn = serving.draw
        which = GENERATIONS[int(own["generation"])] if "generation" in own else "unseen"
        if which == "unseen":  # a chip of Hopper that has no generation would draw the mean
            assert "H100" not in system.title and "H200" not in system.title
        expected = power_shares(which)
        assert {n: float(getattr(drawn, n)) for n in power.FIELDS} == expected, name
        low, high = power_errors(which).within[80]
        assert low < 1.0 < high


def test_the_band_of_power_is_that_of_the_chip():
    (row, *_) = kinds.read(ML_ENERGY).rows
    ends = board.bands([row], {"power": np.array([500.0])})
    factors = power_errors("hopper").within[80]
    assert (ends.low["power"][0], ends.high["power"][0]) == pytest.approx(500.0 * np.array(factors))


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
