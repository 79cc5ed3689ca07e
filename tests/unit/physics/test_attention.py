"""What an attention layer holds, reads and computes, for each kind, at points worked by hand."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from infer_jax.catalog import load_model
from infer_jax.physics import attention as att, decoder, matmul
from infer_jax.physics.attention.causal_pairs import every_pair
from infer_jax.specs import (
    UNBOUNDED,
    Compressed,
    Format,
    GroupedQuery,
    KimiDelta,
    Latent,
    Linear,
    Sparse,
    StateSpace,
)

from .derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")

CACHE = Format.of(bytes=2.0, bits=16)
GROUPED = GroupedQuery.of(query_heads=32, kv_heads=8, head_width=128, value_width=128)
WINDOWED = GROUPED.with_(window=100.0)
LATENT = Latent.of(
    query_heads=128, nope_width=128, rope_width=64, value_width=128, kv_rank=512, query_rank=1536
)
DELTA = Linear.of(key_heads=2, key_width=3, value_heads=4, value_width=5, conv_width=4)
MAMBA = DELTA.with_(head_gates=1, delta=0.0)
SELECTIVE = StateSpace.of(channels=8192, state_width=16, step_rank=256)  # Jamba's
KIMI = KimiDelta.of(heads=32, head_width=128, gate_rank=128)  # Kimi Linear's
INDEX = {"top_k": 2048, "index_heads": 64, "index_width": 128}
SPARSE = Sparse.of(base=LATENT, index_query_input=1536, **INDEX)
SPARSE_GROUPED = Sparse.of(base=GROUPED, index_query_input=4096, **INDEX)
CHOSEN = Compressed.of(  # DeepSeek-V4-Flash: entries of 4 tokens, 512 of them chosen
    query_heads=64, head_width=512, query_rank=1024, output_groups=8, output_rank=1024,
    window=128, ratio=4, overlap=2, top_k=512, index_heads=64, index_width=128,
)  # fmt: skip
POOLED = CHOSEN.with_(ratio=128.0, overlap=1.0, top_k=UNBOUNDED, index_heads=0.0, index_width=0.0)
NEAR = POOLED.with_(ratio=0.0)
ALL = (
    GROUPED, WINDOWED, LATENT, DELTA, MAMBA, SELECTIVE, KIMI,
    SPARSE, SPARSE_GROUPED, CHOSEN, POOLED, NEAR,
)  # fmt: skip
pairs = jax.jit(att.pairs)


def number(x) -> float:
    """A scalar as a Python float."""
    return float(jnp.asarray(x))


def core(attention, new: float, cached: float) -> float:
    """Core FLOP as a Python float."""
    return number(att.of(attention).core_flops(jnp.asarray(new), jnp.asarray(cached)))


def held(attention, context: float) -> float:
    """Cached bytes as a Python float."""
    return number(att.of(attention).held_bytes(CACHE, jnp.asarray(context)))


def read(attention, context: float) -> float:
    """Cache traffic as a Python float."""
    return number(att.of(attention).read_bytes(CACHE, jnp.asarray(context)))


@pytest.mark.parametrize(
    ("attention", "width", "expected"),
    [
        (GROUPED.with_(kv_matrices=1.0), 4096, 4096 * 5120 + 4096 * 4096),
        (GROUPED.with_(kv_matrices=0.0), 4096, 4096 * 4096 * 2),
        (SELECTIVE, 4096, 8192 * (2 * 4096 + 256 + 2 * 16 + 256 + 4096)),
        (KIMI, 2304, 2304 * (4 * 4096 + 32) + 2 * 128 * (2304 + 4096)),
    ],
)
def test_projections_by_hand(attention, width, expected):
    """Of kinds that the referee of tests/referee does not compute."""
    built = att.of(attention).matrices(jnp.asarray(float(width)))
    assert number(matmul.elements(built)) == expected


def test_convolutions_and_widths_by_hand():
    assert number(att.of(DELTA).convolution) == (2 * 6 + 20) * 4
    assert number(att.of(GROUPED).convolution) == 0
    assert number(att.of(GROUPED).output_width) == 6144
    assert number(att.of(LATENT).output_width) == 128 * (192 + 128 + 128)
    assert number(att.of(DELTA).output_width) == 2 * 6 + 2 * 20 + 8
    assert number(att.of(SPARSE).output_width) == number(att.of(LATENT).output_width)
    assert att.of(SPARSE).weights is SPARSE.base.weights


def test_traffic_by_hand():
    for attention in (GROUPED, WINDOWED, LATENT):
        assert read(attention, 500) == held(attention, 500)
    assert read(DELTA, 500) == 2 * held(DELTA, 500)  # the state is written back
    assert read(SPARSE, 3000) == (2048 * 576 + 3000 * 128) * 2
    assert read(SPARSE, 1000) == held(SPARSE, 1000)


def test_keys_that_are_values_and_keys_of_another_layer():
    """One matrix is cached once; a layer without its own holds nothing, yet reads as others."""
    assert held(WINDOWED.with_(kv_matrices=1.0), 50) == 50 * 8 * 128 * 2
    assert read(WINDOWED.with_(kv_matrices=1.0), 50) == 50 * 8 * 128 * 2
    assert held(WINDOWED.with_(kv_matrices=0.0), 50) == 0
    assert read(WINDOWED.with_(kv_matrices=0.0), 500) == read(WINDOWED, 500) > 0


# whole tokens: between them the closed form interpolates
@given(st.integers(0, 100_000), st.integers(0, 100_000), st.integers(0, 300_000))
@example(new=9, cached=0, window=0)
def test_pairs_are_the_sum_over_positions(new, cached, window):
    positions = np.arange(cached + 1, cached + new + 1)
    assert float(pairs(float(new), float(cached), float(window))) == pytest.approx(
        np.minimum(positions, window).sum(), rel=1e-12
    )
    assert every_pair(jnp.asarray(float(new)), jnp.asarray(float(cached))) == positions.sum()


def test_slopes_of_pairs_in_float32():
    """d/ds (s c + s (s + 1) / 2), d/dc, and of an unbounded window d/dw, which is none."""
    for new, cached in ((7.0, 5000.0), (0.0, 3.0), (0.0, 0.0)):
        slopes = jax.grad(every_pair, (0, 1))(jnp.float32(new), jnp.float32(cached))
        assert [float(x) for x in slopes] == [cached + new + 0.5, new]
    slopes = jax.grad(att.pairs, (0, 1, 2))(*(jnp.float32(x) for x in (7.0, 5000.0, UNBOUNDED)))
    assert [float(x) for x in slopes] == [5007.5, 7.0, 0.0]


def test_compressed_by_hand():
    """A window as it is, entries of the whole context, index keys of each entry."""
    assert held(CHOSEN, 4000) == (128 + 1000) * 512 * 2 + 1000 * 128 * 2
    assert held(CHOSEN, 100) == (100 + 25) * 512 * 2 + 25 * 128 * 2
    assert held(POOLED, 12800) == (128 + 100) * 512 * 2
    assert held(NEAR, 1e6) == 128 * 512 * 2
    assert read(CHOSEN, 4000) == (128 + 512) * 512 * 2 + 1000 * 128 * 2  # 512 of 1000 entries
    assert read(POOLED, 12800) == held(POOLED, 12800)
    pair = 4 * 64 * 512
    assert core(NEAR, 1, 9999) == pair * 128
    assert core(POOLED, 1, 12799) == pair * (128 + 100)
    assert core(CHOSEN, 1, 3999) == pair * (128 + 512) + 2 * 64 * 128 * 1000


def test_selective_states_by_hand():
    """In a model of 16 bits vLLM keeps (3 + 16) x 8192 numbers of two bytes, at any context."""
    assert held(SELECTIVE, 0) == held(SELECTIVE, 1e6) == 8192 * (3 + 16) * 2
    assert read(SELECTIVE, 500) == 2 * held(SELECTIVE, 500)
    assert core(SELECTIVE, 6, 1000) == 6 * 8192 * (7 * 16 + 2 * 4)
    of_rank = att.of(att.of(SELECTIVE).of_rank(jnp.asarray(8.0)))
    assert number(of_rank.held_bytes(CACHE, jnp.asarray(1.0))) == 1024 * (3 + 16) * 2
    row = att.of(SELECTIVE).numbers(CACHE, CACHE)
    assert number(row.state_bytes(jnp.asarray(8.0))) == 1024 * 19 * 2


def test_kimi_delta_states_by_hand():
    """32 states of 128 x 128 in 32 bits, three inputs of each of three convolutions in 16."""
    assert held(KIMI, 0) == held(KIMI, 1e6) == 32 * 128 * 128 * 4 + 3 * 4096 * 3 * 2
    assert read(KIMI, 500) == 2 * held(KIMI, 500)
    assert core(KIMI, 6, 1000) == 6 * (7 * 32 * 128 * 128 + 2 * 3 * 4096 * 4)
    assert number(att.of(KIMI).convolution) == 3 * 4096 * 4
    dealt = att.of(KIMI).dealt(jnp.asarray(2304.0))
    assert number(dealt.copied) == 2 * 128 * 2304  # each rank needs all of the low rank
    of_rank = att.of(att.of(KIMI).of_rank(jnp.asarray(8.0))).matrices(jnp.asarray(2304.0))
    assert number(matmul.elements(of_rank)) == number(dealt.split) / 8 + number(dealt.copied)


def test_a_million_tokens_of_kimi_linear():
    """A quarter of the cache of latent attention on all layers (arXiv 2510.26692, abstract)."""
    arch = load_model("kimi-linear-48b-a3b").architecture
    states = 20 * (32 * 128 * 128 * 4 + 3 * 4096 * 3 * 2)
    keys = number(decoder.cache_bytes(arch, jnp.asarray(2.0**20))) - states
    assert keys == 7 * 576 * 2 * 2**20
    assert 1 - (keys + states) / (27 * 576 * 2 * 2**20) == pytest.approx(0.75, abs=0.015)


def test_a_quarter_million_tokens_of_jamba():
    """4 GB of keys and values in 16 bits (arXiv 2403.19887, Table 1), and 28 states beside."""
    arch = load_model("jamba-v0.1").architecture
    states = 28 * 8192 * (3 + 16) * 2
    keys = number(decoder.cache_bytes(arch, jnp.asarray(2.0**18))) - states
    assert keys / 2**30 == 4
    assert states / keys < 0.003


def test_rows_say_what_layers_do():
    """Serving reads rows: bytes and FLOP of one decoded token, by row and by layer."""
    arch = load_model("deepseek-v4-flash").architecture
    for attention in ALL:
        layer, context = att.of(attention), 5000.0
        row = layer.numbers(arch.cache, arch.activations)
        tokens = min(context, float(row.window), float(row.top_k))
        near = min(context, float(row.near))
        cached = tokens * row.cache + near * row.near_cache + context * row.index
        moved = layer.read_bytes(arch.cache, jnp.asarray(context))
        if float(row.state) == 0:
            assert number(cached) == pytest.approx(number(moved), rel=1e-12)
        scored = tokens * row.absorbed + near * row.near_flops + context * row.indexing
        assert number(scored + row.recurring) == pytest.approx(core(attention, 1, context - 1))


# https://vllm.ai/blog/deepseek-v4 and the table made from it (r/LocalLLaMA, 2026-04-26): GiB of
# a KV cache in 16 bits at 2^20 tokens
@pytest.mark.parametrize(("name", "gib"), [("deepseek-v4-flash", 6.72), ("deepseek-v4-pro", 9.62)])
def test_a_million_tokens_of_deepseek_v4(name, gib):
    arch = load_model(name).architecture
    assert round(number(decoder.cache_bytes(arch, jnp.asarray(2.0**20))) / 2**30, 2) == gib


def test_published_core_counts_the_cache_alone():
    def published(attention, new, cached):
        return number(att.of(attention).absorbed_flops(jnp.asarray(new), jnp.asarray(cached)))

    assert published(GROUPED, 3.0, 10.0) == 4 * 128 * 32 * 10 * 3
    assert published(WINDOWED, 3.0, 1000.0) == 4 * 128 * 32 * 100 * 3
    assert published(LATENT, 2.0, 10.0) == 2 * 128 * (2 * 512 + 64) * 10 * 2
    assert published(DELTA, 2.0, 10.0) == core(DELTA, 2, 10)
    assert published(SPARSE, 2.0, 10.0) == core(SPARSE, 2, 10)


def everything(attention, cache, new, cached, width):
    """One number that every law of a layer enters."""
    context = new + cached
    layer = att.of(attention)
    sizes = matmul.elements(layer.matrices(width)) + layer.convolution
    moved = layer.held_bytes(cache, context) + layer.read_bytes(cache, cached)
    return sizes + moved + layer.core_flops(new, cached) + layer.output_width


def test_gradients():
    agree_at(everything, *((attention, CACHE, 7.3, 3001.7, 640.0) for attention in ALL))


def test_finite_at_bad_points_ties_and_empty_matrices():
    bare = SPARSE.with_(top_k=0.0, index_heads=0.0, index_width=0.0)
    ties = (
        (WINDOWED, 10.0, 90.0),  # the window ends with the context
        (WINDOWED, 10.0, 100.0),  # it ends with the cache
        (WINDOWED.with_(window=0.0), 3.0, 5.0),
        (GROUPED.with_(kv_matrices=0.0), 3.0, 5.0),
        (GROUPED.with_(kv_matrices=1.0), 3.0, 5.0),
        (LATENT.with_(query_rank=0.0), 3.0, 5.0),
        (LATENT.with_(query_heads=0.0), 3.0, 5.0),  # absorbed and expanded tie at nothing
        (SPARSE, 48.0, 2000.0),  # the top k ends with the context
        (bare, 3.0, 5.0),
        (DELTA.with_(conv_width=1.0, key_heads=0.0), 3.0, 5.0),
        (CHOSEN, 48.0, 2000.0),  # the chosen entries end with the context
        (CHOSEN.with_(window=0.0, top_k=0.0), 3.0, 5.0),
    )
    bad = product(ALL, ((0.0, 0.0), (1.0, 0.0), (0.0, 10.0), (1.0, 2.0**30)))
    points = [*((attention, *tokens) for attention, tokens in bad), *ties]
    finite_at(everything, *((attention, CACHE, *at, 64.0) for attention, *at in points))
