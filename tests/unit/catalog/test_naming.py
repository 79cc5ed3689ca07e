"""Which modules a config's names mean: as Python's re says, and in a time that is bounded."""

import json
import random
import re
import time

import pytest

from infer_jax.catalog.huggingface.module_names import Work, expression
from infer_jax.catalog.models import BUNDLED, load_model
from infer_jax.errors import InputError

PARTS = ["a", "b", "ab", ".", ".*", "[ab]", "[^a.]", r"\d", r"\d+", r"\w*?", "(a|b.)", "(?:ab)*"]
PARTS += ["a{2}", "b{1,3}", "(a*b?)+", "^", "$", r"\b", r"\B", "(?=b)", "(?!.*b)", r"\.", "x|a"]
PARTS += ["(|a)", "((a|b)*a)?", "[0-9_]{0,2}", r"[\W\d]", "(?:a(?!b))*", ".+", r"\s", r"\D"]


def test_as_python_says():
    """2,000 random patterns on short names, which Python's backtracking finishes, too."""
    dice, agreed = random.Random(0), 0
    for _ in range(2000):
        pattern = "".join(dice.choices(PARTS, k=dice.randrange(1, 6)))
        name = "".join(dice.choices("ab.01_ ", k=dice.randrange(1, 8)))
        try:
            wanted = re.compile(pattern)
        except re.error:
            with pytest.raises(ValueError):
                expression(pattern)
            continue
        result = bool(expression(pattern)(name, {0}, Work()))
        assert result == bool(wanted.match(name)), (pattern, name)
        agreed += result
    assert 400 < agreed < 1600


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*$", "(a|a)*$", "((a+)+)+$", "(.*.*.*)*!", ".*a.*a.*a.*a.*a.*a.*a.*a!",
        "(a{1,60}){1,60}!", "(?:" * 30 + "bc" + "){1,2}" * 30, "(?:" * 30 + "bc" + "){1,}" * 30,
    ],
)  # fmt: skip
def test_patterns_that_take_python_years(pattern):
    begun = time.process_time()
    assert not expression(pattern)("a" * 60 + "b", {0}, Work())
    assert time.process_time() - begun < 0.5


@pytest.mark.parametrize(
    "pattern", ["(", r"(a)\1", "(?<=a)b", "(?i)a", "(?>a)", "a" * 2001, "(" * 40 + ")" * 40, "a*+"]
)
def test_patterns_that_are_refused(pattern):
    with pytest.raises(ValueError):
        expression(pattern)


def config(folder, name, **changes):
    whole = json.loads((BUNDLED / f"{name}.json").read_text())["config"]
    (folder / "config.json").write_text(json.dumps(whole | changes))
    return folder / "config.json"


def skipping(names, method="compressed-tensors"):
    weights = {"weights": {"type": "float", "num_bits": 8}}
    facts = {"quant_method": method, "config_groups": {"all": weights}, "ignore": names}
    return {"quantization_config": facts}


@pytest.mark.parametrize(
    "changes, said",
    [
        (skipping(["re:(.*)*$", "re:((l|a|y)+)+$"]), None),
        (skipping(["*a*" * 5000 + "!"]), None),
        (skipping([f"layers.{i}.mlp" for i in range(200_000)]), None),
        (skipping(["x"] * 300_000), "a list of at most 262144"),
        pytest.param(
            *(skipping([f"re:.*(a|b|{i})*(c|d)*!" for i in range(9000)]), "9000 patterns"),
            marks=pytest.mark.slow,
        ),
        (skipping([f"*a*b*{i}" for i in range(200_000)]), "200000 patterns"),
        ({"mlp_only_layers": [0] * 1_000_000}, "a list of at most 1000"),
        ({"num_hidden_layers": 10_000}, "from 1 to 1000"),
    ],
    ids=range(8),
)
def test_no_config_takes_long(tmp_path, changes, said):
    path = config(tmp_path, "qwen3-30b-a3b", **changes)
    begun = time.process_time()
    if said is None:
        load_model(path)
    else:
        with pytest.raises(InputError, match=said):
            load_model(path)
    assert time.process_time() - begun < 10.0
