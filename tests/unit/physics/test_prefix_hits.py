"""Tokens of prompts that a cache of prefixes finds, against closed forms."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics.scheduling import prefix_cache
from tests.unit.physics.derivatives import agree_at, finite_at, numbers

pytestmark = pytest.mark.usefixtures("x64")


def test_a_cache_for_everything_finds_all_and_host_memory_what_the_device_gave_up():
    asked, told, gap = numbers(100.0, 300.0, 20.0)
    chat = prefix_cache.conversation(jnp.asarray(0.5), 4, asked, told, gap)
    found = prefix_cache.hits(chat, jnp.asarray(1e9))
    # turns 2, 3 and 4 find 400, 800 and 1200 tokens
    assert float(found.device) == pytest.approx(0.5 * 2400, rel=1e-6)
    room = jnp.asarray(3000.0)
    two, one = prefix_cache.hits(chat, room, 2 * room), prefix_cache.hits(chat, 3 * room)
    assert float(two.device + two.host) == pytest.approx(float(one.device), rel=1e-9)
    assert float(two.host) > 0


def test_shared_prompts_are_found_as_che_says():
    """Equal popularity and room for half: e^(-T / z) = 1/2 solves the equation of Che."""
    rates, tokens = jnp.full((10,), 0.2), jnp.full((10,), 1000.0)
    uses = prefix_cache.system_prompts(rates, tokens, jnp.asarray(0.0))
    found = prefix_cache.hits(uses, jnp.asarray(5000.0))
    assert float(found.device) == pytest.approx(0.5 * 2000.0, rel=1e-6)
    assert float(found.stays) == pytest.approx(5.0 * math.log(2.0), rel=1e-6)


def test_more_room_finds_more_and_slopes_are_right():
    def found(rate, gap, room):
        chat = prefix_cache.conversation(rate, 4, jnp.asarray(100.0), jnp.asarray(300.0), gap)
        tree = prefix_cache.tree(rate, 2, jnp.asarray(3.0), jnp.asarray(500.0), gap)
        return prefix_cache.hits(prefix_cache.join_uses(chat, tree), room).device

    agree_at(found, (0.5, 20.0, 9000.0))
    ratios = [float(found(*numbers(0.5, 20.0, r))) for r in np.geomspace(100, 1e6, 9)]
    assert ratios == sorted(ratios)
    finite_at(found, (0.5, 20.0, 0.0), (0.5, 20.0, 1e12))
