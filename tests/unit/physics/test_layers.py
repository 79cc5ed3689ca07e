"""The table of layers, products and whole decoders: published sizes, numbers worked by hand."""

from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from infer_jax.catalog import load_model, load_system
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.kernels.coefficients import KernelsPlan
from infer_jax.physics import attention, decoder, feedforward as ffn, layers
from infer_jax.physics.attention.row import Launches
from infer_jax.physics.matmul import Matrix, rate, streamed_bytes
from infer_jax.specs import (
    Architecture,
    Block,
    Chip,
    Dense,
    Experts,
    Format,
    ForwardPass,
    GroupedQuery,
    Linear,
)

from .derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")

FULL = Block.of(
    count=3,
    attention=GroupedQuery.of(query_heads=4, kv_heads=2, head_width=8, value_width=8),
    feedforward=Dense.of(width=100, inward=2),
)
RECURRENT = Block.of(
    count=5,
    attention=Linear.of(key_heads=2, key_width=8, value_heads=4, value_width=8),
    feedforward=Experts.of(
        experts=16, active=2, width=10, inward=2, shared=Dense.of(width=20, inward=2)
    ),
)
BARE = Block.of(count=2, attention=None, feedforward=Dense.of(width=50, inward=1))


def model_of(*blocks: Block) -> Architecture:
    return Architecture.of(width=64, vocabulary=1000, tied=0, blocks=blocks)


def test_each_block_has_its_own_launches():
    """A hybrid's full layers are grouped-query, its linear ones linear: not all of them one."""
    kinds = {
        "qwen3-next-80b-a3b": (12, 0, 0, 36),
        "deepseek-v4-flash": (0, 22, 21, 0),
        "nemotron-h-8b": (4 + 24, 0, 0, 24),  # layers without attention launch as the least do
    }
    for name, expected in kinds.items():
        table = layers.table(load_model(name).architecture)
        assert Launches._fields == ("grouped", "latent", "sparse", "linear")
        assert tuple(jnp.sum(table.count * x) for x in table.attention.launches) == expected, name


def test_bytes_of_tokens_on_a_rank():
    """2 heads of 8 + 8 numbers in 2 bytes are 64 a token; of 4 ranks each keeps one head."""
    row = layers.rows(model_of(FULL))[0].attention
    tokens = jnp.asarray(100.0)
    for tp, share in ((1.0, 1.0), (2.0, 0.5), (4.0, 0.5)):
        assert float(row.cache_bytes(1.0, jnp.asarray(tp))) == 64 * share
        assert float(row.cache_bytes(tokens, jnp.asarray(tp))) == 6400 * share
    near = row._replace(window=jnp.asarray(10.0), near=jnp.asarray(30.0), index=jnp.asarray(3.0))
    near = near._replace(near_cache=jnp.asarray(7.0))
    # 10 tokens of the window and 30 beside are split, index keys of all are not
    assert float(near.cache_bytes(tokens, jnp.asarray(2.0))) == (640 + 210) / 2 + 300
    assert float(near.held_bytes(tokens)) == 640 + 210 + 300
    assert float(near.cache_bytes(1.0, jnp.asarray(2.0), near=0.0)) == 32 + 3


def test_kernels_charge_a_hybrid_for_each_of_its_layers():
    """The time of a pass is that of its blocks, each alone, less what they share."""
    system = load_system("h20_sxm")
    estimator = Kernels.corrected().fitted(system.coefficients["kernels"])
    forward, plan = (
        ForwardPass.of(sequences=32, new_tokens=1, cached_tokens=4000),
        KernelsPlan.of(tp=2),
    )

    @jax.jit
    def seconds(counts):
        blocks = tuple(
            b.replace(count=n) for b, n in zip((FULL, RECURRENT, BARE), counts, strict=True)
        )
        return estimator.step(model_of(*blocks), system.hardware, forward, plan).time

    none, full, recurrent, bare, hybrid = (
        float(seconds(jnp.asarray(counts)))
        for counts in ((0.0, 0, 0), (1.0, 0, 0), (0.0, 1, 0), (0.0, 0, 1), (3.0, 5, 2))
    )
    each = [x - none for x in (full, recurrent, bare)]
    assert len({round(x * 1e9) for x in each}) == 3
    assert hybrid == pytest.approx(none + 3 * each[0] + 5 * each[1] + 2 * each[2], rel=1e-9)


def test_flop_are_of_the_precision_asked_for_whatever_was_asked_before():
    """JAX keeps a NumPy constant as it first used it; a law may not share one between calls."""

    def flops(heads):
        spec = load_model("llama-3.1-8b").architecture.blocks[0].attention
        assert spec is not None
        return attention.of(spec.replace(kv_heads=heads)).absorbed_flops(heads, heads)

    with jax.enable_x64(False):
        jax.jit(flops)(jnp.ones(()))
    with jax.enable_x64(True):

        def climbed(heads):
            def step(x, _):
                return x + 1e-12 * jax.grad(flops)(x), None

            return jax.lax.scan(step, heads, None, length=2)[0]

        assert jax.jit(jax.vmap(climbed))(jnp.ones(2)).dtype == jnp.float64


def test_a_layer_without_cached_heads_has_no_tile():
    row = layers.rows(model_of(RECURRENT))[0].attention

    def fill(new, tile):
        return row.tile_fill(new, jnp.asarray(1.0), tile)

    for at in ((1.0, 64.0), (0.0, 64.0)):
        value, slopes = jax.value_and_grad(fill, argnums=(0, 1))(*map(jnp.asarray, at))
        assert (float(value), *map(float, slopes)) == (1.0, 0.0, 0.0)


def mixed() -> Architecture:
    """Small: 2 dense attention layers, 3 with experts and a state, 1 with experts alone."""
    experts = Experts.of(
        experts=8, active=2, width=4, inward=2, shared=Dense.of(width=6.0, inward=2)
    ).replace(weights=Format.of(bytes=0.5, bits=4))
    attention = GroupedQuery.of(query_heads=4, kv_heads=2, head_width=3, value_width=3, window=7)
    state = Linear.of(key_heads=1, key_width=2, value_heads=3, value_width=5, conv_width=4)
    blocks = (
        Block.of(count=2, attention=attention, feedforward=Dense.of(width=9, inward=1), vectors=5),
        Block.of(count=3, attention=state, feedforward=experts),
        Block.of(count=1, attention=None, feedforward=experts),
    )
    return Architecture.of(width=10, vocabulary=11, tied=1.0, blocks=blocks, vectors=10)


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    [("qwen2.5-72b", 327.680), ("llama-3.1-405b", 516.096), ("deepseek-v3", 70.272)],
)
def test_published_cache_per_token(name, kilobytes):
    """By Table 1 of arXiv 2505.09343."""
    arch = load_model(name).architecture
    assert float(decoder.cache_bytes(arch, jnp.asarray(1.0))) == 1e3 * kilobytes


def test_stored_bytes_by_hand():
    stored = {k: float(v) for k, v in decoder.weight_bytes(mixed()).items()}
    counted = {k: float(v) for k, v in decoder.parameters(mixed()).items()}
    sizes = dict.fromkeys(counted, 2.0) | {"experts": 0.5}
    assert stored == {kind: count * sizes[kind] for kind, count in counted.items()}


def everything(arch, context):
    """One number that every law of a decoder enters."""
    sizes = decoder.total(decoder.weight_bytes(arch).values()) + decoder.active_parameters(arch)
    return sizes + decoder.cache_bytes(arch, context) + decoder.cache_reads(arch, context)


def test_gradient_and_bad_points():
    agree_at(everything, (mixed(), 5.3))
    empty = Architecture.of(width=0, vocabulary=0, tied=0.0, blocks=())
    finite_at(everything, *product((mixed(), empty), (0.0, 7.0, 2.0**40)))


size = st.floats(1.0, 1e5)
count = st.floats(1.0, 1e4)
streamed = jax.jit(lambda m, k, n, t, w, a: streamed_bytes(Matrix(m, k), n, t, w, a))


def test_streamed_bytes_by_hand():
    # one chip: the weight once, inputs and outputs of 3 tokens
    assert float(streamed(4.0, 5.0, 3.0, 1.0, 1.0, 2.0)) == 20 + (4 + 5) * 3 * 2
    # four chips, square: 2 x 2 slices, so inputs and outputs twice each
    assert float(streamed(4.0, 4.0, 3.0, 4.0, 2.0, 2.0)) == 16 * 2 + (2 * 4 + 2 * 4) * 3 * 2
    # four chips, 1 x 64: slices along the long side only, the single input word read by all
    assert float(streamed(64.0, 1.0, 1.0, 4.0, 0.0, 1.0)) == 4 * 1 + 64
    # no tokens: the weight all the same
    assert float(streamed(4.0, 5.0, 0.0, 8.0, 2.0, 2.0)) == 40.0
    # an empty matrix moves nothing
    assert [float(streamed(*x, 3.0, 2.0, 1.0, 2.0)) for x in ((0.0, 4.0), (4.0, 0.0))] == [0.0, 0.0]


_log_slopes = jax.jit(jax.grad(lambda *x: jnp.log(streamed(*x)), tuple(range(4))))


@pytest.mark.parametrize(
    ("m", "k", "split"),
    [(100.0, 4096.0, 1.0), (4096.0, 100.0, 1.0), (512.0, 512.0, 1.0), (100.0, 4096.0, 40.96)],
)
def test_the_slope_is_that_of_both_sides_where_slices_begin_and_where_they_turn_square(m, k, split):
    point = (m, k, 37.0, split, 2.0, 2.0)
    for i, slope in enumerate(_log_slopes(*point)):
        for h in (1e-5, -1e-5):
            moved = streamed(*point[:i], point[i] * (1.0 + h), *point[i + 1 :])
            side = float(jnp.log(moved / streamed(*point))) / h
            assert float(slope) * point[i] == pytest.approx(side, rel=1e-3, abs=1e-5), i


@given(size, size, count)
def test_no_slicing_moves_less(m, k, t):
    rows = np.geomspace(1.0, t, 400)
    best = (rows * k + t / rows * m).min()
    moved = float(streamed(m, k, 1.0, t, 0.0, 1.0))
    assert moved <= best * (1 + 1e-12)
    assert moved == pytest.approx(best, rel=1e-3)  # the grid is finer than that


def test_slopes_of_streamed_bytes_at_ordinary_and_bad_points():
    sizes = product((1.5, 7.3, 900.0), ((3.0, 4.0), (400.0, 5.0), (5.0, 400.0)))
    agree_at(streamed, *((*shape, 2.0, t, 0.5, 2.0) for t, shape in sizes))
    bad = ((0.0, 4.0, 1.0, 2.0), (4.0, 0.0, 1.0, 2.0), (0.0, 0.0, 0.0, 1.0), (4.0, 4.0, 1.0, 1.0),
           (1.0, 4.0, 1.0, 4.0), (1e6, 1e6, 1e6, 1e5))  # fmt: skip
    finite_at(streamed, *((*point, 1.0, 2.0) for point in bad))


def test_rate():
    chip = Chip.of(flops_16=1e15, flops_8=2e15, flops_4=4e15, memory=1.0, memory_bandwidth=1.0)
    found = [float(rate(chip, jnp.asarray(bits))) for bits in (16.0, 8.0, 6.0, 4.0, 2.0)]
    assert found == [1e15, 2e15, 2e15, 4e15, 4e15]


WIDTH = jnp.asarray(10.0)
DENSE = Dense.of(width=6.0, inward=2)
MIXTURE = Experts.of(experts=8, active=3, width=4, inward=1, shared=DENSE)
touched = jax.jit(ffn.visited_share)


def test_experts_by_hand():
    assert float(ffn.routed_elements(MIXTURE, WIDTH)) == 8 * 2 * 40
    assert float(ffn.common_elements(MIXTURE, WIDTH)) == 3 * 60
    assert float(ffn.router_elements(MIXTURE, WIDTH)) == 80
    assert float(ffn.router_elements(MIXTURE.with_(router=0.0), WIDTH)) == 0
    assert float(ffn.sparsity(MIXTURE)) == 8 / 3
    assert float(ffn.floored_sparsity(MIXTURE)) == 2.0
    assert float(ffn.floored_sparsity(MIXTURE, jnp.asarray(1.0))) == pytest.approx(8 / 3)
    assert float(ffn.active_experts(MIXTURE)) == 3.0


def test_experts_of_another_width():
    narrow = MIXTURE.with_(outer_width=5.0)
    assert float(ffn.routed_elements(narrow, WIDTH)) == 8 * 2 * 20
    assert float(ffn.router_elements(narrow, WIDTH)) == 80  # the router reads the model's width


@pytest.mark.parametrize(
    ("experts", "active", "tokens"), [(4, 1, 4), (5, 2, 3), (4, 3, 2), (3, 3, 2)]
)
def test_touched_is_the_mean_over_all_routings(experts, active, tokens):
    choices = [set(c) for c in combinations(range(experts), active)]
    visited = [len(set().union(*r)) for r in product(choices, repeat=tokens)]
    expected = np.mean(visited) / experts
    assert float(touched(experts / active, float(tokens))) == pytest.approx(expected, rel=1e-12)


def test_touched_at_the_edges():
    assert float(touched(7.0, 0.0)) == 0.0
    assert float(touched(1.0, 5.0)) == 1.0
    assert jax.grad(ffn.visited_share, (0, 1))(1.0, 5.0) == (0.0, 0.0)
    tiny = ffn.visited_share(jnp.float32(1e12), jnp.float32(3.0))
    assert tiny.dtype == jnp.float32 and float(tiny) == pytest.approx(3e-12, rel=1e-6)


def test_slopes_of_touched_at_ordinary_and_bad_points():
    agree_at(ffn.visited_share, (1.3, 2.0), (8.0, 5.5), (200.0, 64.0))
    finite_at(ffn.visited_share, *product((1.0, 1.0 + 1e-7, 2.0, 1e12), (0.0, 1.0, 1e7)))


def test_gradients_of_sizes():
    def size(layer, width):
        elements = ffn.routed_elements(layer, width) + ffn.common_elements(layer, width)
        return elements / ffn.sparsity(layer) + ffn.router_elements(layer, width)

    agree_at(size, (MIXTURE, 10.0), (MIXTURE.with_(outer_width=5.0), 10.0))
    single = Experts.of(experts=1, active=1, width=4, inward=1)  # no shared expert either
    finite_at(size, (single, 10.0))
    finite_at(lambda layer: ffn.floored_sparsity(layer), (single,))
    assert float(ffn.floored_sparsity(single)) == float(ffn.sparsity(single)) == 1.0
