"""Accelerators: data sheets of chips that exist, limits, and slopes of everything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.catalog import load_system
from infer_jax.errors import InputError
from infer_jax.estimators import make
from infer_jax.silicon import accelerator
from infer_jax.silicon.bill import Ownership
from infer_jax.silicon.chips import load_accelerator
from infer_jax.specs import Hierarchy

from ..physics.derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")
OWNER = Ownership.of(years=4, electricity=0.08, pue=1.25, used=0.8, around=0.5)
SMOOTH = jnp.asarray(1.0)


def a100(**changes):
    """GA100 as LLMCompass describes it, with 108 of 128 cores and 5 of 6 stacks in use."""
    chip = load_accelerator("a100_sxm").replace(owner=OWNER)
    return chip.replace(**{key: np.asarray(float(x)) for key, x in changes.items()})


@pytest.mark.parametrize("name", ["a100_sxm", "h100_sxm"])
def test_the_data_sheet_of_a_chip_that_exists(name):
    chip = load_accelerator(name)
    found, sheet = chip.hardware(), load_system(name).hardware
    assert isinstance(found.network, Hierarchy) and isinstance(sheet.network, Hierarchy)
    for field in ("flops_16", "flops_8", "memory", "memory_bandwidth"):
        printed = float(getattr(sheet.chip, field))
        assert float(getattr(found.chip, field)) == pytest.approx(printed, rel=0.005), field
    assert float(found.network.domain_bandwidth) == float(sheet.network.domain_bandwidth)
    assert float(found.power) == float(sheet.power)
    assert all(float(x.need) <= float(x.capacity) for x in accelerator.chip_limits(chip).values())


def test_a_chip_without_a_row_is_refused():
    with pytest.raises(InputError, match="h100_sxm"):
        load_accelerator("rubin")


def exceeded(chip):
    limits = accelerator.chip_limits(chip)
    return {name for name, x in limits.items() if float(x.need) > float(x.capacity)}


def test_limits_say_what_cannot_be_made_or_cooled():
    twice = a100().replace(die=a100().die.replace(cores=np.asarray(200.0)))
    assert exceeded(twice) == {"reticle"}
    stacks = a100().replace(die=a100().die.replace(memories=np.asarray(14.0)))
    assert "edge" in exceeded(stacks)
    assert exceeded(a100(limit=120)) == {"watts"}
    assert exceeded(a100(active=129, stacks=7)) == {"cores", "stacks"}
    hot = a100().at({"limits.cooled": 300.0})
    assert exceeded(hot) == {"cooling"}


def test_a_limit_throttles_the_arrays_and_nothing_else():
    free, bound = a100(), a100(limit=250)
    share = float(accelerator.sustained_share(bound))
    drawn = accelerator.full_power(bound)
    fixed = float(drawn.static + drawn.memory + drawn.links)
    assert share == pytest.approx((250 - fixed) / float(drawn.compute + drawn.operands), rel=1e-9)
    both = free.hardware().chip, bound.hardware().chip
    assert float(both[1].flops_16 / both[0].flops_16) == pytest.approx(share, rel=1e-9)
    assert float(both[1].memory_bandwidth) == float(both[0].memory_bandwidth)


def test_spare_cores_and_whole_dies():
    """108 of 128 cores: nearly all dies sell; all of 128: few. Raw cost bounds both."""
    cost = [accelerator.good_die_cost(a100(active=x)) for x in (108, 127, 128)]
    assert float(cost[0].raw) < float(cost[0].good) < float(cost[1].good) < float(cost[2].good)


PARTS = {
    "flops": lambda chip: chip.hardware(SMOOTH).chip.flops_16 / 1e12,
    "rent": lambda chip: chip.hardware(SMOOTH).price,
    "area": lambda chip: accelerator.areas(chip, SMOOTH).total * 1e6,
    "carbon": lambda chip: accelerator.embodied_emissions(chip, SMOOTH),
    "edge": lambda chip: accelerator.chip_limits(chip, SMOOTH)["edge"].capacity * 1e3,
}


@pytest.mark.parametrize("name", PARTS)
def test_gradients_at_ordinary_points(name):
    agree_at(PARTS[name], (a100(),), (a100(limit=250, active=107.5, voltage=0.6),))


@pytest.mark.parametrize("name", PARTS)
def test_gradients_are_finite_without_dies_stacks_and_links(name):
    bare = a100(dies=0, stacks=0, active=0, clock=0, limit=0)
    ends = {name: np.asarray(0.0) for name in ("cores", "memories", "links")}
    finite_at(PARTS[name], (bare.replace(die=bare.die.replace(**ends)),))


def test_one_more_stack_and_a_node_further_have_slopes_through_an_estimator():
    """The elasticity of a token's time goes down to the clock of the arrays and to stacks."""
    from infer_jax.catalog import load_model
    from infer_jax.specs import ForwardPass, Plan

    arch = load_model("llama-3.1-8b").architecture
    work = ForwardPass.of(sequences=8, new_tokens=1, cached_tokens=2048)

    def seconds(chip):
        return make("economics").step(arch, chip.hardware(SMOOTH), work, Plan()).time

    slopes = jax.grad(seconds)(a100())
    assert float(slopes.stacks) < 0 and np.isfinite(float(slopes.node.energy))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))


def test_float32_stays_float32():
    def numbers(sheet):
        return jax.tree.leaves((sheet.chip, sheet.network, sheet.price, sheet.power))

    wide = numbers(a100().hardware(SMOOTH))
    with jax.enable_x64(False):
        chip = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), a100())
        narrow = numbers(chip.hardware(jnp.asarray(1.0)))
        assert all(x.dtype == jnp.float32 for x in narrow)
    for a, b in zip(narrow, wide, strict=True):
        assert float(a) == pytest.approx(float(b), rel=1e-4)
