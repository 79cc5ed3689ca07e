"""The table of layers: numbers worked by hand, each block charged as what it is."""

import jax
import jax.numpy as jnp
import pytest

from infer_jax.catalog import load_model, load_system
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.kernels.coefficients import KernelsPlan
from infer_jax.physics import attention, layers
from infer_jax.physics.attention.row import Launches
from infer_jax.specs import (
    Architecture,
    Block,
    Dense,
    Experts,
    ForwardPass,
    GroupedQuery,
    Linear,
)

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


def model(*blocks: Block) -> Architecture:
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
    row = layers.rows(model(FULL))[0].attention
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
        return estimator.step(model(*blocks), system.hardware, forward, plan).time

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
    row = layers.rows(model(RECURRENT))[0].attention

    def fill(new, tile):
        return row.tile_fill(new, jnp.asarray(1.0), tile)

    for at in ((1.0, 64.0), (0.0, 64.0)):
        value, slopes = jax.value_and_grad(fill, argnums=(0, 1))(*map(jnp.asarray, at))
        assert (float(value), *map(float, slopes)) == (1.0, 0.0, 0.0)
