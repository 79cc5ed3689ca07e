"""What a verb is asked from Python with: nonsense is refused by name, layouts are read as said."""

import inspect
import math
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import infer_jax as ij
from infer_jax import planning
from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.estimators.serving.plan import deployment
from infer_jax.planning import Layout, PlanPool, layouts, read_pools
from infer_jax.planning.given import deployed
from infer_jax.sweeps import engine
from infer_jax.verbs.option import type_and_kind
from infer_jax.verbs.plan import USUAL_TTFT
from infer_jax.verbs.split import LayoutOptions

ROOT = Path(__file__).parents[3]
POINT = ("llama-3.1-8b", "h100_sxm")
VERBS = ("estimate", "plan", "memory", "frontier", "layout", "sensitivity", "codesign")
VERBS += ("calibrate", "compare", "report", "kernels", "offload", "measure", "sweep", "replay")
FIRST = {
    "measure": (),
    "sweep": ("no-such-space.toml",),
    "calibrate": (*POINT, str(ROOT / "tests/data/server/runs.csv")),
}
ANNOTATIONS = [
    (verb, name, parameter.annotation)
    for verb in VERBS
    for name, parameter in inspect.signature(getattr(ij, verb)).parameters.items()
]


def types(annotation: object) -> set[Any]:
    """The types that an annotation allows."""
    own, _ = type_and_kind(annotation)
    return set(get_args(own)) or {own}


NUMBERS = [x for x in ANNOTATIONS if {float, int} & types(x[2])]
BAD = {
    "negative": -5, "NaN": math.nan, "infinite": -math.inf, "of no digits": "four",
    "a list of nothing": [None], "of a dictionary": {"a": 1}, "a truth": True, "too large": 1e300,
    "too large for a float": 10**400, "no single one": np.ones((2, 2)) - 3.0,
}  # fmt: skip


@pytest.mark.parametrize(("verb", "name", "own"), NUMBERS, ids=lambda x: x if str(x) == x else "")
def test_no_verb_takes_nonsense_for_a_number(verb, name, own):
    assert type_and_kind(own)[1], "every number has bounds"
    bad = dict(BAD)
    if name not in ("isl", "prefix", "seed", "acceptance", "every", "warmup"):
        bad["zero"] = 0
    if (verb, name) == ("plan", "chunk"):
        bad["a list"] = [4, -1]
    if name == "acceptance" and str in types(own):
        del bad["of no digits"]  # may be a file
    for value in bad.values():
        with pytest.raises(InputError) as wrong:
            getattr(ij, verb)(*FIRST.get(verb, POINT), **{name: value})
        said = str(wrong.value)
        assert said.startswith(f"{verb}: {name} is "), (value, said)
        assert "; allowed: " in said and "--" not in said and "\n" not in said


FLAGS_AND_TEXTS = [
    (verb, name, 5 if kinds & {str} else "no")
    for verb, name, own in ANNOTATIONS
    for kinds in [types(own) - {type(None)}]
    if not kinds & {float, int} and kinds & {str, bool}
]


@pytest.mark.parametrize(("verb", "name", "value"), FLAGS_AND_TEXTS)
def test_no_verb_takes_a_number_for_a_name_or_a_text_for_a_flag(verb, name, value):
    first = FIRST.get(verb, POINT)
    arguments: dict[str, object] = dict(zip(("config", "hardware", "files"), first, strict=False))
    arguments = {"space": first[0]} if verb == "sweep" else arguments
    with pytest.raises(InputError, match=rf"^{verb}: {name} is "):
        getattr(ij, verb)(**{**arguments, name: value})


def test_numbers_of_numpy_and_jax_are_numbers():
    one = ij.memory(*POINT, tp=1, max_model_len=4096).to_dict()
    for tp, longest in ((np.int64(1), np.asarray(4096.0)), (jnp.asarray(1), jnp.asarray(4096))):
        arguments = ij.memory(*POINT, tp=tp, max_model_len=longest)  # pyright: ignore
        assert arguments.to_dict() == one


asked: Any = ij  # calls that a type checker would refuse, too


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ij.memory("lama-3.1-8b", "h100_sxm"), "^memory: config is 'lama-3.1-8b'; allowed"),
        (lambda: ij.memory("llama-3.1-8b", "h1000"), "hardware is 'h1000'; allowed: h100_sxm"),
        (lambda: ij.memory(*POINT, quant="fp9"), "^memory: quant is 'fp9'; allowed: bf16"),
        (lambda: ij.memory(*POINT, tp=1).plot("x.xyz"), "^plot: out is 'x.xyz'; allowed: a name"),
        (
            lambda: ij.replay(*POINT, tp=1, trace="none.jsonl"),
            "none.jsonl: no such file or directory; allowed: the path of a file that can be read",
        ),
        (lambda: ij.replay(*POINT, tp=1), "Give concurrency=64, or request_rate=8, or trace"),
        (lambda: asked.plan(*POINT, total_gpu=8), r"allowed: total_gpus is closest"),
        (lambda: asked.sweep({}), r"^sweep: keep is missing; allowed: a table"),
        (lambda: asked.plan("llama-3.1-8b"), r"^plan: hardware is missing"),
        (lambda: asked.memory(*POINT, 8), r"^memory: arguments is '3 without"),
        (lambda: asked.memory(*POINT, config="x"), "config is given twice"),
        (lambda: asked.estimate(*POINT, tp=1, dp=None), r"^estimate: dp is None"),
    ],
)
def test_arguments_that_a_verb_does_not_have_are_refused_in_one_sentence(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_defaults_that_are_declared_without_jax_are_those_of_the_library():
    assert planning.USUAL_TTFT == USUAL_TTFT
    assert inspect.signature(ij.sweep).parameters["memory"].default == engine.MEMORY
    assert inspect.signature(ij.memory).parameters["block_size"].default == ENGINES["vllm"].block


MIXTURE = ij.load_model("qwen3-30b-a3b").architecture
LEGAL = layouts(MIXTURE, 16)
MIXED = ("qwen3-30b-a3b", "h200_sxm")
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
    best = ij.plan(*MIXED, total_gpus=2, mode="aggregated", tpot=0.03, concurrency=32).best
    assert best is not None
    one = ij.estimate(*MIXED, layout=best.layout, batch=best.batch)
    np.testing.assert_allclose(float(one.estimate.tpot), best.tpot, rtol=1e-6)
    whole = ij.estimate(*MIXED, layout="TP2 EP2", batch=8).estimate
    sliced = ij.estimate(*MIXED, tp=2, batch=8).estimate
    assert float(whole.chips) == float(sliced.chips) == 2.0
    assert float(whole.tpot) != float(sliced.tpot)
    assert ij.memory(*MIXED, layout="TP2 EP2").to_dict()["ep"] == 2.0


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
        ij.estimate(options.pop("config", MIXED[0]), MIXED[1], **options)
