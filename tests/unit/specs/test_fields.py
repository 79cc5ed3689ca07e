"""Every number of a spec is declared once, checked at the door, free inside; spread lengths."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from infer_jax import specs
from infer_jax.catalog import load_model
from infer_jax.errors import InputError
from infer_jax.physics import decoder
from infer_jax.specs import Format, Plan, Workload, lengths, value_of
from infer_jax.specs.fields import KINDS

SPECS = [c for c in vars(specs).values() if isinstance(c, type) and issubclass(c, specs.Spec)]
SPECS.remove(specs.Spec)


@pytest.mark.parametrize("cls", SPECS, ids=lambda c: c.__name__)
def test_every_field_declares_doc_unit_kind_and_bounds(cls):
    for field in dataclasses.fields(cls):
        meta = field.metadata
        assert meta["doc"]
        if meta["kind"] not in ("part", "static"):
            assert meta["kind"] in KINDS
            assert meta["unit"]
            assert meta["low"] <= meta["high"]


def test_the_door_makes_float64_scalars_with_one_structure():
    work = Workload.of(isl=4096, batch=3)
    assert {(x.dtype, x.shape) for x in jax.tree.leaves(work)} == {(np.dtype(float), ())}
    assert jax.tree.structure(work) == jax.tree.structure(Workload.of())
    assert Plan.of(layout="2d").layout == 1.0  # choices are taken by name


def test_inside_nothing_is_checked_or_converted():
    marker = object()
    assert Workload(isl=marker).isl is marker  # pyright: ignore[reportArgumentType]
    assert Workload.of().replace(batch=-1).batch == -1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Workload.of(isl=-1), ("Workload", "isl", "-1", "at least 0")),
        (lambda: Workload.of(isl=math.nan), ("isl", "nan", "at least 0")),
        (lambda: Workload.of(isl=math.inf), ("isl", "inf", "at least 0")),
        (lambda: Workload.of(isl="many"), ("isl", "many", "at least 0")),
        (lambda: Workload.of(isl=None), ("isl", "None", "at least 0")),
        (lambda: Workload.of(islands=3), ("islands", "isl, osl")),
        (lambda: Format.of(bytes=1), ("Format", "bits", "missing")),
        (lambda: Plan.of(layout=3), ("layout", "3", "0 (1d) or 1 (2d)")),
        (lambda: Plan.of().with_(tp=-2), ("tp", "-2")),
    ],
)
def test_bad_input_is_one_sentence(make, words):
    with pytest.raises(InputError) as caught:
        make()
    assert all(word in str(caught.value) for word in words)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.one_of(st.floats(), st.integers(), st.text(), st.none(), st.lists(st.floats())))
def test_a_value_is_taken_within_bounds_or_refused(value):
    try:
        taken = value_of(Workload, "batch", value)
    except InputError:
        return
    assert np.all(np.isfinite(taken)) and np.all(taken >= 0)


def test_numbers_change_by_dotted_path():
    arch = load_model("llama-3.1-8b").architecture
    other = arch.at({"blocks.0.feedforward.width": 20000, "blocks.0.count": 40, "width": 4096.0})
    block = other.blocks[0]
    assert (float(block.feedforward.width), float(block.count)) == (20000.0, 40.0)  # pyright: ignore[reportOptionalMemberAccess]
    assert float(arch.blocks[0].count) == 32.0, "the model itself is as it was"
    by_hand = arch.blocks[0].replace(feedforward=block.feedforward, count=block.count)
    by_hand = arch.replace(blocks=(by_hand,))
    assert jax.tree.all(jax.tree.map(lambda a, b: float(a) == float(b), other, by_hand))


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("blocks.1.count", 2, "Architecture.blocks: index is '1'; allowed: 0 to 0"),
        ("blocks.0.size", 2, "Block: size is 'not a field of it'"),
        ("width.more", 2, r"Architecture.width: more is 'not a field of it'"),
        ("blocks.0.count", -1, r"Block: count is -1; allowed: a number of at least 0"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(path, value, sentence):
    with pytest.raises(InputError, match=sentence):
        load_model("llama-3.1-8b").architecture.at({path: value})


def test_a_loss_is_a_function_of_what_is_put_in():
    arch, path = load_model("llama-3.1-8b").architecture, "blocks.0.feedforward.width"

    def parameters(width):
        return decoder.total(decoder.parameters(arch.at({path: width})).values())

    slope = jax.grad(parameters)(14336.0)
    assert float(slope) == 32 * 3 * 4096, "gate, up and down of each layer"


def spread(quantile, moment):
    """A moment of outputs drawn so, over that power of their mean."""
    shares = lengths.independent(lengths.fixed(), quantile)
    return sum(float(s.weight) * float(s.osl) ** moment for s in shares)


def test_lengths_of_few_values_are_kept_as_they_are():
    """Four in five of 0.5 and one of 3: no edge of the strata is at 0.8 but by moving there."""

    def two(p):
        return np.where(p < 0.8, 0.5, 3.0)

    assert [spread(two, k) for k in (1, 2, 3)] == pytest.approx([1.0, 2.0, 5.5])


@pytest.mark.parametrize(
    ("quantile", "second"),
    [
        (lengths.uniform(0.1, 1.9), 1.27),
        (lengths.exponential(), 2.0),
        (lengths.lognormal(1.0), 2.0),
    ],
    ids=["uniform", "exponential", "lognormal"],
)
def test_strata_keep_means_and_nearly_all_of_the_variance(quantile, second):
    assert spread(quantile, 1) == pytest.approx(1.0, rel=1e-12)
    assert spread(quantile, 2) - 1.0 == pytest.approx(second - 1.0, rel=0.1)
    assert spread(quantile, 2) <= second
