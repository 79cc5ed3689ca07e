"""Requests in flight are the rate times the latency (Little's law); those that run are fewer."""

import pytest

from tests.cli.running import answer


@pytest.mark.parametrize(
    "server",
    [
        ("llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--request-rate", "2"),
        ("llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--osl", "2", "--request-rate",
         "9"),
    ],
)  # fmt: skip
def test_of_an_estimate(server):
    output = answer("estimate", *server)
    latency = output["ttft_ms"] + (output["osl_tokens"] - 1.0) * output["tpot_ms"]
    sent = output["request_rate_per_s"] * latency / 1e3
    assert output["in_flight"] == pytest.approx(sent, rel=1e-6)
    assert output["concurrency"] == pytest.approx(sent, rel=1e-6)
    assert 0.0 < output["running"] <= output["in_flight"] * (1.0 + 1e-6)


@pytest.mark.parametrize("osl", ["2", "300"])
def test_of_every_plan(osl):
    asked = ("plan", "qwen3-30b-a3b", "--hardware", "h200_sxm", "--request-rate", "20", "--isl",
             "1500", "--osl", osl, "--top", "9", "--mode", "aggregated")  # fmt: skip
    rows = answer(*asked)["plans"]
    assert {row["degrees"]["attention_dp"] for row in rows} != {1}
    for row in rows:
        latency = row["ttft_ms"] + (float(osl) - 1.0) * row["tpot_ms"]
        sent = 20.0 * latency / 1e3 / row["degrees"]["replicas"]
        assert row["concurrency_per_replica"] == pytest.approx(sent, rel=1e-6)
        assert 0.0 < row["running"] <= row["concurrency_per_replica"] * (1.0 + 1e-6)
