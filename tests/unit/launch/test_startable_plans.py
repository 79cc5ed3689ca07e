"""Plans are of their engine: the first one has a command, and no layout without one is searched."""

from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.estimators import Serving
from infer_jax.launch import ENGINES
from infer_jax.planning import Layout
from infer_jax.planning.choice import Side
from tests.unit.launch.test_launch import options

MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b", "mixtral-8x7b")
SYSTEMS = ("h100_sxm", "b200_sxm", "mi325x", "gb200_nvl72", "rtx_pro_6000")


def first_plan_starts(engine, model, systems, **load):
    answer = ij.plan(model, systems, engine=engine, top=1, **load)
    best = answer.best
    if best is None:
        return False
    launch = answer.launch[engine]
    assert launch.steps, (best.layout, launch.missing)
    for step in launch.steps:
        if "trtllm-serve disaggregated" not in step.command:
            options(engine, step.command)
    return True


def draw(seed, count):
    """Questions over models, chips and engines, each with GPUs enough for the weights."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        engine = str(random.choice([*ENGINES]))
        systems = [str(x) for x in random.choice(SYSTEMS, random.integers(1, 3), replace=False)]
        if engine == "trtllm":  # which runs on NVIDIA's chips
            systems = [x for x in systems if x != "mi325x"] or ["h200_sxm"]
        load = {"total_gpus": float(random.choice([8, 16, 40]))}
        load["isl"], load["osl"] = (float(random.integers(100, 4000)) for _ in range(2))
        if random.random() < 0.3:
            load["request_rate"] = float(random.uniform(0.1, 3.0))
        mode = str(random.choice(["aggregated", "disaggregated"]))
        yield engine, str(random.choice(MODELS)), systems, {"mode": mode, "ttft": "none", **load}


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.slow)])
def test_the_first_plan_has_a_command_of_its_engine(count):
    found = [
        first_plan_starts(engine, model, systems, **load)
        for engine, model, systems, load in draw(count, count)
    ]
    assert np.mean(found) > 0.5


def test_experts_are_dealt_as_the_engine_deals_them():
    """vLLM deals experts to all GPUs of a stage or to none; TensorRT-LLM to any number of them."""
    asked = {"total_gpus": 8.0, "mode": "aggregated", "ttft": "none", "top": 64}
    for engine, some in (("vllm", False), ("sglang", False), ("trtllm", True)):
        plans = ij.plan("qwen3-30b-a3b", "h100_sxm", engine=engine, **asked).plans
        degrees: list[Any] = [c.degrees for c in plans]
        dealt = {(d["ep"], d["tp"] * d["attention_dp"]) for d in degrees}
        assert any(ep not in (1.0, ranks) for ep, ranks in dealt) == some


def test_a_chip_that_the_engine_does_not_run_on_comes_last():
    """TensorRT-LLM runs on NVIDIA's chips: a cheaper plan on AMD's is no plan of it."""
    asked = {"total_gpus": 4.0, "mode": "aggregated", "engine": "trtllm", "ttft": "none"}
    answer = ij.plan("llama-3.1-8b", ["mi300x", "h100_sxm"], price=1.0, **asked)
    systems = [c.system for c in answer.plans]
    assert systems[0] == "h100_sxm" and systems == sorted(systems)
    assert "AMD" not in answer.launch["trtllm"].missing and answer.launch["trtllm"].steps
    first = min(c.usd_per_mtok for c in answer.plans if c.system == "mi300x")
    assert first < answer.plans[0].usd_per_mtok  # dollars alone would put it first
    (space,) = (note for note in answer.notes() if "layout" in note)
    says = "Every layout that TensorRT-LLM can start, on mi300x every legal one, and every batch"
    assert space.startswith(says)


def test_no_answer_says_that_a_layout_starts_which_the_launch_command_refuses():
    """Weights that nobody publishes, and drafts in pools, have no command."""
    asked: dict[str, Any] = {"total_gpus": 16.0, "ttft": "none", "top": 8}
    weights = ij.plan("deepseek-r1", "b200_sxm", quant="nvfp4", mode="aggregated", **asked)
    drafts = {"draft": "llama-3.2-1b", "acceptance": 0.8, "mode": "disaggregated"}
    drafts = ij.plan("llama-3.1-70b", "h100_sxm", **drafts, **asked)
    for answer, can in (
        (weights, "could start if it loaded the weights"),
        (drafts, "without drafts"),
    ):
        assert any(c.obstacle for c in answer.plans)
        assert any(can in note for note in answer.notes()), answer.notes()


def test_pools_that_an_engine_does_not_start_are_not_tried():
    """An engine that starts instances of one kind alone has no layouts of pools."""
    side = Side(
        "h100_sxm",
        ij.load_system("h100_sxm").hardware,
        Serving.of(),
        starts=lambda layout, role: not role,
    )
    legal = [Layout(tp, 1.0, 1.0, 1.0) for tp in (1.0, 2.0)]
    assert side.startable(legal) == legal and side.startable(legal, "prefill") == []
    nowhere = side._replace(starts=lambda layout, role: False)  # no engine runs on this chip
    assert nowhere.startable(legal) == nowhere.startable(legal, "decode") == legal
