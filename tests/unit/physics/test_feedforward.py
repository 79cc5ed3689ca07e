"""Dense layers and experts: sizes, and how many experts a batch touches."""

from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics import feedforward as ffn
from infer_jax.specs import Dense, Experts

from .derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")

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
