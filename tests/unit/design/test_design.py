"""Designs: known optima, limits kept, never worse than the start; exported and read back."""

import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from infer_jax.catalog import load_model
from infer_jax.catalog.models import template
from infer_jax.design import Search, changed, export, optimise
from infer_jax.design.names import dependent_axes
from infer_jax.errors import InputError
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Axis, Best, Constraint, Space
from infer_jax.sweeps.paths import Point
from infer_jax.sweeps.preparing import prepare
from tests.unit.design.bowls import Bowl, hardware
from tests.unit.sweeps import toy

pytestmark = pytest.mark.usefixtures("x64")

AXES = {
    "arch.width": Axis.integers(128, 4096, 64),
    "workload.batch": Axis.integers(1, 256),
    "plan.tp": Axis.values(1, 2, 4, 8),
}
START = {"arch.width": 2048.0, "workload.batch": 4.0, "plan.tp": 1.0}


def space(where=(), axes=None):
    return Space(toy.arch(), hardware(), toy.workload(), toy.plan(), axes=axes or AXES, where=where)


WHERE = (Constraint(product=("arch.width", "workload.batch"), at_least=20000.0),)
KEEP = Best("cost", under={"tpot": 3.0})


@pytest.fixture(scope="module")
def search():
    return Search.of(Bowl.of(), space(WHERE), KEEP)


def test_it_is_the_exhaustive_optimum(search):
    result = search.run(start=START, restarts=16, steps=80)
    best = toy.sweep(Bowl.of(), space(WHERE), KEEP, precision="float64")
    assert result.objective == pytest.approx(best.columns["cost"][0], rel=1e-12)
    assert result.index == best.index[0]
    assert result.counts["gradients"] <= 16 * (80 + 8)
    assert result.counts["lattice"] < 0.1 * 63 * 256 * 4
    path = result.paths[0]
    assert path.objective.shape == (len(path.objective), 16)
    assert path.values[0, 0] == pytest.approx([2048.0, 4.0, 1.0], rel=0.1)


@settings(max_examples=4)
@given(
    st.floats(0.5, 20.0),
    st.sampled_from(range(128, 4097, 64)),
    st.integers(1, 256),
    st.sampled_from([1.0, 2.0, 4.0, 8.0]),
    st.integers(0, 5),
)
def test_limits_hold_and_a_start_is_never_worse(search, limit, width, batch, tp, seed):
    start = {"arch.width": float(width), "workload.batch": float(batch), "plan.tp": tp}
    try:
        result = search.run(start=start, under={"tpot": limit}, restarts=8, steps=32, seed=seed)
    except InputError as error:
        assert "tpot" in str(error)
        return
    assert result.terms["tpot"] <= limit
    assert result.values["arch.width"] * result.values["workload.batch"] >= 20000.0
    assert bool(result.estimate.feasible)
    if result.start_met:
        assert result.objective <= result.start_objective
        assert result.gain >= 1.0


def test_the_start_itself_is_kept_where_no_lattice_point_beats_it():
    axes = {"arch.width": Axis.values(100, 5000), "workload.batch": Axis.values(25)}
    one = Space(toy.arch(), hardware(), toy.workload(), toy.plan(tp=3.0), axes=axes)
    start = {"arch.width": 900.0}
    result = optimise(Bowl.of(), one, Best("cost"), start=start, restarts=4, steps=8)
    assert result.index is None and result.gain == 1.0
    assert any("start" in note for note in result.notes)


@pytest.mark.parametrize("method", ["adam", "lbfgs"])
def test_both_methods_find_the_bottom(method):
    asked = {"start": START, "restarts": 6, "steps": 96, "method": method}
    result = optimise(Bowl.of(), space(), Best("cost"), **asked)
    ends = result.paths[0].values[-1, result.paths[0].ends[0]]
    assert ends[:2] == pytest.approx([900.0, 25.0], rel=0.05)
    assert ends[2] == pytest.approx(3.0, rel=0.05)


def test_planted_ripples_are_left_by_restarts():
    estimator = Bowl.of(depth=0.5)
    result = optimise(estimator, space(), Best("cost"), restarts=32, steps=96)
    best = toy.sweep(estimator, space(), Best("cost"), precision="float64")
    assert result.objective <= 1.01 * best.columns["cost"][0]


def test_a_fixed_product_is_a_simplex_and_holds():
    axes = {name: Axis.values(1, 2, 4, 8, 16, 32, 64) for name in ("plan.tp", "workload.batch")}
    where = (Constraint(product=("plan.tp", "workload.batch"), equals=64),)
    result = optimise(Bowl.of(), space(where, axes), Best("cost"), restarts=8, steps=48)
    best = toy.sweep(Bowl.of(), space(where, axes), Best("cost"), precision="float64")
    products = np.prod(result.paths[0].values, axis=-1)
    np.testing.assert_allclose(products, 64.0, rtol=1e-12)
    assert result.index == best.index[0]


def test_choices_and_specs_are_enumerated():
    axes = {**AXES, "arch.tied": Axis.values("no", "yes")}
    where = (Constraint(value="arch.tied", equals=1.0),)
    result = optimise(Bowl.of(), space(where, axes), Best("cost"), restarts=12, steps=48)
    assert result.values["arch.tied"] == "yes"


def test_limits_that_nothing_keeps_are_told_with_the_worst(search):
    with pytest.raises(InputError) as output:
        search.run(under={"tpot": 1e-3}, restarts=8, steps=16)
    text = str(output.value)
    assert "tpot" in text and "0.001" in text and "%" in text and "arch.width =" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": {"arch.width": 9999.0}}, "arch.width is 9999"),
        ({"start": {"arch.depth": 2.0}}, "start of arch.depth"),
        ({"restarts": 0}, "1 to 4,096 restarts"),
        ({"restarts": 10**9}, "1 to 4,096 restarts"),
        ({"steps": 10**9}, "1 to 10,000 steps"),
        ({"method": "newton"}, "adam or lbfgs"),
    ],
)
def test_a_mistake_is_one_sentence(search, change, said):
    with pytest.raises(InputError, match="codesign") as output:
        search.run(**change)
    assert said in str(output.value)


def test_a_free_number_that_the_model_has_not():
    with pytest.raises(InputError, match="here one of"):
        optimise(Bowl.of(), space(axes={"arch.girth": Axis.values(1, 2)}), Best("cost"))


BLOCKS = "arch.blocks.*."
SHAPES = {
    "llama-3.1-70b": {
        "arch.width": 6144.0, BLOCKS + "count": 100.0, BLOCKS + "attention.query_heads": 48.0,
        BLOCKS + "attention.kv_heads": 4.0, BLOCKS + "feedforward.width": 30720.0,
    },
    "qwen3-30b-a3b": {
        "arch.width": 2560.0, BLOCKS + "attention.query_heads": 40.0,
        BLOCKS + "feedforward.experts": 96.0, BLOCKS + "feedforward.active": 6.0,
        BLOCKS + "feedforward.width": 896.0,
    },
    "deepseek-v3": {
        "arch.width": 6144.0, BLOCKS + "attention.query_heads": 96.0,
        BLOCKS + "attention.kv_rank": 384.0, BLOCKS + "attention.query_rank": 1024.0,
        "arch.blocks.1.feedforward.experts": 192.0, "arch.blocks.1.feedforward.active": 6.0,
        "arch.blocks.1.feedforward.width": 2560.0,
        "arch.blocks.1.feedforward.shared.width": 2560.0,
    },
}  # fmt: skip


def shaped(name):
    """The model with another shape, its norms and biases following."""
    arch = load_model(name).architecture
    point = changed(Point(Bowl.of(), arch, hardware(), Workload.of(), Plan.of()), SHAPES[name])
    axes = dependent_axes(arch)
    rows = Space(point.arch, point.hardware, point.workload, point.plan, axes=axes)
    group = prepare(Bowl.of(), rows, Best("cost"), precision="float64").parts[0].group
    return group.fill(group.steps(np.zeros(len(group.sizes), int))).arch


@pytest.mark.parametrize("name", SHAPES)
def test_it_is_read_back_as_the_same_numbers(name, tmp_path):
    arch = shaped(name)
    config, _ = export(arch, template(name))
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = load_model(tmp_path).architecture
    assert jax.tree.structure(arch) == jax.tree.structure(read)
    for ours, theirs in zip(jax.tree.leaves(arch), jax.tree.leaves(read), strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=1e-12)


def test_what_a_family_cannot_say_is_told():
    arch = load_model("llama-3.1-8b").architecture
    block = arch.blocks[0]
    assert block.attention is not None
    narrow = block.attention.replace(value_width=np.asarray(64.0))
    odd = arch.replace(blocks=(block.replace(attention=narrow),))
    with pytest.raises(InputError, match="value_width is 64"):
        export(odd, template("llama-3.1-8b"))
    half = arch.replace(width=np.asarray(4096.5))
    with pytest.raises(InputError, match="a whole number"):
        export(half, template("llama-3.1-8b"))
