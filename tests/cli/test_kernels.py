"""`infer-jax kernels`: what it answers, and what it and `measure` refuse.

What `measure` answers takes a minute: tests/installed/test_verbs.py asks it.
"""

import pytest

from tests.cli.running import answered_once, run

QWEN = ("kernels", "qwen3-30b-a3b", "--hardware", "h20_sxm")


@pytest.fixture(scope="module")
def said():
    """(JSON, text) of one answer."""
    return answered_once(*QWEN, "--ep", "4", "--batch", "400", "--isl", "4096", "--osl", "2048")


def test_a_pass_is_a_sum_of_kernels(said):
    result, _ = said
    layers = sum(row["layers"] * row["time_us"] for row in result["decode"])
    assert 0 < layers / 1e3 < result["tpot_ms"]
    assert result["decode_tokens_per_s_per_gpu"] == pytest.approx(100 / result["tpot_ms"] * 1e3)
    for row in result["decode"] + result["prefill"]:
        balance = result["balance_flop_per_byte"]
        bound = row["intensity_flop_per_byte"] > min(balance.values())
        assert row["bound"] == "memory" or bound, row
        assert 0 < row["mfu"] <= 1
    kinds = {row["kernel"]: row["bound"] for row in result["prefill"]}
    assert kinds["attention"] == kinds["experts"] == "compute"
    assert result["feasible"] and result["largest_batch"] >= 400


@pytest.mark.parametrize("more", [(), ("--as-published",)])
def test_rows_of_a_pass_add_up_to_the_answer(more):
    output, said = answered_once("kernels", "qwen3-8b", "--hardware", "h800_sxm", *more)
    for stage, time in (("prefill", "ttft_ms"), ("decode", "tpot_ms")):
        terms = output["terms"][stage]
        assert sum(terms.values()) == pytest.approx(output[time], rel=1e-12)
        # kernels of all layers are the pass without the network and the scheduling
        if more == ("--as-published",):
            continue  # which counts the micro-batches of some kernels otherwise
        kernels = sum(row["layers"] * row["time_us"] for row in output[stage]) / 1e3
        outside = terms["scheduling_ms"] + terms.get("network_ms", 0.0)
        assert kernels == pytest.approx(output[time] - outside, rel=1e-9)
    assert "a pass is spent on" in said and "scheduling" in said


def test_a_batch_that_does_not_fit_is_said_first():
    words = ("kernels", "qwen3-8b", "--hardware", "h800_sxm", "--batch")
    assert run(*words, "1e5").out.split("\n")[1].startswith("Not feasible: memory needs")
    assert "Not feasible" not in run(*words, "8").out
