"""The partitioning model: optima, identities between layouts, limits, slices and the verb."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments._partitioning.measured import partitioning_hardware, partitioning_model
from infer_jax.catalog import load_model, load_system
from infer_jax.errors import InputError
from infer_jax.estimators.partitioning import (
    ATTENTION,
    LAYOUTS,
    Partitioning,
    Slice,
    arrangements,
    factorisations,
    slice_of,
)
from infer_jax.physics.network import sharding
from infer_jax.specs import ForwardPass, Hierarchy
from tests.unit.estimators.compiled import step
from tests.unit.physics.derivatives import numbers

THEORY = Partitioning.as_planned().with_(
    flop_cap=0.8, memory_cap=0.7, network_cap=0.6, half_width=900.0, collective=4e-6
)
PALM = partitioning_model("PaLM_540B")
TPU = partitioning_hardware("tpu_v4")


def phase(plan, sequences=512.0, new=1.0, cached=100.0, estimator=THEORY, arch=PALM):
    forward = ForwardPass.of(sequences=sequences, new_tokens=new, cached_tokens=cached)
    return step(estimator, arch, TPU, forward, plan)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-235b-a22b", "deepseek-v3"])
def test_no_slice_multiplies_beyond_its_data_sheet(name, x64):
    """MFU is at most 1 at data-sheet rates, of any system, layout and pass.

    By hand for a dense model: 2 FLOP for each of the parameters but the looked-up table's.
    """
    model = load_model(name, quant="fp8").architecture
    ideal, draw = Partitioning.as_planned(), np.random.default_rng(5)
    count = 150
    systems = [load_system(x).hardware for x in ("h100_sxm", "b200_sxm", "tpu_v5e")]
    axes = 2.0 ** draw.integers(0, 4, (count, 3))
    new = np.where(draw.random(count) < 0.5, 1.0, np.exp(draw.uniform(0.0, 10.0, count)))
    layouts, by = draw.integers(len(LAYOUTS), size=count), draw.integers(2, size=count)
    sequences = np.exp(draw.uniform(0.0, 8.0, count))

    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0))
    def mfu(hardware, row):
        x, y, z, layout, attention, new, sequences = row
        plan = Slice.of().replace(x=x, y=y, z=z, layout=layout, attention=attention)
        sizes = {"sequences": sequences, "new_tokens": new, "cached_tokens": 0.0 * new}
        forward = ForwardPass(**sizes)
        done = ideal.step(model, hardware, forward, plan)
        return done.mfu, done.time

    rows = jnp.asarray(np.column_stack([axes, layouts, by, new, sequences]))
    for hardware in systems:
        shares, _ = mfu(hardware, rows)
        assert np.all(shares > 0.0) and np.all(shares <= 1.0 + 1e-12)
    if name == "llama-3.1-8b":
        alone = jnp.asarray([[1.0, 1.0, 1.0, 0.0, 0.0, 4096.0, 1.0]])
        (share,), (time,) = mfu(systems[0], alone)
        each = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336  # of a layer: Q, O; K, V; gated
        head = 4096 * 128256 / float(systems[0].chip.flops_16)
        seconds = 2 * 4096 * (32 * each / float(systems[0].chip.flops_8) + head)
        assert float(share) == pytest.approx(seconds / float(time), rel=1e-9)
        assert float(share) > 0.85  # the core of attention is time that does not count


@pytest.mark.parametrize("inward", [1.0, 2.0])
@pytest.mark.parametrize("chips", [16.0, 64.0, 200.0])
def test_the_gradient_of_what_is_sent_vanishes_at_the_closed_optima(x64, chips, inward):
    width, hidden, tokens, chips, inward = numbers(18432.0, 73728.0, 40960.0, chips, inward)
    one = jnp.ones(())

    def stationary(rows):
        cut = sharding.SlicedLayout(chips, one, rows)
        inner = sharding.inner_buffer(inward * hidden, hidden, cut)
        return sharding.outer_buffer(width, cut) + inner

    def gathered(groups):
        cut = sharding.SlicedLayout(chips, groups, one)
        weights = sharding.gathered_buffer((inward + 1.0) * width * hidden, cut)
        return tokens / groups * sharding.outer_buffer(width, cut) + weights

    for sent, best in (
        (stationary, sharding.best_rows(chips, width, hidden, inward)),
        (gathered, sharding.best_gathered(tokens, chips, hidden, inward)),
    ):
        value, slope = jax.value_and_grad(sent)(best)
        assert abs(float(slope * best / value)) < 1e-9


def test_an_all_reduce_is_two_gathers_and_nodes_join_at_the_domain():
    size, rate = jnp.asarray(3e6), jnp.asarray(1e11)
    for ranks in map(jnp.asarray, (1.0, 4.0, 64.0)):
        both = sharding.all_gather(size, ranks, rate) + sharding.reduce_scatter(size, ranks, rate)
        assert float(sharding.all_reduce(size, ranks, rate)) == pytest.approx(float(both))
    net = Hierarchy.of(domain=8, domain_bandwidth=3e11, network_bandwidth=2.5e10)
    inside = sharding.node_gather(size, jnp.asarray(8.0), net)
    assert float(inside) == pytest.approx(float(sharding.all_gather(size, 8.0, 3e11)))  # pyright: ignore[reportArgumentType]
    beyond = [float(sharding.node_gather(size, jnp.asarray(n), net)) for n in (8.0, 16.0, 32.0)]
    assert beyond == sorted(beyond) and beyond[1] > 1.5 * beyond[0]


def test_two_dimensional_at_one_row_is_one_dimensional():
    plan = Slice.of(x=1, y=4, z=16, layout=1)
    one, two = phase(plan.with_(layout=0)), phase(plan)
    assert float(one.time) == pytest.approx(float(two.time), rel=1e-12)


def test_gathered_over_all_axes_sends_no_activations_and_treats_both_attentions_alike():
    plan = slice_of(64, layout=4)
    few, many = (phase(plan, sequences=s, new=2048.0, cached=0.0) for s in (64.0, 512.0))
    assert float(few.terms["network"]) == pytest.approx(float(many.terms["network"]), rel=1e-6)
    by_batch = phase(plan.with_(attention=1), sequences=512.0, new=2048.0, cached=0.0)
    assert float(by_batch.time) == pytest.approx(float(many.time), rel=1e-12)


def test_one_shared_head_is_read_by_every_chip_unless_attention_is_cut_by_batch():
    heads, batch = (phase(slice_of(64, attention=a), cached=8192.0) for a in (0, 1))
    bare = phase(slice_of(64), cached=0.0).terms["memory"]
    ratio = (heads.terms["memory"] - bare) / (batch.terms["memory"] - bare)
    assert float(ratio) == pytest.approx(64.0, rel=0.02)


def test_overlap_lies_between_sum_and_maximum():
    plan = slice_of(64)
    off, on = (
        phase(plan, estimator=THEORY.with_(hidden_memory=h, hidden_network=h)) for h in (0.0, 1.0)
    )
    terms = [float(t) for t in off.terms.values()]
    assert float(off.time) == pytest.approx(sum(terms), rel=1e-12)
    fixed = float(on.terms["latency"] + on.terms["overhead"])
    largest = max(float(on.terms[name]) for name in ("compute", "memory", "network"))
    assert float(on.time) == pytest.approx(largest + fixed, rel=1e-12)


def test_serial_blocks_send_the_outer_pair_twice():
    serial = partitioning_model("PaLM_540B", parallel=False)
    one, two = phase(slice_of(64)), phase(slice_of(64), arch=serial)
    assert float(two.terms["network"]) > 1.2 * float(one.terms["network"])
    assert float(two.terms["latency"]) == pytest.approx(2.0 * float(one.terms["latency"]))


def test_int8_halves_weight_traffic_and_what_gathering_moves():
    small = partitioning_model("PaLM_540B", weights="int8")
    plan = slice_of(64, layout=4)
    wide, narrow = (phase(plan, new=2048.0, cached=0.0, arch=a) for a in (PALM, small))
    ratio = float(narrow.terms["network"] / wide.terms["network"])
    assert ratio == pytest.approx(0.5, rel=1e-6)
    assert float(narrow.terms["compute"]) == pytest.approx(float(wide.terms["compute"]))


def test_stages_with_one_micro_batch_take_turns_and_with_many_they_overlap():
    whole = phase(Slice.of(z=8, layout=0, pp=1), new=128.0, cached=0.0)
    three = phase(Slice.of(z=8, layout=0, pp=3), new=128.0, cached=0.0)
    assert float(three.time) == pytest.approx(float(whole.time), rel=0.02)
    many = phase(Slice.of(z=8, layout=0, pp=3, micro_batches=16), new=128.0, cached=0.0)
    assert 1 / 3 < float(many.time / three.time) < 0.5


@pytest.mark.parametrize(("sequences", "new"), [(64.0, 1.0), (8.0, 2048.0), (512.0, 2048.0)])
def test_the_search_finds_the_best_of_all_plans(sequences, new):
    result = phase(slice_of(64), sequences, new, 0.0, THEORY.replace(search=True))
    best = np.inf
    for code, by, (x, y, z) in itertools.product(
        range(len(LAYOUTS)), range(len(ATTENTION)), arrangements((4, 4, 4))
    ):
        plan = Slice.of(x=x, y=y, z=z, layout=code, attention=by)
        one = phase(plan, sequences, new, 0.0)
        if one.feasible:
            best = min(best, float(one.time))
    assert bool(result.feasible)
    assert float(result.time) == pytest.approx(best, rel=1e-12)


def test_slices_are_those_that_exist():
    assert factorisations(64) == ((4, 4, 4),)
    assert factorisations(256) == ((4, 4, 16), (4, 8, 8))
    assert factorisations(16, axes=2) == ((1, 4, 4),)
    for chips in (7, 48, 96, 0, -4):
        with pytest.raises(InputError, match="slice: chips is"):
            factorisations(chips)


def test_what_does_not_fit_is_infeasible_and_finite():
    """A batch smaller than an axis, and a model larger than the memory."""
    for plan in (slice_of(64, attention=1), slice_of(64, layout=3)):
        few = phase(plan, sequences=2.0, new=2048.0, cached=0.0)
        assert not bool(few.feasible) and float(few.limits["batch"].slack) < 0
        assert np.isfinite(few.time)
    assert bool(phase(slice_of(64, attention=1), sequences=4.0).feasible)
    small = phase(slice_of(8), sequences=1.0)
    assert not bool(small.feasible) and float(small.limits["memory"].slack) < 0


def test_bad_coefficients_and_choices_are_refused():
    with pytest.raises(InputError, match="flop_cap"):
        Partitioning.searched().fitted({"flop_cap": 1.2})
    with pytest.raises(InputError, match="layout"):
        slice_of(64, layout=5)
    with pytest.raises(InputError, match="published partitioning"):
        partitioning_model("PaLM_541B")
