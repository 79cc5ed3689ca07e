"""Every estimator keeps every law of the contract, or says which it does not claim.

Of whole jobs the optimum of a linear program is piecewise smooth: at the points tried here one
vertex is best, and ``test_requests`` looks at where it is not.
"""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from infer_jax.estimators.registry import VARIANTS
from infer_jax.specs import leaves
from tests.contract.cases import BLOCKS, ESTIMATORS, JOBS, PASSES
from tests.contract.programs import (
    MORE,
    SMALL,
    alone,
    case,
    declared,
    forget,
    mapped,
    numbers,
    slopes,
    world,
)

SLOW = pytest.mark.slow
# every estimator on one model, those of many laws on all: compiling is what these tests take
WIDE = ("economics.planned", "economics", "economics.level4")
# published variants that are a part of another, or its program with other laws: on each release
PARTS = ("economics.level3", "economics.level4", "economics.pipeline", "partitioning.planned")
PARTS += ("kernels.published", "serving.vllm", "speculative.bonus", "offloading.paper")
PARTS += ("offloading.released",)


@pytest.fixture(scope="module", autouse=True)
def _forgotten():
    yield
    forget()


def row(*values, slow):
    return pytest.param(*values, marks=SLOW if slow else ())


CASES = [
    row(name, "dense" if name.startswith("speculative") else "mixture", "nodes", slow=name in PARTS)
    for name in ESTIMATORS
]
CASES += [
    row(name, model, system, slow=(name, model) != (WIDE[0], "hybrid"))
    for name in WIDE
    for model, system in (("dense", "nodes"), ("hybrid", "torus"))
]
JOB_CASES = [row(name, "dense", "offloaded", slow=name in PARTS) for name in JOBS]
JOB_CASES += [
    row("offloading", "mixture", "offloaded", slow=True),
    row("offloading.planned", "hybrid", "offloaded", slow=False),
]
# the published search is the same program on both models: slopes of one every time
SLOPED_JOBS = [
    row(*job.values, slow=job.marks or job.values[:2] == ("offloading.planned", "dense"))
    for job in JOB_CASES
]


def tried(jobs, points=3):
    """Every case at so many of its points: decode, prefill, crowded; or block, crowd."""
    each = [(CASES, tuple(PASSES)), (jobs, tuple(BLOCKS))]
    rows = [
        pytest.param(*c.values, point, marks=c.marks)
        for cases, names in each
        for c in cases
        for point in names[:points]
    ]
    return pytest.mark.parametrize(("name", "model", "system", "point"), rows)


def bound(name, of_pass, of_job):
    """How near a law is held: placements of a job end where its linear program does."""
    return of_job if name in JOBS else of_pass


def claimed(name, law):
    reason = {**ESTIMATORS, **JOBS}[name].laws_not_claimed.get(law)
    if reason:
        pytest.skip(reason)


def finite(everything, reverse):
    for (path, _), g in zip(declared(everything), jax.tree.leaves(reverse), strict=True):
        assert np.isfinite(g), path


@pytest.mark.parametrize("name", [*ESTIMATORS, *JOBS])
def test_every_leaf_is_declared(name):
    everything = world(name, "mixture", "nodes", "block" if name in JOBS else "decode")
    values = [value for tree in everything for _, _, value in leaves(tree)]
    for ours, theirs in zip(values, jax.tree.leaves(everything), strict=True):
        assert ours is theirs


def test_every_variant_of_the_registry_is_in_the_contract():
    assert set(VARIANTS) <= set(ESTIMATORS) | set(JOBS)


@tried(SLOPED_JOBS)
def test_value_and_gradient_are_finite_and_modes_agree(name, model, system, point):
    """The value of the mapped program is also that of the same world alone: vmap equals a loop."""
    c = case(name, model, system)
    everything, answer = c.worlds[point], c[point]
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(answer))
    if name in JOBS:
        assert bool(answer.feasible) == (point == "block")
    value, reverse, forward = c.slopes(point)
    np.testing.assert_allclose(answer.time, np.exp(value), rtol=bound(name, 1e-12, 1e-10))
    finite(everything, reverse)
    expected = sum(
        float(g * x)
        for g, x in zip(jax.tree.leaves(reverse), jax.tree.leaves(everything), strict=True)
    )
    # terms of both signs cancel in the sum, hence the absolute part
    near = bound(name, 1e-7, 1e-6)
    np.testing.assert_allclose(forward, expected, rtol=near, atol=near)


@pytest.mark.parametrize(("name", "model", "system"), CASES)
@pytest.mark.parametrize("ranks", ["several", "one"])
def test_a_network_that_is_absent_is_slow_and_finite(name, model, system, ranks):
    """Bandwidths of 0: no NaN in values or slopes; a single chip does without."""
    c = case(name, model, system)
    label = {"several": "no network", "one": "one, no network"}[ranks]
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(c[label]))
    value, reverse, along = c.slopes(label)
    np.testing.assert_allclose(c[label].time, np.exp(value), rtol=1e-12)
    assert np.isfinite(along)
    finite(c.worlds[label], reverse)
    connected = c["one"]
    # the published search deals even one chip out, 2.2 stages of a half
    if ranks == "one" and float(connected.layout.get("pp", 1.0)) == 1.0:
        np.testing.assert_allclose(c[label].time, connected.time, rtol=1e-12)


@tried(SLOPED_JOBS, points=2)
def test_gradient_equals_finite_difference(name, model, system, point):
    c = case(name, model, system)
    flat, reverse = (jax.tree.leaves(x) for x in (c.worlds[point], c.slopes(point)[1]))
    times = c.answers.time
    for i, (path, meta) in enumerate(declared(c.worlds[point])):
        # at a choice there is no slope, and none of a job's fraction at its edge; at an exact
        # integer the ceiling and floor have a step
        step = flat[i] == meta["high"] if name in JOBS else path.endswith("domain")
        if (point, i, 1) not in c.rows or step:
            continue
        # compared as elasticities, d log time / d log x
        above, below = (math.log(times[c.rows[point, i, side]]) for side in (1, -1))
        ours = float(reverse[i] * flat[i])
        near = bound(name, 2e-6, 5e-6) + 1e-5 * abs(ours)
        assert abs((above - below) / (2 * SMALL) - ours) < near, path


@pytest.mark.parametrize(("name", "model", "system"), CASES + JOB_CASES)
def test_no_retrace_on_new_numbers(name, model, system):
    c = case(name, model, system)
    traces = mapped._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    mapped(jax.tree.map(lambda x: np.asarray(x * 1.01), c.stacked))
    assert mapped._cache_size() == traces  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("name", "model", "system"), CASES + JOB_CASES)
def test_float32_stays_float32_and_agrees(name, model, system):
    c = case(name, model, system)
    narrow = alone(numbers(c.usual, np.float32))
    assert {x.dtype for x in jax.tree.leaves(narrow)} == {np.dtype(np.float32)}
    time = c.answers.time[0]
    np.testing.assert_allclose(narrow.time, time, rtol=bound(name, 2e-5, 1e-4))


@tried(JOB_CASES)
def test_time_lies_between_largest_term_and_sum(name, model, system, point):
    answer = case(name, model, system)[point]
    slack = bound(name, 1e-12, 1e-9)
    for phase in (answer.prefill, answer.decode) if name in JOBS else (answer,):
        terms = np.asarray([float(t) for t in phase.terms.values()])
        assert np.all(terms >= 0)
        assert terms.max() * (1 - slack) <= float(phase.time) <= terms.sum() * (1 + slack)


@pytest.mark.parametrize(("name", "model", "system"), CASES + JOB_CASES)
def test_more_of_a_rate_or_capacity_never_hurts(name, model, system):
    claimed(name, "monotone in rates")
    c = case(name, model, system)
    times = c.answers.time
    paths = [path for path, _ in declared(c.usual)]
    more = {paths[label[1]]: row for label, row in c.rows.items() if label[0] == "more"}
    assert more
    for path, row in more.items():
        assert times[row] <= times[0] * (1 + bound(name, 1e-12, 1e-9)), path


@pytest.mark.parametrize(("name", "model", "system"), CASES + JOB_CASES)
def test_scaling_rates_up_and_times_down_scales_time(name, model, system):
    claimed(name, "time scaling")
    c = case(name, model, system)
    before, after = c["block" if name in JOBS else "decode"], c["scaled"]
    near = bound(name, 1e-12, 1e-9)
    np.testing.assert_allclose(after.time, before.time / MORE, rtol=near)
    for term, value in {} if name in JOBS else before.terms.items():
        np.testing.assert_allclose(after.terms[term], value / MORE, rtol=near, err_msg=term)


@pytest.mark.parametrize(
    ("name", "model"),
    [("economics", "dense"), row("economics.level4", "mixture", slow=True),
     row("economics.planned", "mixture", slow=True)],
)  # fmt: skip
def test_smoothing_is_exact_in_the_limit_with_finite_gradients(name, model):
    """The search smooths what a given plan does, and which layout is best."""
    estimator, *rest = world(name, model, "nodes", "decode")
    exact = float(alone(numbers((estimator, *rest))).time)
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
@pytest.mark.parametrize("name", ["economics"])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    tp=st.floats(0.5, 5000),
    sequences=st.floats(1, 1e6),
    cached=st.floats(0, 1e6),
    new=st.floats(0, 1e5),
)
def test_anything_in_bounds_gives_finite_time_and_gradient(tp, sequences, cached, new, name, model):
    estimator, arch, hardware, forward, layout = world(name, model, "nodes", "decode")
    forward = forward.replace(
        sequences=np.asarray(sequences),
        cached_tokens=np.asarray(cached),
        new_tokens=np.asarray(new),
    )
    layout = layout.replace(tp=np.asarray(tp), pp=np.asarray(1.0), ep=np.asarray(1.0))
    everything = (estimator, arch, hardware, forward, layout)
    value, reverse, _ = slopes(numbers(everything))
    assert np.isfinite(value)
    finite(everything, reverse)
