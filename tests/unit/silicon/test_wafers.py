"""Yields and wafers against closed forms, simulation and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from infer_jax.silicon import nodes
from infer_jax.silicon.nodes import node

from ..physics.derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")
MM2 = 1e-6


def test_clusters_without_end_are_poisson():
    expected = jnp.asarray(0.9)
    many = nodes.clustered_yield(expected, 1e9)
    assert float(many) == pytest.approx(np.exp(-0.9), rel=1e-8)
    assert float(nodes.clustered_yield(expected, 1.0)) == pytest.approx(1 / 1.9, rel=1e-12)


@pytest.mark.parametrize(
    ("cores", "spare", "good"), [(144, 12, 0.97), (16, 0, 0.9), (132, 40, 0.7)]
)
def test_harvest_is_the_binomial_distribution(cores, spare, good):
    found = nodes.harvested_yield(jnp.asarray(good), float(cores), float(spare))
    assert float(found) == pytest.approx(stats.binom.cdf(spare, cores, 1 - good), rel=1e-9)


def test_harvest_between_whole_numbers_is_on_a_line():
    low, half, high = (
        float(nodes.harvested_yield(jnp.asarray(0.95), 64.0, k)) for k in (3.0, 3.5, 4.0)
    )
    assert half == pytest.approx(0.5 * (low + high), rel=1e-12)
    assert float(nodes.harvested_yield(jnp.asarray(1.0), 64.0, 0.0)) == pytest.approx(1.0)


def test_harvest_by_simulation():
    draw = np.random.default_rng(0)
    works = (draw.random((200_000, 40)) < 0.9).sum(axis=1) >= 36
    found = nodes.harvested_yield(jnp.asarray(0.9), 40.0, 4.0)
    assert float(found) == pytest.approx(works.mean(), abs=0.005)


def good_die(area, at, wafer):
    dies, works = nodes.dies_per_wafer(area, wafer), nodes.die_yield(area, at, wafer)
    return nodes.die_cost(dies, works, at)


def test_gradients_of_yields_and_dies():
    agree_at(nodes.clustered_yield, (0.9, 10.0), (0.01, 3.0))
    agree_at(nodes.harvested_yield, (0.95, 144.0, 12.3), (0.8, 20.0, 2.5))
    finite_at(nodes.harvested_yield, (0.0, 144.0, 12.0), (1.0, 144.0, 0.0), (0.9, 8.0, 8.0))
    finite_at(nodes.clustered_yield, (0.0, 10.0), (1e4, 3.0))
    agree_at(good_die, (800 * MM2, node("n5"), nodes.Wafer()))
    ends = ((0.0, node("n5"), nodes.Wafer()), (0.07, node("n5"), nodes.Wafer()))
    finite_at(good_die, *ends, (0.0, node("n5"), nodes.Wafer.of(margin=0.0, scribe=0.0)))


def test_a_die_as_large_as_a_wafer_is_one():
    assert float(nodes.dies_per_wafer(jnp.asarray(46_225 * MM2), nodes.Wafer())) == 1.0


def test_more_defects_and_dearer_wafers_cost_more():
    def by(name):
        return jax.grad(lambda x: good_die(4e-4, node("n5").replace(**{name: x}), nodes.Wafer()))

    assert float(by("defects")(1100.0)) > 0 and float(by("wafer")(16988.0)) > 0
