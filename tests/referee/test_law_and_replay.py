"""The law of arrivals beside the replay of the same server, on servers drawn at random."""

from typing import Any

import numpy as np
import pytest

import infer_jax as ij

MODELS = ("llama-3.1-8b", "qwen3-32b", "llama-3.1-70b", "qwen3-30b-a3b", "gpt-oss-120b")
SYSTEMS = ("h100_sxm", "h200_sxm", "b200_sxm", "mi300x", "mi355x")


def errors(names, load, prompts, engine="vllm", **asked: Any):
    """(TTFT, TPOT, watts) of law over replay, less 1, at a share of the capacity."""
    of: dict[str, Any] = {"estimator": "serving" if engine == "vllm" else f"serving.{engine}"}
    idle = ij.estimate(*names, request_rate=1e-3, **of, **asked).estimate
    rate = load * float(idle.decode.limits["arrivals"].capacity)
    law: Any = ij.estimate(*names, request_rate=rate, **of, **asked).estimate
    run = ij.replay(*names, request_rate=rate, prompts=prompts, engine=engine, **asked).runs[0]
    settled = slice(prompts // 5, None)  # a replay begins with an empty server
    ttft = np.mean((run.first - run.arrival)[settled])
    tpot = np.mean(((run.last - run.first) / np.maximum(run.output - 1, 1))[settled])
    power = float(law.power) / (run.joules / run.duration)
    return float(law.ttft) / ttft - 1.0, float(law.tpot) / tpot - 1.0, power - 1.0


@pytest.mark.parametrize(
    ("model", "asked", "load"),
    [
        # short prompts, whose passes are launched as graphs, and many at once
        ("qwen3-32b", {"tp": 2, "isl": 200, "osl": 400}, 0.7),
        ("qwen3-32b", {"tp": 2, "isl": 2154, "osl": 463}, 0.8),
        # passes with prompts come first and decode nobody
        ("qwen3-30b-a3b", {"tp": 1, "isl": 655, "osl": 56, "engine": "sglang"}, 0.25),
    ],
)
def test_they_agree(model, asked, load):
    ttft, tpot, power = errors((model, "h200_sxm"), load, 2000, **asked)
    assert abs(tpot) < 0.15 and abs(ttft) < 0.25
    # tests/unit/estimators/test_power_of_arrivals.py has a hundred servers of vLLM
    assert abs(power) < 0.25 or "engine" in asked


def test_the_engines_limit_of_sequences_counts_in_both():
    """vLLM runs 1,024 at most: its capacity is that of the replay that is sent more."""
    names = ("gpt-oss-120b", "b200_sxm")
    asked: dict[str, Any] = {"tp": 2, "isl": 100, "osl": 300}
    law: Any = ij.estimate(*names, request_rate=1e6, **asked).estimate
    assert float(law.running) == pytest.approx(1024.0, rel=1e-3)
    run = ij.replay(*names, concurrency=1500, prompts=6000, **asked)
    assert run.request_throughput == pytest.approx(
        float(law.decode.limits["arrivals"].capacity), rel=0.1
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "count", "least_tpot", "least_ttft"),
    [("vllm", 200, 0.88, 0.93), ("sglang", 50, 0.78, 0.9)],
)
def test_they_agree_on_many_servers(engine, count, least_tpot, least_ttft):
    """Loads up to 0.9. Short outputs near capacity are what is left beyond the bounds."""
    random, off = np.random.default_rng(1), []
    for _ in range(count):
        model, system = str(random.choice(MODELS)), str(random.choice(SYSTEMS))
        tp = 4 if model == "llama-3.1-70b" else int(random.choice([1, 2, 4]))
        isl, osl = (int(np.exp(random.uniform(*np.log(x)))) for x in ((50, 8000), (5, 1000)))
        asked: dict[str, Any] = {"tp": tp, "isl": isl, "osl": osl}
        if model != "gpt-oss-120b":
            asked["quant"] = "fp8"
        load = random.uniform(0.05, 0.9)
        off.append(errors((model, system), load, 6000, engine, **asked))
    ttft, tpot, _ = np.abs(off).T
    assert np.mean(tpot < 0.15) >= least_tpot and np.mean(ttft < 0.25) >= least_ttft
