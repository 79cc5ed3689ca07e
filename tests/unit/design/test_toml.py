"""A SPEC.toml: what it says is what is searched, and what it gets wrong is one sentence."""

import pytest

from infer_jax.design import load_spec
from infer_jax.design.quality import Chinchilla
from infer_jax.errors import InputError

GOOD = """
estimator = "economics.planned"
second = "economics"
[arch]
model = "llama-3.1-8b"
quant = "fp8"
[hardware]
system = "h100_sxm"
[workload]
isl = 1024
osl = 128
[free]
width = [2048, 8192]
heads = [16, 64]
kv_heads = [1, 16]
head_width = { values = [64, 128] }
tp = [1, 8]
batch = [1, 64]
tokens = [1e11, 1e13]
[start]
batch = 8
tokens = 1e12
[objective]
best = "lifetime"
[limits]
tpot = 0.05
loss = 2.3
[quality]
law = "chinchilla"
served = 1e13
[search]
restarts = 8
seed = 3
"""


def load(text, tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return load_spec(path)


def test_names_steps_ties_and_starts(tmp_path):
    spec = load(GOOD, tmp_path)
    axes = spec.space.axes
    block = "arch.blocks.0.attention"
    assert axes["arch.width"].steps[:2] == (2048.0, 2176.0)  # multiples of 128
    assert axes[f"{block}.kv_heads"].steps == (1.0, 2.0, 4.0, 8.0, 16.0)
    assert axes["workload.batch"].steps[:5] == (1.0, 2.0, 3.0, 4.0, 6.0)
    assert [f"{block}.head_width", f"{block}.value_width"] in [list(z) for z in spec.space.zips]
    assert spec.start["arch.width"] == 4096.0  # the model's own
    assert spec.start["workload.batch"] == 8.0
    assert spec.start["estimator.tokens"] == 1e12
    assert spec.keeps[0].by == "lifetime"
    assert dict(spec.keeps[0].under) == {"tpot": 0.05, "loss": 2.3}
    assert isinstance(spec.estimator.law, Chinchilla)
    assert spec.search == {"restarts": 8, "seed": 3}
    assert spec.formats == {"quant": "fp8"}
    said = {c.value for c in spec.space.where}
    assert said == {"plan.tp", f"{block}.kv_heads"}  # both divide the heads


def test_a_frontier_is_one_problem_for_each_value(tmp_path):
    text = GOOD.replace('best = "lifetime"', 'pair = ["cost", "tpot"]\nweight = 0.7\n'
                        "along = { tpot = [0.01, 0.02] }")  # fmt: skip
    spec = load(text, tmp_path)
    assert [dict(k.under)["tpot"] for k in spec.keeps] == [0.01, 0.02]
    assert spec.keeps[0].by == "score"
    assert spec.estimator.pair == ("cost", "tpot")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("width = [2048, 8192]", "girth = [1, 2]", "free.girth is 'not in this model'"),
        ("width = [2048, 8192]", "experts = [8, 64]", "free.experts"),
        ("width = [2048, 8192]", "width = [8192, 2048]", "free.width"),
        ("width = [2048, 8192]", "width = [2050, 2100]", "a multiple of 128"),
        ("width = [2048, 8192]", "width = [2048, inf]", "free.width"),
        ("width = [2048, 8192]", "width = [2048, 1e15]", "steps of 128"),
        ("width = [2048, 8192]", 'width = { values = ["wide"] }', "free.width"),
        ("width = [2048, 8192]", "width = { steps = [1] }", "free.width"),
        ("width = [2048, 8192]", "width = [4224, 8192]", "bounds that hold the start, 4096"),
        ('best = "lifetime"', "", "objective.best"),
        ('best = "lifetime"', 'pair = ["cost", "joy"]', "objective.pair"),
        ('best = "lifetime"', 'least = "cost"', "objective.least"),
        ("tokens = [1e11, 1e13]", "tokens = [0, 1e13]", "free.tokens"),
        ("tpot = 0.05", "tpot = -1", "limits.tpot"),
        ("tpot = 0.05", "tpot = nan", "limits.tpot"),
        ('law = "chinchilla"', 'law = "kaplan"', "kaplan"),
        ('law = "chinchilla"', 'law = "aspect"', "aspect.epsilon"),
        ('[quality]\nlaw = "chinchilla"\nserved = 1e13', "", "a table [quality]"),
        ("batch = 8", "depth = 8", "start.depth"),
        ("restarts = 8", "restarts = 0", "search.restarts"),
        ("restarts = 8", "restart = 8", "search.restart"),
        ("[search]", "[serch]", "serch"),
        ('model = "llama-3.1-8b"', 'models = ["llama-3.1-8b", "llama-3.1-70b"]', "one"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_field(old, new, said, tmp_path):
    assert old in GOOD
    with pytest.raises(InputError, match=r"spec\.toml") as output:
        load(GOOD.replace(old, new), tmp_path)
    assert said in str(output.value)
