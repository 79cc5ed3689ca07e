"""Accelerators: data sheets of chips that exist, limits, and slopes of everything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.catalog import load_system
from infer_jax.errors import InputError
from infer_jax.estimators import make
from infer_jax.silicon import accelerator, bill, interfaces, nodes
from infer_jax.silicon.bill import Ownership
from infer_jax.silicon.chips import load_accelerator
from infer_jax.silicon.nodes import values
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


def test_a_limit_throttles_arrays_by_what_each_width_draws_and_nothing_else():
    free, bound = a100(), a100(limit=250)
    both = free.hardware().chip, bound.hardware().chip
    for share, bits in zip(accelerator.sustained_shares(bound), accelerator.WIDTHS, strict=True):
        drawn = accelerator.full_power(bound, bits)
        fixed = float(drawn.static + drawn.memory + drawn.links)
        logic = float(drawn.compute + drawn.operands)
        assert float(share) == pytest.approx(min((250 - fixed) / logic, 1.0), rel=1e-9)
        rates = [float(getattr(x, f"flops_{bits}")) for x in both]
        assert rates[1] / rates[0] == pytest.approx(float(share), rel=1e-9)
    assert float(both[1].memory_bandwidth) == float(both[0].memory_bandwidth)
    # two products of 8 bits draw other watts than one of 16
    wide, narrow = (float(accelerator.full_power(free, x).compute) for x in (16, 8))
    assert 0.5 * wide < narrow < wide


def chiplets(**changes):
    """MI300X: dies of cores on others that hold cache, memory and links."""
    chip = load_accelerator("mi300x").replace(owner=OWNER)
    return chip.replace(**{key: np.asarray(float(x)) for key, x in changes.items()})


def test_memory_and_links_end_on_base_dies():
    chip = chiplets()
    assert float(chip.hardware().chip.memory_bandwidth) == pytest.approx(5.3e12, rel=1e-4)
    assert float(accelerator.link_bandwidth(chip)) == 7 * 64e9
    parts, base = accelerator.die_areas(chip)
    assert chip.memory is not None
    assert float(parts.memory_phy) == float(parts.link_phy) == 0.0 == float(base.cores)
    # eight dies lie on four: of the interposer only these and the stacks take area
    under = 4 * float(base.total) + 8 * float(chip.memory.footprint)
    assert float(accelerator.interposer_area(chip)) == pytest.approx(1.1 * under)
    beside = chip.at({"base.carried": 0.0})
    more = 1.1 * (under + 8 * float(parts.total))
    assert float(accelerator.interposer_area(beside)) == pytest.approx(more)
    assert float(accelerator.bonds(chip)) == 12 and float(accelerator.bonds(beside)) == 20
    on_board = load_accelerator("rubin_cpx")  # sixteen devices of GDDR7
    assert float(accelerator.bonds(on_board)) == 1


def test_a_die_that_does_not_hold_wastes_its_base_and_its_neighbours():
    chip = chiplets()
    sure = chip.at({"assembly.bond": 1.0})
    bases = float(accelerator.logic_price(sure)) - 8 * float(accelerator.good_die_cost(sure))
    assert bases > 0
    whole = float(accelerator.logic_price(sure)) / 0.98**2  # two dies on a base
    assert float(accelerator.logic_price(chip)) == pytest.approx(whole, rel=1e-9)


def test_switches_are_paid_and_powered_by_the_share_that_links_use():
    chip, one = a100(), interfaces.Switch.of(**values("switches", "nvswitch3"))
    with_switch = chip.replace(switch=one)
    assert float(interfaces.switch_share(one, 300e9)) == 12 / 64  # twelve links of 25 GB/s
    own = chip.owner
    price = float(accelerator.chip_bill(chip).total) + 12 / 64 * float(one.price)
    hour = bill.rent(jnp.asarray(price), jnp.asarray(400 + 12 / 64 * 120), own)
    assert float(with_switch.hardware().price) == pytest.approx(float(hour), rel=1e-9)
    assert float(with_switch.hardware().power) == 400


def test_what_the_laws_leave_out_is_a_ratio_of_area_power_and_bill():
    chip = chiplets()
    ratio = accelerator.Unlisted.of(area=1.2, power=1.5, bill=0.9)
    more = chip.replace(unlisted=ratio)
    assert float(accelerator.areas(more).total / accelerator.areas(chip).total) == pytest.approx(
        1.2, rel=1e-9
    )
    assert float(accelerator.board_power(more) / accelerator.board_power(chip)) == 1.5
    parts = accelerator.chip_bill(more.at({"unlisted.bill": 1.0})).total
    assert float(accelerator.chip_bill(more).total / parts) == pytest.approx(0.9, rel=1e-9)


def test_spare_cores_and_whole_dies():
    """108 of 128 cores: nearly all dies sell; all of 128: few. Raw cost bounds both."""
    chip, cost = a100(), [float(accelerator.good_die_cost(a100(active=x))) for x in (108, 127, 128)]
    dies = nodes.dies_per_wafer(accelerator.areas(chip).total, chip.wafer)
    assert float(nodes.die_cost(dies, 1.0, chip.node)) < cost[0] < cost[1] < cost[2]


def parts(chip):
    """Numbers that a chip is chosen by, near 1 to 1,000."""
    sheet = chip.hardware(SMOOTH)
    return (
        sheet.chip.flops_16 / 1e12,
        sheet.price,
        accelerator.areas(chip, SMOOTH).total * 1e6,
        accelerator.embodied_emissions(chip, SMOOTH),
        accelerator.chip_limits(chip, SMOOTH)["edge"].capacity * 1e3,
        accelerator.board_power(chip),
    )


def weighed(chip, *weights):
    """The parts in one program: with one weight of 1 and others of 0 it is one of them."""
    return sum(x * part for x, part in zip(weights, parts(chip), strict=True))


def part_by_part(*chips):
    """Arguments of ``weighed``: of every chip each part alone."""
    return [(chip, *row) for chip in chips for row in np.eye(6)]


def switched(**changes):
    """Chiplets behind a switch: with the chip of one die every part there is."""
    switch = interfaces.Switch.of(**values("switches", "nvswitch3"))
    return chiplets(**changes).replace(switch=switch)


def test_gradients_at_ordinary_points():
    bound = a100(limit=250, active=107.5, voltage=0.6)
    agree_at(weighed, *part_by_part(a100(), bound, switched(limit=500, active=37.5)))


def test_gradients_are_finite_without_dies_stacks_and_links():
    bare = a100(dies=0, stacks=0, active=0, clock=0, limit=0)
    ends = {name: np.asarray(0.0) for name in ("cores", "memories", "links")}
    alone = switched(dies=0, stacks=0).at({"base.buffer": 0.0, "base.memories": 0.0})
    finite_at(weighed, *part_by_part(bare.replace(die=bare.die.replace(**ends)), alone))


def test_one_more_stack_and_a_node_further_have_slopes_through_an_estimator():
    """The elasticity of a token's time goes down to the clock of the arrays and to stacks."""
    from infer_jax.catalog import load_model
    from infer_jax.specs import ForwardPass, Plan

    arch = load_model("llama-3.1-8b").architecture
    work = ForwardPass.of(sequences=8, new_tokens=1, cached_tokens=2048)

    def seconds(chip):
        return make("economics").step(arch, chip.hardware(SMOOTH), work, Plan()).time

    slopes = jax.jit(jax.grad(seconds))(a100())
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
