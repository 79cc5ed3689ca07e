"""Every estimator of whole jobs keeps the contract's laws, told for a job instead of a pass.

The optimum of a linear program is piecewise smooth: at the points tried here one vertex is best,
and ``test_the_optimum_is_continuous_where_its_vertex_changes`` looks at where it is not.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.errors import InputError
from infer_jax.specs import Workload, leaves
from tests.contract.cases import BLOCKS, JOBS, dense, hybrid, mixture, numbers, offloaded, sloped

MODELS = {"dense": dense, "mixture": mixture, "hybrid": hybrid}
SLOW = pytest.mark.slow
CASES = [
    *((name, "dense") for name in JOBS),
    ("offloading", "mixture"),
    ("offloading.planned", "hybrid"),
]
# slopes every time of one model and of a planned hybrid; a variant is the program with other laws
EVERY_TIME = (("offloading", "dense"), ("offloading.planned", "hybrid"))
SLOPED = [
    pytest.param(name, model, marks=() if (name, model) in EVERY_TIME else SLOW)
    for name, model in CASES
]


def world(name, model="dense", size="block"):
    """(estimator, arch, hardware, workload, plan) of a case."""
    work = Workload.of(isl=1000.3, osl=31.2)
    return JOBS[name].make(), MODELS[model](), offloaded(), work, BLOCKS[size]()


# thirty programs that run a few times each: compiling takes all the time, so compile quickly
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


traced = []


@compiled
def estimate(estimator, arch, hardware, work, plan):
    traced.append(True)
    return estimator.estimate(arch, hardware, work, plan)


slopes = compiled(sloped(lambda everything: everything[0].estimate(*everything[1:]).time))


def declared(everything):
    return [(path, meta) for tree in everything for path, meta, _ in leaves(tree)]


def with_leaf(everything, index, value):
    flat, structure = jax.tree.flatten(everything)
    flat[index] = np.asarray(value)
    return jax.tree.unflatten(structure, flat)


@pytest.mark.parametrize("name", JOBS)
def test_every_leaf_is_declared(name):
    everything = world(name)
    values = [value for tree in everything for _, _, value in leaves(tree)]
    assert len(values) == len(jax.tree.leaves(everything))
    assert all(a is b for a, b in zip(values, jax.tree.leaves(everything), strict=True))


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_no_passes(name):
    theory = JOBS[name].make()
    assert not theory.prices_passes
    with pytest.raises(InputError, match="step"):
        theory.step(*world(name)[1:])


@pytest.mark.parametrize(("name", "model"), SLOPED)
@pytest.mark.parametrize("size", BLOCKS)
def test_value_and_gradient_are_finite_and_modes_agree(name, model, size):
    everything = world(name, model, size)
    answer = estimate(*everything)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(answer))
    assert bool(answer.feasible) == (size == "block")
    _, reverse, forward = slopes(numbers(everything))
    for (path, _), g in zip(declared(everything), jax.tree.leaves(reverse), strict=True):
        assert np.isfinite(g), path
    both = sum(
        float(g * x)
        for g, x in zip(jax.tree.leaves(reverse), jax.tree.leaves(everything), strict=True)
    )
    np.testing.assert_allclose(forward, both, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "model"), SLOPED)
@pytest.mark.parametrize("size", BLOCKS)
def test_gradient_equals_finite_difference(name, model, size):
    everything = world(name, model, size)
    flat, reverse = jax.tree.leaves(everything), jax.tree.leaves(slopes(numbers(everything))[1])
    small = 1e-6
    for i, (path, meta) in enumerate(declared(everything)):
        # at a choice there is no slope; on the edge of a fraction there is one side only
        if meta["kind"] == "choice" or flat[i] == 0.0 or flat[i] == meta["high"]:
            continue
        ends = [
            math.log(estimate(*with_leaf(everything, i, flat[i] * (1 + s * small))).time)
            for s in (1, -1)
        ]
        elasticity = (ends[0] - ends[1]) / (2 * small)
        ours = float(reverse[i] * flat[i])
        assert abs(elasticity - ours) < 5e-6 + 1e-5 * abs(ours), path


@pytest.mark.parametrize("name", JOBS)
def test_no_retrace_on_new_numbers(name):
    everything = world(name)
    estimate(*everything)
    traces = len(traced)
    estimate(*jax.tree.map(lambda x: np.asarray(x * 1.01), everything))
    assert len(traced) == traces


@pytest.mark.parametrize("name", JOBS)
def test_float32_stays_float32_and_agrees(name):
    everything = world(name)
    narrow = estimate(*jax.tree.map(lambda x: np.asarray(x, np.float32), everything))
    kinds = {x.dtype for x in jax.tree.leaves(narrow)}
    assert kinds == {np.dtype(np.float32)}
    np.testing.assert_allclose(narrow.time, estimate(*everything).time, rtol=1e-4)


@pytest.mark.parametrize("name", JOBS)
def test_vmap_equals_loop(name):
    estimator, arch, hardware, work, plan = world(name)
    batches = np.array([1.3, 7.7, 61.1, 2001.0])
    plans = jax.tree.map(lambda x: np.full(4, x), plan).replace(batches=batches)
    many = compiled(jax.vmap(lambda p: estimator.estimate(arch, hardware, work, p)))(plans)
    for i, b in enumerate(batches):
        one = estimate(estimator, arch, hardware, work, plan.replace(batches=np.asarray(b)))
        np.testing.assert_allclose(many.time[i], one.time, rtol=1e-10)
        assert bool(many.feasible[i]) == bool(one.feasible)


@pytest.mark.parametrize(("name", "model"), CASES)
@pytest.mark.parametrize("size", BLOCKS)
def test_time_of_a_phase_lies_between_largest_term_and_sum(name, model, size):
    answer = estimate(*world(name, model, size))
    for phase in (answer.prefill, answer.decode):
        terms = np.asarray([float(t) for t in phase.terms.values()])
        assert np.all(terms >= 0)
        assert terms.max() * (1 - 1e-9) <= float(phase.time) <= terms.sum() * (1 + 1e-9)


@pytest.mark.parametrize(("name", "model"), CASES)
def test_more_of_a_rate_or_capacity_never_hurts(name, model):
    everything = world(name, model)
    before, flat = float(estimate(*everything).time), jax.tree.leaves(everything)
    for i, (path, meta) in enumerate(declared(everything)):
        if meta["kind"] in ("rate", "capacity"):
            after = estimate(*with_leaf(everything, i, flat[i] * 1.7))
            assert float(after.time) <= before * (1 + 1e-9), path


@pytest.mark.parametrize(("name", "model"), CASES)
def test_scaling_rates_up_and_times_down_scales_time(name, model):
    everything = world(name, model)
    k = 1.7
    factor = {"rate": k, "time": 1 / k}
    flat, structure = jax.tree.flatten(everything)
    scaled = [
        np.asarray(value * factor.get(meta["kind"], 1.0))
        for value, (_, meta) in zip(flat, declared(everything), strict=True)
    ]
    before, after = estimate(*everything), estimate(*jax.tree.unflatten(structure, scaled))
    np.testing.assert_allclose(after.time, before.time / k, rtol=1e-9)


@pytest.mark.parametrize(
    "name",
    [
        "offloading",
        *(pytest.param(x, marks=SLOW) for x in ("offloading.paper", "offloading.released")),
    ],
)
def test_the_optimum_is_continuous_where_its_vertex_changes(name):
    """Along the host's memory the time falls, without steps; its slope is one of two sides'."""
    estimator, arch, hardware, work, plan = world(name)
    sizes = np.linspace(2e10, 2e11, 181)
    hosts = jax.tree.map(lambda x: np.full(len(sizes), x), hardware.host).replace(memory=sizes)
    axes = jax.tree.map(lambda _: None, hardware).replace(
        host=jax.tree.map(lambda _: 0, hardware.host)
    )

    def of_hardware(made):
        return jnp.log(estimator.estimate(arch, made, work, plan).time)

    both = compiled(jax.vmap(jax.value_and_grad(of_hardware), in_axes=(axes,)))
    value, slopes = both(hardware.replace(host=hosts))
    value, slopes = np.asarray(value), np.asarray(slopes.host.memory)
    assert np.all(np.diff(value) <= 1e-9)
    step = sizes[1] - sizes[0]
    steepest = np.minimum(slopes[:-1], slopes[1:])
    # convex in a capacity: a chord lies between the slopes at its ends
    assert np.all(np.diff(np.exp(value)) >= (np.exp(value[:-1]) * steepest * step) * 1.01 - 1e-9)


JOBS_DRAWN = 300


def drawn():
    """Random systems, lengths and blocks, stacked, in float64."""
    rng, base, rows = np.random.default_rng(0), offloaded(), []

    def between(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    for _ in range(JOBS_DRAWN):
        host = base.host.with_(
            memory=between(2e10, 5e11),
            disk=float(rng.integers(2)) * between(1e11, 3e12),
            memory_bandwidth=between(3e10, 3e11),
            flops=between(5e11, 5e12),
            link_bandwidth=between(4e9, 6e10),
            disk_read=between(5e8, 7e9),
            disk_write=between(3e8, 5e9),
        )
        chip = base.chip.with_(memory=between(8e9, 5e10), flops_16=between(3e13, 4e14))
        choices = ("compress_weights", "compress_cache", "schedule", "overlap")
        plan = BLOCKS["block"]().with_(
            gpu_batch=np.floor(between(1, 128)),
            batches=np.floor(between(1, 40)),
            **{name: float(rng.integers(2)) for name in choices},
        )
        work = Workload.of(isl=between(20, 4000), osl=between(2, 300))
        rows.append((base.replace(host=host, chip=chip), work, plan))
    return jax.tree.map(lambda *x: np.stack([np.asarray(v, np.float64) for v in x]), *rows)


@compiled
def many(estimator, arch, hardware, work, plan):
    answers = jax.vmap(estimator.estimate, in_axes=(None, 0, 0, 0))(arch, hardware, work, plan)
    return answers.time, answers.feasible


@pytest.mark.parametrize("name", ["offloading"])
@pytest.mark.parametrize("part", ["GPU", "CPU", "disk"])
@pytest.mark.parametrize("factor", [1.1, 2.0])
def test_more_memory_slows_no_job_that_fits(name, part, factor):
    """Of one that fits nowhere the placement is the least infeasible, whatever its time."""
    theory, (hardware, work, plan) = JOBS[name].make(), drawn()
    chip, host = hardware.chip, hardware.host
    larger = {
        "GPU": hardware.replace(chip=chip.replace(memory=chip.memory * factor)),
        "CPU": hardware.replace(host=host.replace(memory=host.memory * factor)),
        "disk": hardware.replace(host=host.replace(disk=host.disk * factor)),
    }
    before, fits = many(theory, dense(), hardware, work, plan)
    after, still = many(theory, dense(), larger[part], work, plan)
    assert np.mean(fits) > 0.8 and np.all(still[fits])
    assert np.all(after[fits] <= before[fits] * (1.0 + 1e-9))


@pytest.mark.parametrize("name", ["offloading", pytest.param("offloading.released", marks=SLOW)])
def test_single_precision_agrees_on_random_jobs(name):
    given = (JOBS[name].make(), dense(), *drawn())
    expected, fits = many(*given)
    with jax.enable_x64(False):
        found, _ = many(*jax.tree.map(lambda x: np.asarray(x, np.float32), given))
    np.testing.assert_allclose(np.asarray(found)[fits], expected[fits], rtol=1e-3)
