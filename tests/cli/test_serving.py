"""`infer-jax estimate --estimator serving`: a loaded server, and one that cannot hold its load."""

import pytest

from infer_jax.catalog.published import serving_errors
from tests.cli.running import answer, run

ASKED = ("estimate", "qwen3-32b", "--quant", "fp8", "--estimator", "serving.trtllm")
ASKED += ("--hardware", "b200_sxm", "--tp", "2", "--isl", "2000", "--osl", "200")


def test_a_loaded_server_tells_its_waits_and_both_definitions():
    told = answer(*ASKED, "--concurrency", "16")
    assert told["feasible"] and told["running"] == pytest.approx(16, abs=1e-6)
    for name, phase in (("ttft_ms", told["prefill"]), ("tpot_ms", told["decode"])):
        assert sum(phase["terms"].values()) == pytest.approx(told[name])
        assert phase["terms"]["other prefills_ms"] > 0
    latency = told["ttft_ms"] + 199 * told["tpot_ms"]
    assert told["latency_ms"] == pytest.approx(latency)
    assert told["tpot_with_first_ms"] == pytest.approx(latency / 200)
    assert 100 < told["power_per_gpu_w"] < 1000  # of a B200
    joules = told["output_energy_per_mtok_j"] * 200 + told["input_energy_per_mtok_j"] * 2000
    assert joules == pytest.approx(told["blended_energy_per_mtok_j"] * 2200)


def test_more_requests_than_memory_holds_are_told_by_how_many():
    ran = run(*ASKED, "--concurrency", "100000")
    assert ran.code == 0
    assert "Not feasible: decode: requests needs 100000 of" in ran.out


def test_the_shipped_fit_tells_how_wrong_it_was_on_servers_left_out():
    point = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1")
    told = answer(*point, "--estimator", "serving.calibrated")
    errors = serving_errors()["h100_sxm", "vllm"]
    for name in ("ttft", "tpot"):
        ends = [told[f"{name}_ms"] * end for end in errors.within[name][80]]
        assert told[f"{name}_interval80_ms"] == pytest.approx(ends)
    ran = run(*point, "--estimator", "serving.calibrated")
    assert "by rows left out of the fit" in " ".join(ran.out.split())
