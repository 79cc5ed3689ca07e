"""`infer-jax plan`: the answer, the near misses, and what it refuses."""

import pytest

from tests.cli.running import answer, run

ASKED = ("plan", "llama-3.1-8b", "--hardware", "h100_sxm", "--isl", "2000", "--osl", "200")


def test_plans_meet_the_limits_cheapest_first():
    told = answer(*ASKED, "--total-gpus", "4", "--ttft", "0.4s", "--tpot", "12ms")
    assert told["feasible"] and not told["near_misses"]
    plans = told["plans"]
    assert {p["mode"] for p in plans} == {"aggregated", "disaggregated"}
    costs = [p["cost_per_mtok_usd"] for p in plans]
    assert costs == sorted(costs)
    for p in plans:
        assert p["ttft_ms"] <= 400 and p["tpot_ms"] <= 12 and p["gpus"] <= 4 and not p["broken"]
        tokens = 3600 * p["requests_per_s"] * (2000 + 200)
        assert p["cost_per_mtok_usd"] == pytest.approx(p["cost_per_hour_usd"] / tokens * 1e6)


def test_near_misses_say_what_they_break():
    printed = run(*ASKED, "--total-gpus", "4", "--tpot", "0.1ms", "--mode", "aggregated").out
    assert "No plan meets every limit" in printed and "TPOT by" in printed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--total-gpus, --concurrency or --request-rate"),
        (("--concurrency", "8", "--request-rate", "2"), "not both"),
        (("--total-gpus", "4", "--mode", "split"), "aggregated, disaggregated"),
        (("--total-gpus", "4", "--engine", "hf"), "trtllm, sglang, vllm"),
        (("--total-gpus", "4", "--prefix", "3000"), "--prefix"),
        (("--total-gpus", "0"), "--total-gpus"),
    ],
)
def test_refusals_are_one_sentence(options, said):
    ended = run(*ASKED, *options)
    assert ended.code == 2 and len(ended.err.strip().splitlines()) == 1
    assert said in ended.err
