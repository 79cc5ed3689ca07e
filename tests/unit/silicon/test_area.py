"""Areas: slopes, steps, and what more of a thing does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.silicon import area
from infer_jax.silicon.interfaces import interface
from infer_jax.silicon.nodes import node

from ..physics.derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")
CORE = {"lanes": 4, "rows": 16, "columns": 16, "vector": 32, "int32": 16, "fp16": 2, "fp32": 16}
CORE |= {"fp64": 8, "registers": 16384, "buffer": 192 * 1024}


def a_die(shared=48 * 2.0**20, **core):
    one = area.ComputeCore.of(**{**CORE, **core})
    return area.Die.of(cores=128, core=one, buffer=shared, memories=6, links=12)


def ends():
    """HBM2E, NVLink 3 and UCIe."""
    return interface("hbm2e"), interface("nvlink3"), interface("ucie")


def smooth(die, at):
    return area.die_area(die, *ends(), at, jnp.asarray(1.0)).total


def published(die, at):
    return area.die_area(die, *ends(), at).total


@pytest.mark.parametrize("law", [smooth, published])
def test_gradients_are_right_at_ordinary_points(law):
    die = a_die(shared=40.3e6)
    agree_at(law, (die, node("n7")), (die, node("n5")))


def test_gradients_are_finite_where_parts_are_absent():
    none = {"int32": 0, "fp16": 0, "fp32": 0, "fp64": 0, "registers": 0, "rows": 0, "buffer": 0}
    for law in (smooth, published):
        finite_at(law, (a_die(shared=0.0, **none), node("n7")), (a_die(), node("n5")))


def test_a_step_has_no_slope_and_its_ramp_has():
    at, size = node("n7"), 40 * 2.0**20 + 1
    steps = jax.grad(lambda x: area.cache_area(x, at))(size)
    ramp = jax.grad(lambda x: area.cache_area(x, at, jnp.asarray(1.0)))(size)
    assert float(steps) == 0.0 < float(ramp)
    # at whole units both are the same
    for whole in (2.0**19, 2.0**20, 48 * 2.0**20):
        both = area.cache_area(whole, at), area.cache_area(whole, at, jnp.asarray(1.0))
        assert float(both[0]) == pytest.approx(float(both[1]), rel=1e-4)


def test_share_of_cells_is_the_table_at_powers_of_two_and_that_of_the_next_between():
    for i, share in enumerate(area.EFFICIENCY):
        assert float(area.cache_efficiency(4096.0 * 2**i)) == pytest.approx(share, rel=1e-12)
    assert float(area.cache_efficiency(192 * 1024.0)) == area.EFFICIENCY[6]
    assert float(area.cache_efficiency(1.0)) == area.EFFICIENCY[0]


def test_units_by_bits_of_mantissa():
    assert float(area.float_transistors(52.0)) == 685_300
    ratio = area.float_transistors(10.0) / area.float_transistors(23.0)
    assert float(ratio) == pytest.approx((10 / 23) ** 2, rel=1e-12)


def test_phys_do_not_shrink_and_logic_does():
    old, new = (area.die_area(a_die(), *ends(), node(name)) for name in ("n7", "n5"))
    assert float(old.memory_phy) == float(new.memory_phy)
    shrink = float(node("n7").transistors / node("n5").transistors)
    assert float(new.crossbar / old.crossbar) == pytest.approx(shrink, rel=1e-12)


def test_float32_stays_float32():
    with jax.enable_x64(False):
        die, at = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (a_die(), node("n7")))
        found = smooth(die, at)
        assert found.dtype == jnp.float32
    assert float(found) == pytest.approx(float(smooth(a_die(), node("n7"))), rel=1e-5)
    assert np.isfinite(float(found))


def test_narrow_products_of_their_own_take_area_and_halves_of_wide_ones_none():
    """Of H100's arrays units of 8 bits by themselves would add a third, and of 4 bits as much."""
    at, parts = node("n5"), area.Transistors()
    shared = area.ComputeCore.of(**CORE)
    own = shared.replace(separate=np.asarray(1.0))
    none = own.replace(products_8=np.asarray(0.0), products_4=np.asarray(0.0))
    wide, both = (float(area.array_area(x, parts, at)) for x in (shared, own))
    assert float(area.array_area(none, parts, at)) == wide
    each = 2 * 4727 + 2 * 2341
    assert both / wide == pytest.approx(1 + each / float(area.float_transistors(10)), rel=1e-12)
    agree_at(lambda core: area.array_area(core, parts, at) * 1e6, (own,))


def test_a_die_without_memory_beside_it_is_plain_sram():
    die, at = a_die(shared=0.0), node("n7")
    alone = area.die_area(die, None, *ends()[1:], at)
    assert float(alone.memory_phy) == float(alone.memory_control) == float(alone.buffer) == 0.0
    held = float(area.sram_area(die.core.buffer, at))
    less = held - float(area.cache_area(die.core.buffer, at))
    beside = float(area.die_area(die, *ends(), at).cores)
    assert float(alone.cores) == pytest.approx(beside + 128 * less, rel=1e-12)
