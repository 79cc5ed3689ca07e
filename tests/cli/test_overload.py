"""Beyond capacity the queue grows without end: rates are answered, and no times."""

from functools import partial

import pytest

import infer_jax as ij
from infer_jax.estimators.serving import Deployment, ServerEstimate, ServingWorkload
from infer_jax.specs import Arrivals
from infer_jax.sweeps import Axis, Best, Space
from tests.cli.running import answered_once, run

SERVER = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1")
STAGES = ("estimate", "qwen3-32b", "--hardware", "gb200_nvl72", "--tp", "2", "--pp", "2", "--isl",
          "12368", "--osl", "15")  # fmt: skip


@pytest.mark.parametrize(("server", "rate"), [(SERVER, "1e6"), (STAGES, "9")])
def test_no_time_is_answered_beyond_capacity(server, rate):
    output, printed = answered_once(*server, "--request-rate", rate, "--tpot", "30ms")
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
    assert "grows without end" in printed and "80 % of measured runs" not in printed
    assert "Percentiles" not in printed and "spent on" not in printed


def test_a_picture_of_no_times_is_refused(tmp_path):
    file = tmp_path / "times.png"
    refused = run(*SERVER, "--request-rate", "1e6", "--out", str(file))
    assert refused.code == 2 and "a rate below 4" in refused.err and not file.exists()


def test_a_replay_says_that_its_queue_grows():
    """9 requests/s where at most 3.6 are completed; a server that keeps up is not overloaded."""
    server = ("replay", "qwen3-32b", "--hardware", "gb200_nvl72", "--tp", "2", "--isl", "12368",
              "--osl", "15", "--prompts", "200")  # fmt: skip
    output, printed = answered_once(*server, "--request-rate", "9")
    assert output["overloaded"] and "The queue grows without end" in printed
    assert output["requests_per_s"] < 4.0
    output, printed = answered_once(*server, "--request-rate", "3")
    assert not output["overloaded"] and "grows without end" not in printed


def test_the_time_per_token_beyond_capacity_is_that_at_capacity():
    """Prompts that wait without end delay nobody who decodes; every slot is taken."""
    of = partial(ij.estimate, "qwen3-32b", hardware="gb200_nvl72", tp=2, pp=2, isl=12368, osl=15)
    capacity = float(of(request_rate=9).estimate.decode.limits["arrivals"].capacity)
    full, beyond = (of(request_rate=rate * capacity).estimate for rate in (1.0 - 1e-6, 9.0))
    assert isinstance(full, ServerEstimate) and isinstance(beyond, ServerEstimate)
    assert float(beyond.tpot) == pytest.approx(float(full.tpot), rel=0.05)
    assert float(beyond.running) == pytest.approx(float(full.running), rel=1e-3)


def test_near_misses_of_a_sweep_say_that_their_times_are_no_means():
    rates = Arrivals.of(rate=1.0).replace(rate=Axis.values(100.0, 200.0))
    work = ServingWorkload.of(isl=1024, osl=128).replace(arrivals=rates)
    model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    space = Space(model, system, work, Deployment.of())
    keep = Best("cost", under={"tpot": 0.03})
    found = ij.sweep(space, keep=keep, estimator="serving", precision="float64")  # one program
    assert not found.met and "no time is a mean" in str(found)
