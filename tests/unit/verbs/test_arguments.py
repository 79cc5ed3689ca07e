"""What a verb is asked from Python with: nonsense is refused by the keyword's name, at once."""

import inspect
import math
from pathlib import Path
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax import planning
from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.sweeps import engine
from infer_jax.verbs.option import kind_of, type_of
from infer_jax.verbs.plan import USUAL_TTFT

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
    own = type_of(annotation)
    return set(get_args(own)) or {own}


NUMBERS = [x for x in ANNOTATIONS if {float, int} & types(x[2])]
BAD = {
    "negative": -5, "NaN": math.nan, "infinite": -math.inf, "of no digits": "four",
    "a list of nothing": [None], "of a dictionary": {"a": 1}, "a truth": True, "too large": 1e300,
    "too large for a float": 10**400, "no single one": np.ones((2, 2)) - 3.0,
}  # fmt: skip


@pytest.mark.parametrize(("verb", "name", "own"), NUMBERS, ids=lambda x: x if str(x) == x else "")
def test_no_verb_takes_nonsense_for_a_number(verb, name, own):
    assert kind_of(own), "every number has bounds"
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
    given: dict[str, object] = dict(zip(("config", "hardware", "files"), first, strict=False))
    given = {"space": first[0]} if verb == "sweep" else given
    with pytest.raises(InputError, match=rf"^{verb}: {name} is "):
        getattr(ij, verb)(**{**given, name: value})


def test_numbers_of_numpy_and_jax_are_numbers():
    one = ij.memory(*POINT, tp=1, max_model_len=4096).to_dict()
    for tp, longest in ((np.int64(1), np.asarray(4096.0)), (jnp.asarray(1), jnp.asarray(4096))):
        given = ij.memory(*POINT, tp=tp, max_model_len=longest)  # pyright: ignore
        assert given.to_dict() == one


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
    with pytest.raises(InputError, match=says) as wrong:
        call()
    assert "\n" not in str(wrong.value)


def test_defaults_that_are_declared_without_jax_are_those_of_the_library():
    assert planning.USUAL_TTFT == USUAL_TTFT
    assert inspect.signature(ij.sweep).parameters["memory"].default == engine.MEMORY
    assert inspect.signature(ij.memory).parameters["block_size"].default == ENGINES["vllm"].block
