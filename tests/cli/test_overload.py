"""Beyond capacity the queue grows without end: rates are answered, and no times."""

import pytest

from tests.cli.running import answer, run

SERVER = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1")
STAGES = ("estimate", "qwen3-32b", "--hardware", "gb200_nvl72", "--tp", "2", "--pp", "2", "--isl",
          "12368", "--osl", "15")  # fmt: skip


@pytest.mark.parametrize(("server", "rate"), [(SERVER, "1e6"), (STAGES, "9")])
def test_no_time_is_answered_beyond_capacity(server, rate):
    output = answer(*server, "--request-rate", rate, "--tpot", "30ms")
    arrivals = output["decode"]["limits"]["arrivals"]
    assert not output["feasible"] and arrivals["need"] > arrivals["capacity"]
    times = ("ttft_ms", "tpot_ms", "latency_ms", "tpot_with_first_ms", "speed_tokens_per_s")
    assert all(output[name] is None for name in (*times, "batch", "concurrency"))
    assert output["limits"]["tpot"] == {"limit_ms": 30, "value_ms": None, "met": False}
    assert not output["ttft_percentiles_ms"] and not output["prefill"]["terms"]
    assert not any("interval80" in name for name in output)
    # the tokens of the requests that are carried
    carried = arrivals["capacity"] * output["osl_tokens"]
    assert output["throughput_tokens_per_s"] == pytest.approx(carried, rel=1e-3)
    printed = run(*server, "--request-rate", rate).out
    assert "grows without end" in printed and "80 % of measured runs" not in printed
    assert "Percentiles" not in printed and "spent on" not in printed


def test_a_rate_within_capacity_has_times():
    output = answer(*SERVER, "--request-rate", "1")
    assert output["feasible"] and output["ttft_ms"] > 0.0 and output["tpot_interval80_ms"]


def test_a_picture_of_no_times_is_refused(tmp_path):
    file = tmp_path / "times.png"
    refused = run(*SERVER, "--request-rate", "1e6", "--out", str(file))
    assert refused.code == 2 and "a rate below 4" in refused.err and not file.exists()
