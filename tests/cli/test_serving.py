"""`infer-jax estimate` of a loaded server, of one that cannot hold its load, beyond capacity."""

import math
import re
from functools import partial

import pytest

import infer_jax as ij
from infer_jax.estimators.serving import Deployment, ServerEstimate, ServingWorkload
from infer_jax.specs import Arrivals
from infer_jax.sweeps import Axis, Best, Space
from tests.cli.running import answer, answered_once, run

ASKED = ("estimate", "qwen3-32b", "--quant", "fp8", "--estimator", "serving.trtllm")
ASKED += ("--hardware", "b200_sxm", "--tp", "2", "--isl", "2000", "--osl", "200")


def test_a_loaded_server_tells_its_waits_and_both_definitions():
    output = answer(*ASKED, "--concurrency", "16")
    assert output["feasible"] and output["running"] == pytest.approx(16, abs=1e-6)
    for name, phase in (("ttft_ms", output["prefill"]), ("tpot_ms", output["decode"])):
        assert sum(phase["terms"].values()) == pytest.approx(output[name])
        assert phase["terms"]["other prefills_ms"] > 0
    latency = output["ttft_ms"] + 199 * output["tpot_ms"]
    assert output["latency_ms"] == pytest.approx(latency)
    assert output["tpot_with_first_ms"] == pytest.approx(latency / 200)
    assert 100 < output["power_per_gpu_w"] < 1000  # of a B200
    joules = output["output_energy_per_mtok_j"] * 200 + output["input_energy_per_mtok_j"] * 2000
    assert joules == pytest.approx(output["blended_energy_per_mtok_j"] * 2200)


def test_more_requests_than_memory_holds_are_told_by_how_many():
    ran = run(*ASKED, "--concurrency", "100000")
    assert ran.code == 0
    places = re.search(r"decode: 100000 requests are to run at once and (\d+) fit\.", ran.out)
    limit = answer(*ASKED, "--concurrency", "100000")["decode"]["limits"]["requests"]
    assert places and int(places[1]) == math.floor(limit["capacity"])


def test_the_interval_says_what_it_is_of():
    printed = run("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1").out
    assert "by rows left out of the fit" in " ".join(printed.split())


def test_verbs_answer_one_question_alike():
    """What `plan` says of its plan, `estimate`, `compare` and `sensitivity` say of it too."""
    point = ("llama-3.1-8b", "--hardware", "h100_sxm", "--isl", "1000", "--osl", "101")
    words = ("plan", *point, "--total-gpus", "1", "--mode", "aggregated", "--top", "1")
    plans, printed = answered_once(*words)
    (planned,) = plans["plans"]
    joules = planned["output_energy_per_mtok_j"]  # of a million tokens everywhere
    assert joules > 1e4 and f"{joules:.0f}" in printed.split()
    given = ("--tp", "1", "--batch", f"{planned['concurrency_per_replica']:g}")
    output = answer("estimate", *point, *given)
    assert output["estimator"] == "serving"
    searched = answer("estimate", *point, "--total-gpus", "2")["estimator"]
    assert searched == "economics"  # a split that is looked for
    for name in ("ttft_ms", "tpot_ms"):
        assert output[name] == pytest.approx(planned[name], rel=1e-9)
    one, two = answer("compare", *point, *given, "--estimator", "kernels")["estimators"]
    assert (one["name"], two["name"]) == ("serving", "kernels")
    # one name, one number: in tokens/s and dollars of a GPU as in times
    assert {"ttft_ms", "throughput_per_gpu_tokens_per_s", "output_cost_per_mtok_usd"} <= set(
        one["answers"]
    )
    for name, value in one["answers"].items():
        assert value == pytest.approx(output[name], rel=1e-9), name


def test_a_benchmark_is_asked_for_and_a_server_runs_on_by_itself():
    """One request in w waits for the first ones: of twice as many requests the mean has half."""
    point = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--batch", "32")
    steady = answer(*point)
    assert steady["prompts"] is None and steady["ttft_ms"] == steady["ttft_median_ms"]
    short, printed = answered_once(*point, "--prompts", "320")
    long = answer(*point, "--prompts", "640")
    for one in (short, long):
        assert one["ttft_median_ms"] == pytest.approx(steady["ttft_ms"], rel=1e-5)
        assert one["tpot_ms"] == pytest.approx(steady["tpot_ms"], rel=1e-5)
    waits = [one["ttft_ms"] - steady["ttft_ms"] for one in (short, long)]
    assert waits[0] == pytest.approx(2.0 * waits[1], rel=1e-3) and waits[1] > 1.0
    assert "mean TTFT" in printed and "median TTFT" in printed
    said = " ".join(printed.split())
    assert "Of 320 requests the first 32 come all at once" in said
    assert "at least the 32 in flight" in run(*point, "--prompts", "8").err


def test_a_server_that_looks_for_requests_less_often_says_so():
    """(n - 1) / 2 passes more before the first that can feed an arrival."""
    point = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--batch", "32")
    sglang = (*point, "--estimator", "serving.sglang")
    often, seldom, never = (answer(*sglang, "--polling", str(n))["ttft_ms"] for n in (1, 11, 21))
    assert never - often == pytest.approx(2.0 * (seldom - often), rel=1e-3)
    assert seldom - often == pytest.approx(5.0 * answer(*sglang)["tpot_ms"], rel=0.2)
    ideal = (*point, "--estimator", "economics.planned", "--polling", "10")
    assert "--estimator serving" in run(*ideal).err


def test_prompts_that_wait_for_other_attention_groups_say_so():
    """Half of the timeout in passes where prompts are rare, and never without groups."""
    engine = ("--hardware", "b200_sxm", "--estimator", "serving.trtllm", "--batch", "64")
    rare = ("estimate", "deepseek-v3", *engine, "--ep", "8", "--isl", "1024", "--osl", "65536")
    at_once, balanced = (answer(*rare, *x) for x in ((), ("--balance-timeout", "60")))
    waited = balanced["ttft_ms"] - at_once["ttft_ms"]
    assert waited == pytest.approx(30.0 * balanced["tpot_ms"], rel=0.02)
    alone = ("estimate", "llama-3.1-8b", *engine, "--tp", "1")
    single = (answer(*alone, *x)["ttft_ms"] for x in ((), ("--balance-timeout", "60")))
    assert next(single) == next(single)


DARK = ("llama-3.1-8b", "--hardware", "tpu_v6e")


def test_an_unknown_power_is_unknown_and_not_nothing(tmp_path):
    """The profile of a TPU v6e has no power."""
    words = (*DARK, "--tp", "1")
    output, printed = answered_once("estimate", *words)
    for name in ("power_per_gpu_w", "output_energy_per_mtok_j", "input_energy_per_mtok_j",
                 "blended_energy_per_mtok_j"):  # fmt: skip
        assert output[name] is None
    assert printed.count("unknown") == 3
    plan = ("plan", *DARK, "--total-gpus", "1", "--mode", "aggregated", "--top", "1")
    output, printed = answered_once(*plan)
    assert output["plans"][0]["output_energy_per_mtok_j"] is None
    assert printed.count("unknown") == 3
    both = (*words, "--estimator", "economics.planned")
    output, printed = answered_once("compare", *both)
    assert output["estimators"][0]["answers"]["power_per_gpu_w"] is None and "unknown" in printed
    slopes = answer("sensitivity", *both, "--top", "1")
    assert {e["output"] for e in slopes["points"][0]["elasticities"]} == {"ttft", "tpot", "cost"}
    assert any("J/Mtok is unknown" in note for note in slopes["notes"])


def test_requests_in_flight_are_the_rate_times_the_latency():
    """Little's law, of an estimate and of every plan; those that run are fewer."""
    point = ("llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--osl", "2")
    output = answer("estimate", *point, "--request-rate", "9")
    sent = 9.0 * (output["ttft_ms"] + output["tpot_ms"]) / 1e3
    assert output["in_flight"] == output["concurrency"] == pytest.approx(sent, rel=1e-6)
    assert 0.0 < output["running"] <= output["in_flight"] * (1.0 + 1e-6)
    words = ("plan", "qwen3-30b-a3b", "--hardware", "h200_sxm", "--request-rate", "20")
    words += ("--isl", "1500", "--osl", "300", "--top", "9", "--mode", "aggregated")
    rows = answer(*words)["plans"]
    assert {row["degrees"]["attention_dp"] for row in rows} != {1}
    for row in rows:
        latency = row["ttft_ms"] + 299.0 * row["tpot_ms"]
        sent = 20.0 * latency / 1e3 / row["degrees"]["replicas"]
        assert row["concurrency_per_replica"] == pytest.approx(sent, rel=1e-6)
        assert 0.0 < row["running"] <= row["concurrency_per_replica"] * (1.0 + 1e-6)


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
    flight = of(batch=10_000).estimate
    assert isinstance(full, ServerEstimate) and isinstance(beyond, ServerEstimate)
    assert isinstance(flight, ServerEstimate)
    assert float(beyond.tpot) == pytest.approx(float(full.tpot), rel=0.05)
    assert float(beyond.running) == pytest.approx(float(flight.running), rel=0.02)
    assert float(full.running) <= float(beyond.running)


def test_near_misses_of_a_sweep_say_that_their_times_are_no_means():
    rates = Arrivals.of(rate=1.0).replace(rate=Axis.values(100.0, 200.0))
    work = ServingWorkload.of(isl=1024, osl=128).replace(arrivals=rates)
    model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    space = Space(model, system, work, Deployment.of())
    keep = Best("cost", under={"tpot": 0.03})
    found = ij.sweep(space, keep=keep, estimator="serving", precision="float64")  # one program
    assert not found.met and "no time is a mean" in str(found)
