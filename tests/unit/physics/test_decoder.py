"""Whole decoders: published sizes, and sums over blocks worked by hand."""

from itertools import product

import jax.numpy as jnp
import pytest

from infer_jax.catalog import load_model
from infer_jax.physics import decoder
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
