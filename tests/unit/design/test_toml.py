"""A SPEC.toml is searched as it says; what it gets wrong is one sentence; elasticities."""

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.design import analyser, changed, elasticities, load_spec, what_if
from infer_jax.design.quality import Chinchilla
from infer_jax.errors import InputError
from infer_jax.physics.network.collectives import fastest_instance
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps.paths import Point
from tests.unit.design.bowls import Bowl, hardware
from tests.unit.sweeps import toy

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


pytestmark = pytest.mark.usefixtures("x64")


def closed(layers, parameters, hop=2e-6):
    """Level 2 of the economics paper in closed form: 4 all-reduces a layer, 16 bits, 3.3 TB/s."""
    tree = {"hop": hop, "bandwidth": 3.3e12, "bytes": 2.0 * parameters, "layers": layers}
    tree = {k: np.asarray(v) for k, v in tree.items()}

    def time(t):
        return {"tpot": fastest_instance(4.0 * t["layers"] * t["hop"],
                                         t["bytes"] / t["bandwidth"]).time}  # fmt: skip

    return {e.path: e.slope for e in elasticities(time, tree)}


def formula(layers, parameters, hop=2e-6):
    a, m = 4.0 * layers * hop, 2.0 * parameters / 3.3e12
    x = (a / 2.0) ** (2.0 / 3.0) * m ** (1.0 / 3.0)
    return -x / (3.0 * x - a), (2.0 * x - a) / (3.0 * x - a)


def test_the_closed_form_is_its_formula():
    for size in ((80.0, 70.6e9), (32.0, 8.0e9), (126.0, 405e9)):
        output, wanted = closed(*size), formula(*size)
        assert (output["bandwidth"], output["hop"]) == pytest.approx(wanted, abs=1e-9)
        assert output["layers"] == pytest.approx(output["hop"], abs=1e-12)
    # Erdil 2025 (arXiv 2506.04645), Section 2.2.3: -1/3 and 2/3 only as the latency goes to 0
    output, far = closed(80.0, 70.6e9), closed(80.0, 70.6e9, hop=2e-15)
    assert (round(output["bandwidth"], 3), round(output["hop"], 3)) == (-0.383, 0.617)
    assert (far["bandwidth"], far["hop"]) == pytest.approx((-1 / 3, 2 / 3), abs=1e-3)


def of(function, **numbers):
    tree = {k: np.asarray(float(v)) for k, v in numbers.items()}
    return {e.path: e for e in elasticities(lambda t: {"y": function(t)}, tree)}


def test_a_maximum_has_two_sides():
    output = of(lambda t: jnp.maximum(t["a"], t["b"]), a=2.0, b=2.0)["a"]
    assert output.is_kinked
    assert output.below == pytest.approx(0.0, abs=1e-6)
    assert output.above == pytest.approx(1.0, abs=1e-6)
    assert output.jump == 0.0
    assert output.tenth == pytest.approx(0.1)
    assert output.double == pytest.approx(1.0)
    away = of(lambda t: jnp.maximum(t["a"], t["b"]), a=3.0, b=2.0)["a"]
    assert not away.is_kinked
    assert away.slope == pytest.approx(1.0)


def test_a_ceiling_is_a_step_not_a_slope():
    output = of(lambda t: jnp.ceil(t["n"] / 8.0), n=8.0)["n"]
    assert output.is_kinked
    assert output.slope == 0.0
    assert (output.below, output.above) == (pytest.approx(0.0), pytest.approx(0.0))
    assert output.jump == pytest.approx(1.0)  # one node becomes two
    assert output.tenth == pytest.approx(1.0)


def point(**numbers):
    work = toy.workload(batch=np.asarray(16.0))
    plan = toy.plan(tp=np.asarray(2.0))
    return Point(Bowl.of(), toy.arch(512.0, blocks=2), hardware(**numbers), work, plan)


def read(p):
    return {"cost": p.estimator.estimate(p.arch, p.hardware, p.workload, p.plan).cost}


def test_a_point_has_units_bounds_and_no_choices():
    output = {e.path: e for e in elasticities(read, point())}
    assert output["hardware.price"].slope == pytest.approx(1.0)
    assert output["hardware.price"].unit == "USD/h"
    assert "arch.tied" not in output  # a choice
    assert "hardware.chip.memory" not in output  # the cost does not read it
    # cost = exp(u^2 + .5 v^2 + w^2 + .6 u v): d log / d log width = 2 u + .6 v
    u, v = np.log(512.0 / 900.0), np.log(16.0 / 25.0)
    assert output["arch.width"].slope == pytest.approx(2 * u + 0.6 * v, rel=1e-9)
    assert output["arch.width"].below == pytest.approx(output["arch.width"].above, abs=1e-4)


def test_slopes_between_the_sides_are_the_exact_ones():
    """Also at a ceiling, where one side steps, and at a tie of a maximum, whose slope is a mean."""

    def several(t):
        batch, tp, ep = t["workload"].batch, t["plan"].tp, t["plan"].ep
        ceiling = batch + jnp.ceil(tp)
        return {"a": batch**0.3 / tp, "b": ceiling, "c": ceiling + jnp.maximum(2.0 * ep, 8.0)}

    tree = {"workload": Workload.of(isl=10, osl=10, batch=16), "plan": Plan.of(tp=2, ep=4)}
    exact, near = (
        {(e.path, e.output): e for e in analyser(several, tree, exact=way)(tree)}
        for way in (True, False)
    )
    assert exact.keys() == near.keys() and len(near) == 7
    for at, e in exact.items():
        assert near[at].slope == pytest.approx(e.slope, abs=1e-5 if e.is_kinked else 1e-8), at
        assert near[at].double == pytest.approx(e.double, rel=1e-9)
    assert near["plan.tp", "b"].jump > 0.0 and near["plan.tp", "b"].slope == 0.0
    tie = near["plan.ep", "c"]
    assert tie.is_kinked and tie.slope == pytest.approx(4.0 / 26.0, abs=1e-5)


def test_degrees_of_which_only_the_product_counts_are_one():
    def time(t):
        plan = t["plan"]
        return {"tpot": 1.0 / (plan.tp * plan.ep) + 0.01 * plan.pp}

    output = [e.path for e in elasticities(time, {"plan": Plan.of(tp=8, ep=2)})]
    assert sorted(output) == ["plan.pp", "plan.tp"]


def test_what_if_sets_and_scales():
    output = what_if(read, point(), {"twice": {"hardware.price": lambda x: 2 * x}, "none": {}})
    assert output["twice"]["cost"] == pytest.approx(1.0)
    assert output["none"]["cost"] == 0.0
    assert float(changed(point(), {"hardware.price": 5.0}).hardware.price) == 5.0
    twice = changed(point(), {"arch.blocks.*.count": 7.0})
    assert [float(b.count) for b in twice.arch.blocks] == [7.0, 7.0]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"hardware.prize": 1.0}, "hardware.price"), ({"hardware.price": -1.0}, "a number from 0")],
)
def test_a_wrong_change_is_told(change, said):
    with pytest.raises(InputError, match="what if") as output:
        changed(point(), change)
    assert said in str(output.value)
