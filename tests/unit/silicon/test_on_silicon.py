"""Estimators on silicon: limits, counted hours, mixtures, descriptions, and searches over chips."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.catalog import load_model
from infer_jax.errors import InputError
from infer_jax.estimators import make
from infer_jax.silicon import accelerator as laws
from infer_jax.silicon.chips import describes_silicon, known_chips, load_accelerator, load_silicon
from infer_jax.silicon.interfaces import RETICLE
from infer_jax.silicon.mixture import Case, Mixture, MixtureEstimate
from infer_jax.silicon.on_silicon import OnSilicon, hourly_emissions, hourly_energy
from infer_jax.silicon.spread import Ratio, draw_chips
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps.toml import read_space

from ..physics.derivatives import agree_at

pytestmark = pytest.mark.usefixtures("x64")
IDEAL = make("economics.planned")


def arch():
    return load_model("llama-3.1-8b").architecture


def work(**changes):
    return Workload.of(**{"isl": 1024, "osl": 128, "batch": 8, **changes})


def test_an_estimate_on_silicon_is_that_of_its_data_sheet_within_its_limits():
    chip = load_accelerator("h100_sxm")
    own = OnSilicon.of(target=IDEAL).estimate(arch(), chip, work(), Plan.of())
    sheet = chip.hardware(jnp.asarray(1.0))
    plain = IDEAL.estimate(arch(), sheet, work(), Plan.of())
    assert float(own.tpot) == float(plain.tpot) and float(own.cost) == float(plain.cost)
    assert bool(own.feasible)
    large = chip.at({"die.cores": 200.0})
    broken = OnSilicon.of(target=IDEAL).estimate(arch(), large, work(), Plan.of())
    assert not bool(broken.feasible)
    assert float(broken.decode.limits["reticle"].shortfall) > 0


@pytest.mark.parametrize("counted", ["USD", "J", "kg"])
def test_an_hour_is_counted_in_money_joules_or_emissions(counted):
    chip = load_accelerator("h100_sxm").at(
        {"owner.pue": 1.3, "owner.used": 0.7, "owner.around": 0.5}
    )
    law = OnSilicon.of(target=IDEAL, counted=counted)
    found = law.estimate(arch(), chip, work(), Plan.of())
    by_hand = {
        "USD": float(chip.hardware(jnp.asarray(1.0)).price),
        "J": 3600 * 700 * 1.3,
        # electricity at the world's mean, and what was emitted in making it over the hours sold
        "kg": 0.301 * 0.7 * 1.3
        + float(laws.embodied_emissions(chip, jnp.asarray(1.0))) / (4 * 8766 * 0.7),
    }[counted]
    seconds = float(found.tpot) / 8 * 1e6
    assert float(found.cost) == pytest.approx(by_hand * seconds / 3600, rel=1e-9)


def test_hours_have_slopes():
    chip = load_accelerator("a100_sxm").at({"owner.used": 0.7})
    agree_at(hourly_energy, (chip,))
    agree_at(lambda x: hourly_emissions(x, jnp.asarray(1.0)), (chip,))


def test_slopes_of_a_mixture_on_silicon_are_finite_and_right():
    chip = load_accelerator("h100_sxm").at({"active": 120.5, "limit": 450.0})
    case = Case.of(arch=arch(), workload=work(isl=4000), tpot=0.05)
    model = OnSilicon.of(target=Mixture.of(target=IDEAL, cases=(case,)))

    def cost(active, stacks, limit):
        there = chip.at({"active": active, "stacks": stacks, "limit": limit})
        found = model.estimate(arch(), there, work(), Plan.of())
        assert isinstance(found, MixtureEstimate)
        return found.total

    agree_at(cost, (jnp.asarray(120.5), jnp.asarray(4.5), jnp.asarray(450.0)))


DESCRIPTION = """
title = "H100 with HBM4 at 3 nm"
silicon = "h100_sxm"
node = "n3"
limit_w = 900
clock_ghz = 2
[memory]
kind = "hbm4"
[die]
buffer_mib = 100
"""


def written(folder, text, name="my.toml"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_description_starts_from_a_chip_and_changes_its_parts(tmp_path):
    path = written(tmp_path, DESCRIPTION)
    assert describes_silicon(path) and not describes_silicon("h100_sxm")
    chip, base = load_accelerator(path), load_accelerator("h100_sxm")
    assert float(chip.limit) == 900 and float(chip.clock) == 2e9
    assert float(chip.die.buffer) == 100 * 2**20
    assert float(chip.node.transistors) == 221e12
    assert chip.memory is not None and float(chip.memory.interface.lanes) == 2048
    assert float(chip.die.cores) == float(base.die.cores)
    with pytest.raises(InputError, match="load_silicon"):
        ij.load_system(path)
    system = load_silicon(path)
    assert float(system.hardware.chip.memory) == 5 * 36e9
    assert system.coefficients == ij.load_system("h100_sxm").coefficients
    further = written(tmp_path, 'silicon = "my.toml"\nstacks = 6\n', "next.toml")
    assert float(load_accelerator(further).stacks) == 6
    assert load_silicon(further).hardware.chip.memory == 6 * 36e9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "silicon"),
        ('silicon = "h101"\n', "h100_sxm"),
        ('silicon = "h100_sxm"\nnode = "n1"\n', "n3"),
        ('silicon = "h100_sxm"\nnode = "n10"\n', "n7"),
        ('silicon = "h100_sxm"\ncores = 3\n', "active"),
        ('silicon = "h100_sxm"\nactive = "many"\n', "a number"),
        ('silicon = "h100_sxm"\nactive = -1\n', "active"),
        ('silicon = "h100_sxm"\n[die]\ncores = 200\n', "limits.die_mm2"),
        ('silicon = "h100_sxm"\nstacks = 7\n', "die.memories"),
        ('silicon = "h100_sxm"\n[die]\nmemories = 12\n', "edge"),
        ('silicon = "h100_sxm"\nactive = 145\n', "die.cores"),
        ('silicon = "h100_sxm"\nlimit_w = 100\n', "limit_w"),
        ('silicon = "h100_sxm"\n[limits]\ncooled_w = 600\n', "cooled_w"),
    ],
)
def test_a_description_that_is_wrong_is_refused_in_one_sentence(tmp_path, text, words):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=words) as caught:
        load_accelerator(path)
    assert "\n" not in str(caught.value) and "my.toml" in str(caught.value)


def test_a_larger_die_is_taken_where_it_says_so(tmp_path):
    text = 'silicon = "h100_sxm"\n[die]\ncores = 200\n[limits]\ndie_mm2 = 2000\n'
    assert float(load_accelerator(written(tmp_path, text)).die.cores) == 200


def test_weights_in_the_buffers_of_a_die_without_memory(tmp_path):
    text = 'silicon = "h100_sxm"\nmemory = "none"\nstacks = 0\n[die]\nmemories = 0\nlinks = 4\n'
    text += "cores = 64\nbuffer = 0\n[die.core]\nbuffer_mib = 1\nport = 512\n"
    path = written(tmp_path, "active = 60\n" + text)
    chip = load_accelerator(path)
    sheet = chip.hardware()
    assert float(sheet.chip.memory) == 60 * 2**20
    assert float(sheet.chip.memory_bandwidth) == pytest.approx(60 * 512 * 1.83e9)
    assert float(laws.chip_bill(chip).memory) == 0.0
    slopes = jax.grad(lambda x: x.hardware(jnp.asarray(1.0)).price)(chip)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))


def test_draws_have_the_deviation_that_they_are_given():
    system = load_silicon("h100_sxm")
    drawn = draw_chips(system.chip, {"node.wafer": 0.2}, jax.random.key(1), 4000)
    logs = np.log(np.asarray(drawn.node.wafer) / float(system.chip.node.wafer))
    assert np.std(logs) == pytest.approx(0.2, rel=0.05)
    assert np.ptp(np.asarray(drawn.node.defects)) == 0.0
    ratio = {"bill": Ratio(0.8, 0.1, 5)}  # with Student's t of four degrees of freedom
    drawn = draw_chips(system.chip, {"unlisted.bill": 0.1}, jax.random.key(1), 4000, ratio)
    ends = np.quantile(np.log(np.asarray(drawn.unlisted.bill)), [0.1, 0.5, 0.9])
    assert ends == pytest.approx(np.log(0.8) + 0.1 * np.array([-1.533, 0, 1.533]), abs=0.006)


@pytest.mark.parametrize("name", known_chips())
def test_every_known_chip_can_be_made_or_says_what_it_lacks(name):
    system = load_silicon(name)
    found = laws.chip_limits(system.chip)
    limits = {key: (float(x.need), float(x.capacity)) for key, x in found.items()}
    if name == "v100_sxm":  # at 12 nm the law has too much
        assert limits.pop("reticle")[0] > 1.5 * RETICLE
    if not system.areas:  # a die without the parts that are not published
        limits.pop("edge")
    assert all(need <= most for need, most in limits.values()), limits


SPACE = {
    "estimator": "economics.planned",
    "arch": {"model": "llama-3.1-8b"},
    "chip": {
        "silicon": "h100_sxm",
        "active": {"integers": [60, 144, 12]},
        "stacks": {"integers": [2, 6, 1]},
        "limit": {"linear": [300, 700, 5]},
    },
    "workload": {"isl": 2048, "osl": 256},
}


def test_tables_of_a_chip_are_checked():
    for chip, words in (({}, "silicon"), ({"silicon": "h100_sxm", "counted": "EUR"}, "USD, J, kg")):
        with pytest.raises(InputError, match=words):
            ij.sweep({**SPACE, "chip": chip, "keep": {"best": "cost"}})
    with pytest.raises(InputError, match="both"):
        ij.sweep({**SPACE, "hardware": {"system": "h100_sxm"}, "keep": {"best": "cost"}})


def test_elasticities_go_down_to_stacks_and_clock(tmp_path):
    path = written(tmp_path, DESCRIPTION)
    slopes = ij.sensitivity("llama-3.1-8b", path, tp=1, batch=8, estimator="economics.planned")
    assert -1.0 < slopes.elasticity("hardware.stacks", "tpot").slope < -0.5
    with pytest.raises(InputError, match="price"):
        ij.sensitivity("llama-3.1-8b", path, tp=1, batch=8, price=2.0)


def test_the_answer_of_chip_stands_beside_what_is_published():
    found = ij.chip("H100")
    assert found.published["die_mm2"] == 814 and found.published["memory_gb"] == 80
    rows = {row["figure"]: row for row in found.rows()}
    low, high = (float(np.asarray(rows["die_mm2"][x])) for x in ("low", "high"))
    assert low < 814 < high
    assert rows["memory_gb"]["low"] is None
    assert found.die_mm2 == pytest.approx(sum(found.sizes["die"].values()) * 1e6, rel=1e-9)
    with pytest.raises(InputError, match="h100_sxm"):
        ij.chip("h101")


CHIPLETS = {
    "estimator": "economics.planned",
    "arch": {"model": "llama-3.1-8b"},
    "chip": {
        "silicon": "h100_sxm",
        "chiplets": True,
        "dies": {"values": [1, 2, 3, 4]},
        "active": {"integers": [72, 144, 6]},
        "stacks": [2, 5],
        "die": {"memories": {"integers": [4, 8, 2]}, "core": {"rows": {"integers": [8, 16, 8]}}},
    },
    "workload": {"isl": 2048, "osl": 256, "batch": 16},
}


def test_dies_of_a_package_share_its_cores_and_ends():
    chip = load_accelerator("h100_sxm")
    law = OnSilicon.of(target=IDEAL, chiplets=True)
    four = law.divided(chip.at({"dies": 4.0}))
    assert float(four.die.cores) == 36 and float(four.active) == 33
    one, quarter = (float(laws.areas(x).total) for x in (chip, four))
    assert 0.24 < quarter / one < 0.3  # ends and controllers have steps
    # smaller dies yield more, and bonds of more of them fail
    assert float(laws.good_die_cost(four)) * 4 < float(laws.good_die_cost(chip))
    whole = law.estimate(arch(), chip, work(), Plan.of())
    parts = law.estimate(arch(), chip.at({"dies": 4.0}), work(), Plan.of())
    assert float(parts.tpot) == pytest.approx(float(whole.tpot), rel=1e-9)

    def price(dies, cores):
        return law.lowered(chip.at({"dies": dies, "die.cores": cores})).price

    agree_at(price, (jnp.asarray(2.5), jnp.asarray(140.5)))


@pytest.mark.slow
def test_designs_have_whole_dies_cores_stacks_and_arrays():
    """The best of its lattice; with a model and batches, too: tests/unit/design/test_joint.py."""
    spec = {**CHIPLETS, "objective": {"best": "cost"}, "limits": {"tpot": 0.02}}
    spec["search"] = {"restarts": 8, "steps": 40}
    found = ij.codesign(spec=spec).designs[0].design
    chip = found.point.hardware
    assert isinstance(chip, laws.Accelerator)
    numbers = (chip.dies, chip.active, chip.stacks, chip.die.memories, chip.die.core.rows)
    assert all(float(x).is_integer() for x in numbers)
    dies = float(chip.dies)
    assert all(float(x) % dies == 0 for x in (chip.active, chip.die.cores, chip.die.memories))
    best = ij.sweep({**CHIPLETS, "keep": {"best": "cost", "under": {"tpot": 0.02}}}).rows()[0]
    assert found.objective == pytest.approx(best["cost"], rel=1e-5)


@pytest.mark.parametrize(
    ("chip", "words"),
    [
        ({"stacks": {"linear": [2, 5, 4]}}, None),
        ({"stacks": {"linear": [2, 5, 3]}}, "chip.stacks.*whole numbers"),
        ({"stacks": 2.5}, "chip.stacks.*whole numbers"),
        ({"clock": [1e9, 2e9]}, "clock.*a table such as"),
        ({"stacks": [5, 2]}, "stacks"),
        ({"chiplets": 3}, "chip.chiplets.*true or false"),
    ],
)
def test_what_is_counted_is_whole(chip, words):
    table = {**CHIPLETS, "chip": {"silicon": "h100_sxm", **chip}}
    if words is None:
        assert read_space("file", table)[1].axes["hardware.stacks"].steps == (2, 3, 4, 5)
        return
    with pytest.raises(InputError, match=words):
        read_space("file", table)


def test_a_chip_whose_cores_are_not_published_has_power_and_a_data_sheet_alone():
    found = ij.chip("tpu_v7")
    rows = {row["figure"]: row for row in found.rows()}
    assert not {"die_mm2", "bill_usd", "embodied_kg", "rent_usd_per_hour"} & set(rows)
    assert rows["peak_16_tflops"]["value"] == pytest.approx(2307, rel=1e-3)
    assert float(np.asarray(rows["limit_w"]["low"])) > 0
    assert "not published" in found.notes[0] and not found.sizes["die"]


def test_memory_on_the_board_packages_and_switches_are_named_in_a_file(tmp_path):
    text = 'silicon = "h100_sxm"\nassembly = "organic"\nswitch = "nvswitch3"\nstacks = 16\n'
    path = written(tmp_path, f'{text}[memory]\nkind = "gddr7"\n[die]\nmemories = 16\n')
    chip, base = load_accelerator(path), load_accelerator("h100_sxm")
    assert float(chip.hardware().chip.memory_bandwidth) == 16 * 32 * 32e9 / 8  # 32 Gb/s a lane
    # memory on the board takes no area of a package, which is a substrate
    under = float(laws.interposer_area(chip))
    assert under == pytest.approx(float(laws.areas(chip).total))
    assert under < float(laws.interposer_area(base))
    assert chip.switch is not None and float(chip.switch.ports) == 64
    assert float(chip.hardware().price) > float(chip.replace(switch=None).hardware().price)


def test_a_chip_without_a_profile_is_hardware_of_every_verb():
    asked = {"tp": 1, "batch": 4, "isl": 512, "osl": 64, "estimator": "economics.planned"}
    found = ij.estimate("llama-3.1-8b", "mi250x", **asked)
    assert bool(found.estimate.feasible) and "MI250X" in load_silicon("mi250x").title
    assert "coefficients are those of mi300x" in load_silicon("mi250x").filled[0]
    with pytest.raises(InputError, match="h100_sxm"):
        ij.estimate("llama-3.1-8b", "mi251x", **asked)
