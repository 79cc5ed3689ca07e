"""Profiles with numbers of no machine and with misspelt tables are refused by name."""

import pytest

from infer_jax.catalog import units
from infer_jax.catalog.systems import list_systems, load_system
from infer_jax.errors import InputError
from infer_jax.specs import leaves
from tests.unit.catalog.profile import GOOD, load_text, message

SLIPS = [
    # (what stands in GOOD, what a slip makes of it, the field)
    ("memory_bandwidth_tb_per_s = { value = 3.35", 3.35e-9, "chip.memory_bandwidth"),
    ("memory_bandwidth_tb_per_s = { value = 3.35", 3.35e9, "chip.memory_bandwidth"),
    ("flops_16_tflops = { value = 100", 1e-12, "chip.flops_16"),
    ("flops_16_tflops = { value = 100", 989e12, "chip.flops_16"),
    ("memory_gib = { value = 32", 32e9, "chip.memory"),
    ("domain = { value = 8", 1e9, "network.domain"),
    ("domain_bandwidth_gb_per_s = { value = 450", 0, "network.domain_bandwidth"),
    ("network_bandwidth_gb_per_s = { value = 50", 0, "network.network_bandwidth"),
    ("network_bandwidth_gb_per_s = { value = 50", 5e-20, "network.network_bandwidth"),
    ("price_usd_per_hour = { value = 2", 1e20, "price"),
    ("power_w = { value = 700", 1e-9, "power"),
    ("launch_us = { value = 4", 1e200, "kernels.launch"),
    ("flop_cap = { value = 0.7", 1e-30, "kernels.flop_cap"),
    ("flop_cap = { value = 0.7", 0, "kernels.flop_cap"),
]


@pytest.mark.parametrize(("entry", "slip", "field"), SLIPS)
def test_numbers_of_no_machine_are_refused_unless_named(tmp_path, entry, slip, field):
    assert entry in GOOD
    text = GOOD.replace(entry, entry[: entry.rindex(" ")] + f" {slip}")
    said = message(tmp_path, text)
    assert f'unchecked = ["{field}"]' in said and f"{field}" in said
    assert "machine" in said
    named = f'unchecked = ["{field}"]\n{text}'
    assert load_text(tmp_path, named).name == "mine"
    # the name lets pass this field and no other, and holds for this file alone
    other = named.replace("memory_gib = { value = 32", "memory_gib = { value = 1e30")
    if field != "chip.memory":
        assert "chip.memory_gib is 1e+30" in message(tmp_path, other)
    (tmp_path / "below.toml").write_text(named)
    assert load_text(tmp_path, 'title = "x"\nbase = "below.toml"\n').title == "x"


@pytest.mark.parametrize("name", list_systems())
def test_shipped_numbers_are_two_powers_of_ten_within_bounds(name):
    """So that no machine of the next years, or of the last ten, needs an exception."""
    for path, meta, value in leaves(load_system(name).hardware):
        low, high = units.FIELDS.get(path, units.UNITS[meta["unit"]])
        if value and path not in ("network.domain", "network.axes", "price"):
            assert 100 * low <= value <= high / 100, path


def test_what_unchecked_names_is_in_the_profile(tmp_path):
    assert "chip.memory" in message(tmp_path, f'unchecked = ["chip.memry"]\n{GOOD}')
    assert "a list of fields" in message(tmp_path, f"unchecked = true\n{GOOD}")
    assert "did you mean unchecked?" in message(tmp_path, f"uncheked = []\n{GOOD}")


@pytest.mark.parametrize(
    ("table", "near"),
    [("kernals", "kernels"), ("econmics", "economics"), ("servings", "serving"),
     ("serving_band", "serving_bands"), ("ofloading", "offloading"), ("chips", "chip")],
)  # fmt: skip
def test_misspelt_tables_are_refused(tmp_path, table, near):
    assert f"[{near}]" in message(tmp_path, GOOD.replace("[kernels]", f"[{table}]"))


@pytest.mark.parametrize(
    ("key", "said"),
    [("memory_bandwith_tb_per_s", "did you mean memory_bandwidth_tb_per_s?"),
     ("memory_bandwidth_tb", "not in a unit of memory_bandwidth (bytes/s)"),
     ("memory_tb_per_s", "not in a unit of memory (bytes)")],
)  # fmt: skip
def test_a_misspelt_key_is_answered_with_the_nearest(tmp_path, key, said):
    text = GOOD.replace("memory_bandwidth_tb_per_s", key)
    assert said in message(tmp_path, text)


def test_tables_of_own_estimators_are_taken(tmp_path):
    for table in ("mine", "economics_mine", "serving_v2"):
        system = load_text(tmp_path, GOOD.replace("[kernels]", f"[{table}]"))
        assert system.coefficients[table]["flop_cap"] == 0.7


def test_an_integer_beyond_every_float_is_out_of_bounds():
    changes = {"chip.memory_bandwidth": [10**400]}
    with pytest.raises(InputError, match=r"chip\.memory_bandwidth.*allowed: 1e\+08 to 1e\+16"):
        units.sensible_changes("x.toml", "hardware", load_system("h100_sxm").hardware, changes)
