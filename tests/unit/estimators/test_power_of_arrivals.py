"""Power where requests arrive: idle chips draw idle power, and the replay of the server agrees."""

from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.catalog.published import power_shares

LOADS = (0.001, 0.1, 0.5, 0.9)
MODELS = ("llama-3.1-8b", "qwen3-32b", "llama-3.1-70b", "qwen3-30b-a3b", "gpt-oss-120b")
SYSTEMS = ("h100_sxm", "h200_sxm", "b200_sxm", "mi300x", "mi355x")


def server(seed):
    """A server and its requests, at random, and the rate that it carries at most."""
    random = np.random.default_rng(seed)
    model, system = str(random.choice(MODELS)), str(random.choice(SYSTEMS))
    tp = int(random.choice([1, 2, 4])) if model != "llama-3.1-70b" else 4
    isl, osl = (int(np.exp(random.uniform(*np.log(ends)))) for ends in ((50, 8000), (10, 800)))
    asked: dict[str, Any] = {"tp": tp, "isl": isl, "osl": osl}
    if model != "gpt-oss-120b":
        asked["quant"] = "fp8"
    idle = ij.estimate(model, system, request_rate=1e-3, **asked).estimate
    return (model, system), asked, float(idle.decode.limits["arrivals"].capacity)


def ratios(seed):
    """Mean watts of a GPU by law over those of the replay, at every load."""
    names, asked, capacity = server(seed)
    for load in LOADS:
        rate: dict[str, Any] = {"request_rate": capacity * load}
        law: Any = ij.estimate(*names, **asked, **rate).estimate
        run = ij.replay(*names, **asked, **rate, prompts=1000).runs[0]
        yield float(law.power) / (run.joules / run.duration)


@pytest.mark.slow
def test_law_and_replay_agree_on_a_hundred_servers():
    """Measured on another hundred: 99, 97 and 97 of 100 within 10 % at loads of 0.1, 0.5, 0.9.

    The board's limit, which the replay has by pass, adds the rest.
    """
    off = np.abs(np.array([list(ratios(seed)) for seed in range(100)]) - 1.0)
    assert np.max(off[:, 0]) < 0.01
    assert np.all(np.mean(off < 0.1, axis=0) >= 0.94) and np.max(off) < 0.3


def test_an_idle_server_draws_idle_power_and_a_loaded_one_more():
    names, asked, capacity = server(0)
    system = ij.load_system(names[1])
    generation = {"h": "hopper", "b": "blackwell"}.get(names[1][0], f"cdna{names[1][2]}")
    idle = float(system.hardware.power) * power_shares(generation)["idle"]
    loaded: Any = [
        ij.estimate(*names, **asked, request_rate=capacity * load).estimate
        for load in (1e-7, 0.01, 0.1, 0.3)
    ]
    powers = [float(x.power) for x in loaded]
    assert powers[0] == pytest.approx(idle, rel=1e-3)
    assert all(np.diff(powers) > 0.0)  # beyond, full batches read less for each token


def test_energy_is_of_the_gpus_unless_a_pue_is_given():
    """Joules a token of a server in flight are its watts over its tokens a second."""
    one: Any = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, isl=100, osl=400, batch=16).estimate
    assert float(one.blended_energy) * 500 == pytest.approx(
        1e6 * float(one.power) * 400 / float(one.throughput), rel=1e-9
    )
