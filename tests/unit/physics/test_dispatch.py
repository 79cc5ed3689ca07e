"""Tokens on their way to experts on other nodes: against published kernels and drawn tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics import routing
from infer_jax.physics.network import dispatch
from infer_jax.physics.network.switch_collectives import Wire

from .derivatives import agree_at, finite_at

SHARE = 0.83  # of a link's rate
# H800: 8 GPUs a node at 200 GB/s, 50 GB/s each beyond it
H800 = Wire(*map(jnp.asarray, (1e-6, SHARE * 200e9, 4e6, 8.0, SHARE * 50e9)))
WIDTH, COPIES = 7168.0, jnp.asarray(8.0)
# deepseek-ai/DeepEP at 0297fc8, docs/legacy.md: us of dispatch (FP8), combine (BF16), 128 tokens
LOW_LATENCY = ((16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369), (256, 194, 360))
# and GB/s of both over InfiniBand, of 4096 tokens in at most 4 nodes, counting those that stay
NORMAL = ((32, 58, 57), (64, 51, 50))


def sizes(tokens):
    sent = tokens * WIDTH * dispatch.sent_bytes(jnp.asarray(8.0))
    return jnp.asarray([sent, tokens * WIDTH * dispatch.COMBINED])


@pytest.mark.parametrize(("ranks", *"dc"), LOW_LATENCY)
def test_low_latency_kernels_take_as_long_as_published(ranks, d, c):
    got = dispatch.low_latency(jnp.asarray(float(ranks)), COPIES, sizes(128.0), H800)
    np.testing.assert_allclose(got, [d * 1e-6, c * 1e-6], rtol=0.13)


@pytest.mark.parametrize(("ranks", *"dc"), NORMAL)
def test_normal_kernels_reach_the_published_bandwidth(ranks, d, c):
    size, nodes = sizes(4096.0), 4.0
    took = dispatch.normal(jnp.asarray(float(ranks)), COPIES, size, H800, jnp.asarray(nodes))
    visited = nodes * (1.0 - (1.0 - 1.0 / nodes) ** 8)
    np.testing.assert_allclose(visited * size / took / 1e9, [d, c], rtol=0.1)


@pytest.mark.parametrize(("nodes", "most"), [(4, 4), (8, 4), (8, 99), (2, 1)])
def test_nodes_visited_are_those_that_drawn_tokens_visit(nodes, most):
    """A token of a random node, ``most`` nodes for it at random, 8 experts at random on these."""
    rng, seen = np.random.default_rng(0), []
    for _ in range(4000):
        allowed = rng.permutation(nodes)[: min(most, nodes)]
        seen.append(len(set(rng.choice(allowed, 8)) - {rng.integers(nodes)}))
    wire = Wire(*map(jnp.asarray, (0.0, 1e30, 4e6, 8.0, 1.0)))
    one = jnp.asarray(1.0)
    got = dispatch.normal(jnp.asarray(8.0 * nodes), COPIES, one, wire, jnp.asarray(float(most)))
    assert float(got) == pytest.approx(np.mean(seen), rel=0.03)


def packed(popularity, copies, places):
    """Busiest place of copies given one by one to the most loaded expert, then packed greedily."""
    count = np.ones(len(popularity), int)
    for _ in range(copies):
        count[np.argmax(popularity / count)] += 1
    loads = np.sort(np.repeat(popularity / count, count))[::-1]
    slots, filled, held = len(loads) // places, np.zeros(places), np.zeros(places, int)
    for load in loads:
        free = np.flatnonzero(held < slots)
        place = free[np.argmin(filled[free])]
        filled[place], held[place] = filled[place] + load, held[place] + 1
    return filled.max() / filled.mean()


@pytest.mark.parametrize("places", [32, 72, 144, 288])
def test_copies_of_popular_experts_balance_places(places):
    """deepseek-ai/EPLB's greedy copies and packing, of DeepSeek's 256 experts with 32 copies."""
    popularity = ((np.arange(256) + 0.5) / 256) ** -0.7
    got = routing.replicated_load(*map(jnp.asarray, (256.0, 32.0, float(places), 0.7)))
    assert float(got) == pytest.approx(packed(popularity, 32, places), rel=0.06)


@pytest.mark.usefixtures("x64")
def test_slopes_are_differences_and_finite_at_the_ends():
    def normal(ranks, copies, size, nodes):
        return dispatch.normal(ranks, copies, size, H800, nodes)

    def quick(ranks, copies, size, crowd):
        return dispatch.low_latency(ranks, copies, size, H800, crowd)

    ends = (1.0, 8.0, 0.0, 1.0), (8.0, 8.0, 1e6, 1.0), (64.0, 1.0, 1e12, 1.0)
    agree_at(normal, (40.0, 6.0, 1e6, 3.0))
    finite_at(normal, *ends)
    agree_at(quick, (40.0, 6.0, 1e6, 1.3))
    finite_at(quick, *ends)
    agree_at(routing.replicated_load, (256.0, 32.0, 200.0, 0.6))
    ends = (256.0, 0.0, 32.0, 0.7), (256.0, 32.0, 32.0, 0.0), (8.0, 8.0, 1.0, 0.95)
    finite_at(routing.replicated_load, *ends)
    assert np.all(jax.vmap(routing.replicated_load)(*np.array(ends).T) >= 1.0)
