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
    told = answer(*point)
    errors = serving_errors()["h100_sxm", "vllm"]
    for name in ("ttft", "tpot"):
        ends = [told[f"{name}_ms"] * end for end in errors.within[name][80]]
        assert told[f"{name}_interval80_ms"] == pytest.approx(ends)
    ran = run(*point)
    assert "by rows left out of the fit" in " ".join(ran.out.split())


def test_verbs_answer_one_question_alike():
    """What `plan` says of its plan, `estimate`, `compare` and `sensitivity` say of it too."""
    point = ("llama-3.1-8b", "--hardware", "h100_sxm", "--isl", "1000", "--osl", "101")
    planned = answer("plan", *point, "--total-gpus", "1", "--mode", "aggregated")["plans"][0]
    given = ("--tp", "1", "--batch", f"{planned['concurrency_per_replica']:g}")
    told = answer("estimate", *point, *given)
    assert told["estimator"] == "serving"
    for name in ("ttft_ms", "tpot_ms"):
        assert told[name] == pytest.approx(planned[name], rel=1e-9)
    one, two = answer("compare", *point, *given, "--estimator", "kernels")["estimators"]
    assert (one["name"], two["name"]) == ("serving", "kernels")
    assert one["answers"]["ttft_ms"] == pytest.approx(told["ttft_ms"], rel=1e-9)
    assert answer("sensitivity", *point, *given, "--top", "1")["estimator"] == "serving"


def test_a_split_that_is_looked_for_is_of_an_estimator_that_searches():
    point = ("llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", "2")
    assert answer("estimate", *point)["estimator"] == "economics"
