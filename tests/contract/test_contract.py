"""Every estimator keeps every law of the contract, or says which it does not claim."""

import math
from functools import cache

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from infer_jax.estimators.registry import VARIANTS
from infer_jax.specs import leaves
from tests.contract.cases import ESTIMATORS, JOBS, MODELS, PASSES, SYSTEMS, numbers, plan, sloped
from tests.stepwise import stepwise

WIDE = ("economics", "economics.planned", "economics.level4")
SLOW = pytest.mark.slow
# every estimator on one model, three of them on all: compiling is what these tests take
CASES = [
    *(
        (name, "dense" if name.startswith("speculative") else "mixture", "nodes")
        for name in ESTIMATORS
    ),
    *(
        pytest.param(name, model, system, marks=SLOW if "." in name else ())
        for name in WIDE
        for model, system in (("dense", "nodes"), ("hybrid", "torus"))
    ),
]


def world(estimator, model, system, forward="decode"):
    """(estimator, arch, hardware, forward pass, plan) of a case."""
    return (
        ESTIMATORS[estimator].make(),
        MODELS[model](),
        SYSTEMS[system](),
        PASSES[forward](),
        plan(),
    )


@jax.jit
def step(estimator, arch, hardware, forward, layout):
    return estimator.step(arch, hardware, forward, layout)


slopes = stepwise(sloped(lambda everything: everything[0].step(*everything[1:]).time))


@cache
def slopes_of(name, model, system, forward):
    return slopes(numbers(world(name, model, system, forward)))


def claimed(name, law):
    reason = ESTIMATORS[name].laws_not_claimed.get(law)
    if reason:
        pytest.skip(reason)


def declared(everything):
    """(index of leaf, path, metadata) for every number, in the order of ``jax.tree.leaves``.

    The fields are declared in the order in which JAX flattens them: a test holds that.
    """
    return [(path, meta) for tree in everything for path, meta, _ in leaves(tree)]


def with_leaf(everything, index, value):
    flat, structure = jax.tree.flatten(everything)
    flat[index] = value
    return jax.tree.unflatten(structure, flat)


def test_every_leaf_is_declared():
    for name in ESTIMATORS:
        everything = world(name, "mixture", "nodes")
        assert len(declared(everything)) == len(jax.tree.leaves(everything))
        values = [value for tree in everything for _, _, value in leaves(tree)]
        for ours, theirs in zip(values, jax.tree.leaves(everything), strict=True):
            assert ours is theirs


def test_every_variant_of_the_registry_is_in_the_contract():
    assert set(VARIANTS) <= set(ESTIMATORS) | set(JOBS)


@pytest.mark.parametrize(("name", "model", "system"), CASES)
@pytest.mark.parametrize("forward", PASSES)
def test_value_and_gradient_are_finite_and_modes_agree(name, model, system, forward):
    everything = world(name, model, system, forward)
    phase = step(*everything)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(phase))
    _, reverse, forward_slope = slopes_of(name, model, system, forward)
    for (path, _), g in zip(declared(everything), jax.tree.leaves(reverse), strict=True):
        assert np.isfinite(g), path
    expected = sum(
        float(g * x)
        for g, x in zip(jax.tree.leaves(reverse), jax.tree.leaves(everything), strict=True)
    )
    # terms of both signs cancel in the sum, hence the absolute part
    np.testing.assert_allclose(forward_slope, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("name", "model", "system"), CASES)
@pytest.mark.parametrize("ranks", ["several", "one"])
def test_a_network_that_is_absent_is_slow_and_finite(name, model, system, ranks):
    """Bandwidths of 0: no NaN in values or slopes; a single chip does without."""
    estimator, arch, hardware, forward, layout = world(name, model, system)
    if ranks == "one":
        layout = layout.replace(**dict.fromkeys(("tp", "pp", "ep", "attention_split"), np.ones(())))
    rates = ("domain_bandwidth", "network_bandwidth", "link_bandwidth")
    none = {f: np.zeros(()) for f in rates if hasattr(hardware.network, f)}
    apart = hardware.replace(network=hardware.network.replace(**none))
    everything = estimator, arch, apart, forward, layout
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(step(*everything)))
    _, reverse, along = slopes(numbers(everything))
    assert np.isfinite(along)
    for (path, _), g in zip(declared(everything), jax.tree.leaves(reverse), strict=True):
        assert np.isfinite(g), path
    connected = step(estimator, arch, hardware, forward, layout)
    # the published search deals even one chip out, 2.2 stages of a half
    if ranks == "one" and float(connected.layout.get("pp", 1.0)) == 1.0:
        np.testing.assert_allclose(step(*everything).time, connected.time, rtol=1e-12)


@pytest.mark.parametrize(("name", "model", "system"), CASES)
@pytest.mark.parametrize("forward", ["decode", "prefill"])
def test_gradient_equals_finite_difference(name, model, system, forward):
    everything = world(name, model, system, forward)
    flat = jax.tree.leaves(everything)
    reverse = jax.tree.leaves(slopes_of(name, model, system, forward)[1])
    small = 1e-6

    def moved(i, factor):
        return math.log(step(*with_leaf(everything, i, np.asarray(flat[i] * factor))).time)

    for i, (path, meta) in enumerate(declared(everything)):
        # at a choice there is no slope; at an exact integer the ceiling and floor have a step
        if meta["kind"] == "choice" or flat[i] == 0.0 or path.endswith("domain"):
            continue
        # compared as elasticities, d log time / d log x
        elasticity = (moved(i, 1 + small) - moved(i, 1 - small)) / (2 * small)
        ours = float(reverse[i] * flat[i])
        assert abs(elasticity - ours) < 2e-6 + 1e-5 * abs(ours), path


@pytest.mark.parametrize(("name", "model", "system"), CASES)
def test_no_retrace_on_new_numbers(name, model, system):
    everything = world(name, model, system)
    step(*everything)
    traces = step._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    step(*jax.tree.map(lambda x: np.asarray(x * 1.01), everything))
    assert step._cache_size() == traces  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("name", "model", "system"), CASES)
def test_float32_stays_float32_and_agrees(name, model, system):
    everything = world(name, model, system)
    narrow = step(*jax.tree.map(lambda x: np.asarray(x, np.float32), everything))
    assert {x.dtype for x in jax.tree.leaves(narrow)} == {np.dtype(np.float32)}
    np.testing.assert_allclose(narrow.time, step(*everything).time, rtol=2e-5)


# variants of a theory are its program with other laws in it: one of each is mapped, searches first
MAPPED = ("economics", "economics.planned", "partitioning", "kernels", "serving.vllm")
MAPPED += ("serving.complete", "speculative.bonus")


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=() if x in MAPPED else SLOW) for x in ESTIMATORS]
)
def test_vmap_equals_loop(name):
    estimator, arch, hardware, forward, layout = world(name, "mixture", "nodes")
    batches = np.array([1.3, 7.7, 61.1, 530.9])
    passes = jax.tree.map(lambda x: np.full(4, x), forward).replace(sequences=batches)
    many = jax.jit(jax.vmap(step, in_axes=(None, None, None, 0, None)))(
        estimator, arch, hardware, passes, layout
    )
    for i, b in enumerate(batches):
        one = step(estimator, arch, hardware, forward.replace(sequences=b), layout)
        np.testing.assert_allclose(many.time[i], one.time, rtol=1e-12)


@pytest.mark.parametrize(("name", "model", "system"), CASES)
@pytest.mark.parametrize("forward", PASSES)
def test_time_lies_between_largest_term_and_sum(name, model, system, forward):
    phase = step(*world(name, model, system, forward))
    terms = np.asarray([float(t) for t in phase.terms.values()])
    assert np.all(terms >= 0)
    assert terms.max() * (1 - 1e-12) <= float(phase.time) <= terms.sum() * (1 + 1e-12)


@pytest.mark.parametrize(("name", "model", "system"), CASES)
def test_more_of_a_rate_or_capacity_never_hurts(name, model, system):
    claimed(name, "monotone in rates")
    everything = world(name, model, system)
    before = float(step(*everything).time)
    for i, (path, meta) in enumerate(declared(everything)):
        if meta["kind"] in ("rate", "capacity"):
            value = jax.tree.leaves(everything)[i]
            after = step(*with_leaf(everything, i, np.asarray(value * 1.7)))
            assert float(after.time) <= before * (1 + 1e-12), path


@pytest.mark.parametrize(("name", "model", "system"), CASES)
def test_scaling_rates_up_and_times_down_scales_time(name, model, system):
    claimed(name, "time scaling")
    everything = world(name, model, system)
    k = 1.7
    factor = {"rate": k, "time": 1 / k}
    flat, structure = jax.tree.flatten(everything)
    scaled = [
        np.asarray(value * factor.get(meta["kind"], 1.0))
        for value, (_, meta) in zip(flat, declared(everything), strict=True)
    ]
    before, after = step(*everything), step(*jax.tree.unflatten(structure, scaled))
    np.testing.assert_allclose(after.time, before.time / k, rtol=1e-12)
    for term, value in before.terms.items():
        np.testing.assert_allclose(after.terms[term], value / k, rtol=1e-12, err_msg=term)


@pytest.mark.parametrize("model", MODELS)
def test_rates_alone_scale_the_rate_limited_terms(model):
    estimator, arch, hardware, forward, layout = world("economics.planned", model, "nodes")
    chip = hardware.chip
    faster = chip.replace(
        **{
            name: getattr(chip, name) * 3.0
            for name in ("flops_16", "flops_8", "flops_4", "memory_bandwidth")
        }
    )
    before = step(estimator, arch, hardware, forward, layout)
    after = step(estimator, arch, hardware.replace(chip=faster), forward, layout)
    for term in ("memory", "compute"):
        np.testing.assert_allclose(after.terms[term], before.terms[term] / 3.0, rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["economics", pytest.param("economics.level4", marks=SLOW), "economics.planned"]
)
def test_smoothing_is_exact_in_the_limit_with_finite_gradients(name):
    estimator, *rest = world(name, "mixture", "nodes")
    exact = float(step(estimator, *rest).time)
    errors = []
    for temperature in (1.0, 0.1, 0.01, 1e-4):
        soft = estimator.replace(smoothing=np.asarray(temperature))
        value, reverse, _ = slopes(numbers((soft, *rest)))
        errors.append(abs(math.exp(value) / exact - 1))
        assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(reverse))
    assert errors[-1] < 1e-3
    assert errors[-1] <= errors[0]


@pytest.mark.parametrize(
    "model", ["mixture", *(pytest.param(x, marks=SLOW) for x in ("dense", "hybrid"))]
)
@pytest.mark.parametrize("name", ["economics", "economics.level2"])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    tp=st.floats(0.5, 5000),
    sequences=st.floats(1, 1e6),
    cached=st.floats(0, 1e6),
    new=st.floats(0, 1e5),
)
def test_anything_in_bounds_gives_finite_time_and_gradient(tp, sequences, cached, new, name, model):
    estimator, arch, hardware, forward, layout = world(name, model, "nodes")
    forward = forward.replace(
        sequences=np.asarray(sequences),
        cached_tokens=np.asarray(cached),
        new_tokens=np.asarray(new),
    )
    layout = layout.replace(tp=np.asarray(tp), pp=np.asarray(1.0), ep=np.asarray(1.0))
    everything = (estimator, arch, hardware, forward, layout)
    value, reverse, _ = slopes(numbers(everything))
    assert np.isfinite(value)
    for (path, _), g in zip(declared(everything), jax.tree.leaves(reverse), strict=True):
        assert np.isfinite(g), path
