"""A layout as `plan` prints it, and as engines spell it, is the deployment that it names."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import infer_jax as ij
from infer_jax.errors import InputError
from infer_jax.estimators.serving.plan import deployment
from infer_jax.planning import Layout, PlanPool, layouts, read_pools
from infer_jax.planning.given import deployed
from infer_jax.verbs.split import LayoutOptions

MIXTURE = ij.load_model("qwen3-30b-a3b").architecture
LEGAL = layouts(MIXTURE, 16)
POINT = ("qwen3-30b-a3b", "h200_sxm")
COUNTS = st.integers(1, 999_999)
degrees = st.builds(
    Layout, *[COUNTS.map(float)] * 4, chunk=st.just(2.0**40) | COUNTS.map(float),
    drafts=st.integers(0, 5).map(float),
)  # fmt: skip
pools = st.builds(PlanPool, degrees, st.integers(1, 10**9).map(float), st.just(1.0))


def leaves(plan) -> list[float]:
    """The numbers of a plan, as a deployment."""
    return [float(x) for x in jax.tree.leaves(deployment(plan))]


@given(st.lists(pools, min_size=1, max_size=2), st.sampled_from([str, str.lower]))
def test_what_is_printed_is_read_back(instances, case):
    printed = case(" > ".join(map(str, instances)))
    assert read_pools(printed) == tuple(instances)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(LEGAL), st.integers(1, 64), st.sampled_from([2.0**40, 2048.0]))
def test_a_plan_is_read_back_as_its_deployment(layout, copies, chunk):
    pool = PlanPool(layout._replace(chunk=chunk), float(copies), 1.0)
    _, meant = deployed(ij.Serving.of(), [pool])
    assert leaves(LayoutOptions.of(str(pool), {}).plan(MIXTURE)) == leaves(meant)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tp": 8, "expert_parallel": True}, "TP8 EP8"),
        ({"tp": 4, "dp": 2, "expert_parallel": True}, "TP4 DP2 EP8"),
        ({"tp": 8, "dp": 2, "ep": 8, "dp_attention": True}, "TP4 DP2 EP8"),
        ({"tp": 8, "dp": 8, "ep": 8, "dp_attention": True}, "DP8 EP8"),
        ({"tp": 4, "dp": 2}, "2 x TP4"),
        ({"tp": 2, "ep": 4}, "TP2 DP4 EP4"),
    ],
)
def test_engines_own_words(options, words):
    flags = {name: options.pop(name, False) for name in ("expert_parallel", "dp_attention")}
    spelt, named = LayoutOptions.of(None, options, **flags), LayoutOptions.of(words, {})
    assert leaves(spelt.plan(MIXTURE)) == leaves(named.plan(MIXTURE))
    assert str(spelt) == words == str(named)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("2xTP4", "2 x TP4"),
        ("2 xTP4 > 1X tp2", "2 x TP4 > 1 x TP2"),
        ("-tp 4 -dp 2 --enable-expert-parallel", "1 x TP4 DP2 EP8"),
        ("--tensor-parallel-size=4 -dp 2", "2 x TP4"),
        ("--tp-size 8 --dp-size 2 --ep-size 8 --enable-dp-attention", "1 x TP4 DP2 EP8"),
    ],
)
def test_other_spellings_of_a_layout(given, words):
    split = LayoutOptions.of(given, {})
    assert split.pools == read_pools(words)
    assert split.words


def test_verbs_answer_the_plan_that_is_printed():
    best = ij.plan(*POINT, total_gpus=2, mode="aggregated", tpot=0.03, concurrency=32).best
    assert best is not None
    one = ij.estimate(*POINT, layout=best.layout, batch=best.batch)
    np.testing.assert_allclose(float(one.estimate.tpot), best.tpot, rtol=1e-6)
    whole = ij.estimate(*POINT, layout="TP2 EP2", batch=8).estimate
    sliced = ij.estimate(*POINT, tp=2, batch=8).estimate
    assert float(whole.chips) == float(sliced.chips) == 2.0
    assert float(whole.tpot) != float(sliced.tpot)
    assert ij.memory(*POINT, layout="TP2 EP2").to_dict()["ep"] == 2.0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layout": "TP2", "tp": 2}, "layout is 'TP2'; allowed: alone, without tp: it has every"),
        ({"layout": "TP2 TP4"}, 'as `plan` prints it: "TP4 DP2 EP8"'),
        ({"layout": "0 x TP2"}, "as `plan` prints it"),
        ({"layout": "-tp"}, "or an engine's flags"),
        ({"layout": "-tp 0"}, "or an engine's flags"),
        ({"layout": "-tp 4 --max-num-seqs 8"}, "or an engine's flags"),
        ({"layout": "TP3"}, r'TP of 1, 2, 4, 8, 16, 32.*layout "DP3"'),
        ({"layout": "TP33"}, r'; on 32 GPUs layout ".*TP32'),
        ({"layout": "TP2 DP2", "config": "llama-3.1-8b"}, '"TP4" or "2 x TP2", which is copies'),
        ({"layout": "TP1 > TP2"}, "one pool"),
        ({"layout": "TP2", "total_gpus": 4}, "total_gpus, or layout, not both"),
        ({"layout": "TP2 drafts 2"}, "How many of the drafts of the layout are accepted"),
        ({"enable_expert_parallel": True}, "On how many GPUs"),
        ({"tp": 2, "ep": 2, "enable_expert_parallel": True}, "without enable_expert_parallel"),
        ({"tp": 2, "dp": 4, "enable_dp_attention": True}, "a divisor of tp, 2"),
        ({"layout": "TP2 EP2", "estimator": "economics.planned"}, "as much DP as EP"),
        ({"tp": 2, "engine": "sglang", "estimator": "serving.vllm"}, "engine is 'sglang'"),
    ],
)
def test_what_no_layout_is_says_what_would_be(options, sentence):
    with pytest.raises(InputError, match=sentence):
        ij.estimate(options.pop("config", POINT[0]), POINT[1], **options)
