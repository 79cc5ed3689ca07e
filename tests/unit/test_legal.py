"""Which plans an engine runs: what engines were seen to refuse and to start, and plain bounds."""

from itertools import product

import jax
import numpy as np
import pytest

from infer_jax import legal
from infer_jax.catalog import load_model
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment
from infer_jax.planning import layouts
from infer_jax.specs import Arrivals, Plan, Workload


def model(name, quant=None):
    return load_model(name, quant=quant).architecture


def broken(*asked):
    """The field of the rule that is broken."""
    rule = legal.broken(*asked)
    return None if rule is None else rule.field


# (model, format, degrees, runs): vllm/model_executor/layers/quantization/fp8.py, "The output_size
# of gate's and up's weight = 192 is not divisible by weight quantization block_n = 128"; the same
# for 320 of Qwen3-Coder-480B (docs.vllm.ai, recipe of Qwen3-Coder), whose recipe is EP or DP 8;
# MiniMax-M2.5 starts at TP4, and at TP8 with EP; of DeepSeek-R1 16 ranks cut an expert into whole
# blocks. vLLM issue 13980: Qwen2.5-72B in AWQ of groups of 128, a width of 29568 over two ranks.
# gpt-oss starts at TP8, its 90 groups of 32 dealt out unevenly (models/gpt_oss.py).
SEEN = [
    ("qwen3-235b-a22b", "fp8_block", {"tp": 8}, False),
    ("qwen3-235b-a22b", "fp8_block", {"tp": 4}, True),
    ("qwen3-235b-a22b", "fp8_block", {"tp": 8, "ep": 8}, True),
    ("qwen3-235b-a22b", None, {"tp": 8}, True),
    ("qwen3-235b-a22b", "fp8", {"tp": 8}, True),
    ("qwen3-coder-480b-a35b", "fp8_block", {"tp": 8}, False),
    ("qwen3-coder-480b-a35b", "fp8_block", {"tp": 1, "attention_dp": 8, "ep": 8}, True),
    ("minimax-m2.5", None, {"tp": 8}, False),
    ("minimax-m2.5", None, {"tp": 4}, True),
    ("minimax-m2.5", None, {"tp": 8, "ep": 8}, True),
    ("deepseek-r1", None, {"tp": 16}, True),
    ("deepseek-r1", None, {"tp": 32}, False),
    ("qwen2.5-72b", "awq", {"tp": 2}, False),
    ("qwen2.5-72b", "awq", {"tp": 1}, True),
    ("gpt-oss-120b", None, {"tp": 8}, True),
]


@pytest.mark.parametrize(("name", "quant", "degrees", "runs"), SEEN)
def test_what_engines_start_and_what_they_refuse(name, quant, degrees, runs):
    assert (legal.broken(model(name, quant), Deployment.of(**degrees)) is None) == runs


def test_a_refusal_says_which_slice():
    with pytest.raises(InputError, match=r"plan: ep is '1'.*128, not in 8 slices of 192"):
        legal.check(model("qwen3-235b-a22b", "fp8_block"), Deployment.of(tp=8))


@pytest.mark.parametrize(
    ("field", "plan", "work"),
    [("tp", {"tp": 3.7}, {}), ("tp", {"tp": 1000}, {}), ("tp", {"tp": 0}, {}),
     ("pp", {"pp": 1e9}, {}), ("ep", {"ep": 2}, {}), ("prefix", {}, {"isl": 100, "prefix": 101}),
     ("batch", {}, {"batch": 0.001}), (None, {"tp": 8}, {})],
)  # fmt: skip
def test_a_dense_model_of_32_heads(field, plan, work):
    asked = Workload.of(**{"isl": 100, **work})
    assert broken(model("llama-3.1-8b"), Plan.of(**plan), asked) == field


def test_requests_of_a_closed_loop_fill_its_groups():
    arch, plan = model("deepseek-r1"), Deployment.of(tp=1, attention_dp=8, ep=8)
    few = Workload.of(isl=100, batch=4)
    assert broken(arch, plan, few) == "batch"
    assert legal.holds(arch, plan, few.replace(arrivals=Arrivals.of(rate=1)))
    assert legal.holds(arch, plan, few.replace(batch=8.0))


def test_arrays_and_traced_values_answer_as_each_point_does():
    arch = model("deepseek-r1")
    grid = [(1, 3, 8, 128), (1, 2, 16), (1, 8, 32), (1, 61, 62)]
    names = ("tp", "attention_dp", "ep", "pp")
    axes = dict(zip(names, np.ix_(*(np.array(x, float) for x in grid)), strict=True))
    plan = Deployment.of().replace(**axes)
    every = np.broadcast_to(legal.holds(arch, plan), [len(x) for x in grid])
    each = [
        legal.broken(arch, Deployment.of(**dict(zip(names, x, strict=True))))
        for x in product(*grid)
    ]
    assert every.ravel().tolist() == [rule is None for rule in each]
    assert 0 < every.sum() < every.size
    traced = jax.jit(lambda p: legal.holds(arch, p))(plan)
    assert np.array_equal(np.broadcast_to(traced, every.shape), every)


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "gpt-oss-20b", "llama-3.1-70b"])
def test_layouts_are_all_that_hold(name):
    """Against a loop over every degree, of formats that may be cut anywhere and of blocks."""
    for quant in (None, "fp8_block"):
        arch, result = model(name, quant), []
        stages = range(1, 17)
        layers = int(sum(b.count for b in arch.blocks))
        for tp, groups, ep, pp in product(range(1, 17), range(1, 17), range(1, 17), stages):
            if tp * groups * pp > 16 or tp * groups % ep:
                continue
            even = -(-layers // pp) * pp <= 1.1 * layers
            degrees = {"tp": tp, "attention_dp": groups, "ep": ep, "pp": pp}
            if even and legal.holds(arch, Deployment.of(**degrees)):
                result.append((tp, groups, ep, pp))
        assert sorted(tuple(x)[:4] for x in layouts(arch, 16)) == sorted(result)
