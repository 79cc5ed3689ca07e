"""The table of layers, and whole decoders: published sizes, and numbers worked by hand."""

from itertools import product

import jax
import jax.numpy as jnp
import pytest

from infer_jax.catalog import load_model, load_system
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.kernels.coefficients import KernelsPlan
from infer_jax.physics import attention, decoder, layers
from infer_jax.physics.attention.row import Launches
from infer_jax.specs import (
    Architecture,
    Block,
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


def test_cache_by_hand():
    arch, state = mixed(), 3 * (3 * 10 * 4 + 19 * 3 * 2)
    assert float(decoder.cache_bytes(arch, jnp.asarray(5.0))) == 2 * 5 * 12 * 2 + state
    assert float(decoder.cache_bytes(arch, jnp.asarray(9.0))) == 2 * 7 * 12 * 2 + state
    assert float(decoder.cache_reads(arch, jnp.asarray(9.0))) == 2 * 7 * 12 * 2 + 2 * state


def test_resident_caches():
    arch, stages = mixed(), jnp.asarray(4.0)
    forward = ForwardPass.of(sequences=8, new_tokens=2, cached_tokens=3)
    after, before = (8.0 * decoder.cache_bytes(arch, jnp.asarray(c)) for c in (5.0, 3.0))
    assert decoder.resident_bytes(arch, forward, stages) == after
    assert decoder.resident_before(arch, forward, stages) == before
    assert decoder.resident_micro_batch(arch, forward, stages) == before / 4


def everything(arch, context):
    """One number that every law of a decoder enters."""
    sizes = decoder.total(decoder.weight_bytes(arch).values()) + decoder.active_parameters(arch)
    return sizes + decoder.cache_bytes(arch, context) + decoder.cache_reads(arch, context)


def test_gradient_and_bad_points():
    agree_at(everything, (mixed(), 5.3))
    empty = Architecture.of(width=0, vocabulary=0, tied=0.0, blocks=())
    finite_at(everything, *product((mixed(), empty), (0.0, 7.0, 2.0**40)))
