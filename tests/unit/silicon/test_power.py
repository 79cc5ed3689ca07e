"""Power, throttling, interfaces, carbon, bills and rent: closed forms and slopes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.catalog.published.tables import tables
from infer_jax.errors import InputError
from infer_jax.silicon import bill, interfaces, power
from infer_jax.silicon.nodes import figures, node

from ..physics.derivatives import agree_at, finite_at

pytestmark = pytest.mark.usefixtures("x64")


def test_a_fixed_voltage_throttles_on_a_line_and_a_free_one_by_the_cube_root():
    limit, fixed, full, least = 400.0, 150.0, 500.0, 0.1
    line = power.clock_share(limit, fixed, full, jnp.asarray(1.0), least)
    assert float(line) == pytest.approx((limit - fixed) / full, rel=1e-9)
    cube = power.clock_share(limit, fixed, full, jnp.asarray(0.0), least)
    assert float(cube) == pytest.approx(((limit - fixed) / full) ** (1 / 3), rel=1e-9)


def test_the_share_of_the_clock_draws_the_limit():
    share = power.clock_share(700.0, 300.0, 600.0, jnp.asarray(0.6), 0.2)
    drawn = 300.0 + power.clocked_power(share, jnp.asarray(600.0), jnp.asarray(0.6))
    assert float(drawn) == pytest.approx(700.0, rel=1e-9) and 0.2 < float(share) < 1.0
    assert float(power.clock_share(1e4, 300.0, 600.0, jnp.asarray(0.6), 0.2)) == 1.0
    assert float(power.clock_share(100.0, 300.0, 600.0, jnp.asarray(0.6), 0.2)) == 0.2


def test_gradients_of_throttling():
    agree_at(power.clock_share, (700.0, 300.0, 600.0, 0.6, 0.2), (500.0, 50.0, 900.0, 0.0, 0.1))
    ends = ((1e4, 300.0, 600.0, 0.6, 0.2), (100.0, 300.0, 600.0, 0.6, 0.2), (0.0,) * 5)
    finite_at(power.clock_share, *ends, (900.0, 300.0, 600.0, 0.6, 0.2))


def test_energies_are_those_of_the_table_between_which_the_law_goes():
    # Jouppi et al. 2021, Table 2, pJ at 7 nm: bfloat16, IEEE 16 and 32 bits
    energy = power.OperationEnergy()
    for bits, printed, most in ((7, 0.21, 1e-6), (10, 0.34, 0.03), (23, 1.31, 1e-6)):
        found = float(power.product_energy(16, float(bits), energy)) * 1e12
        assert found == pytest.approx(printed, rel=most)
    # and of additions: bfloat16, IEEE 16 and 32 bits, by the bits of mantissa
    for bits, printed in ((8, 0.11), (11, 0.16), (24, 0.38)):
        found = float(energy.add - energy.add_bit * (24 - bits)) * 1e12
        assert found == pytest.approx(printed, rel=0.005)


def test_narrow_products_are_summed_among_each_other():
    # of E4M3, two in place of one: two products, one exact sum of 8 bits and one in 32
    energy, at = power.OperationEnergy(), node("n7")
    each = power.product_energy(8, 3.0, energy)
    assert float(each) * 1e12 == pytest.approx(0.07 / 4 + 0.007)  # a quarter of 8 bits by 8
    found = float(power.element_energy(each, 3.0, 2.0, at, energy)) * 1e12
    assert found == pytest.approx(2 * 0.0245 + 0.11 + 0.38, rel=1e-6)


def test_operands_by_brute_force():
    # r + c operands enter r x c elements a cycle, each of which does 2 FLOP; 8.5 pJ for 8 bytes
    energy, at = power.OperationEnergy(), node("n5")
    read = power.operand_energy(16.0, 32.0, 2.0, at, energy)
    assert float(read) == pytest.approx(2 * (16 + 32) / (2 * 16 * 32) * 8.5e-12 / 8 * 0.7)
    agree_at(power.operand_energy, (16.0, 32.0, 2.0, at, energy))
    agree_at(power.element_energy, (1e-13, 10.0, 2.0, at, energy))
    finite_at(power.element_energy, (1e-13, 10.0, 1.0, at, energy), (0.0, 0.0, 0.0, at, energy))
    for bits in (16, 8):
        agree_at(partial(power.product_energy, bits), (3.0, energy))


def test_interfaces_and_stacks_add_up():
    hbm = interfaces.stack("hbm3e")
    assert 8 * float(hbm.capacity) == 192e9
    dearer = hbm.at({"growth": 0.1})
    two, one = (interfaces.memory_price(dearer, 8.0, x) for x in (2027.0, 2025.0))
    assert float(two / one) == pytest.approx(1.21, rel=1e-12)
    assert float(interfaces.perimeter(jnp.asarray(400e-6))) == pytest.approx(4 * 0.02, rel=1e-9)
    agree_at(interfaces.perimeter, (8e-4,))
    finite_at(interfaces.perimeter, (0.0,))
    agree_at(interfaces.memory_price, (dearer, 8.0, 2027.0))
    finite_at(interfaces.memory_price, (hbm, 0.0, 2025.0))


def test_every_figure_has_a_source_and_lies_within_its_range():
    table = tables("silicon")
    cells = [
        (key, cell)
        for kind in ("nodes", "interfaces", "switches", "stacks", "packages")
        for row in table[kind].values()
        for key, cell in row.items()
    ]
    assert len(cells) > 80
    for key, cell in cells:
        assert cell["source"] in table["sources"], key
        assert cell.get("low", cell["value"]) <= cell["value"] <= cell.get("high", cell["value"])
    named = {cell["source"] for _, cell in cells}
    named |= {row["source"] for row in table["accelerators"].values()}
    assert named | {"act"} == set(table["sources"])


def test_rows_that_are_not_there_are_refused():
    for ask in (lambda: node("n1"), lambda: interfaces.stack("hbm9")):
        with pytest.raises(InputError, match=r"n7|hbm4"):
            ask()
    with pytest.raises(InputError, match="no figure for n10'; allowed: n14, n7, n6, n5, n3, n2"):
        node("n10", ["transistors", "energy"])
    assert figures("nodes", "n5")["wafer"] == (16988.0, 16000.0, 16988.0)


def test_newer_nodes_hold_more_and_draw_less():
    rows = [node(name) for name in tables("silicon")["nodes"]]
    density = [float(row.transistors) for row in rows]
    assert density == sorted(density)
    energies = [float(node(x).energy) for x in ("n14", "n7", "n5", "n3", "n2")]
    assert energies == sorted(energies, reverse=True) and energies[1:4] == [1.0, 0.7, 0.51]


def test_carbon_of_a_die_and_its_slopes():
    agree_at(bill.die_emissions, (8e-4, node("n5"), bill.Fab()))
    finite_at(bill.die_emissions, (0.0, node("n5"), bill.Fab.of(working=0.0)))
    # without electricity, all working: gases at 95 % and 99 % abated, and 500 g/cm2 of materials
    clean = [bill.Fab.of(grid=0.0, working=1.0, abated=x) for x in (0.95, 0.99)]
    ends = [float(bill.emissions_by_area(node("n7"), fab)) for fab in clean]
    assert ends == pytest.approx([8500.0, 7000.0], rel=1e-12)


def test_rent_is_capital_electricity_and_space():
    own = bill.Ownership.of(years=4, electricity=0.08, pue=1.25, used=0.8, around=0.5, space=0.2)
    found = bill.rent(jnp.asarray(30_000.0), jnp.asarray(700.0), own)
    hour = 30_000 * 1.5 / 4 / 8766 + 0.7 * (1.25 * 0.08 + 0.2)
    assert float(found) == pytest.approx(hour / 0.8, rel=1e-12)
    agree_at(bill.rent, (3e4, 700.0, own.replace(interest=np.asarray(0.1))))
    finite_at(bill.rent, (0.0, 0.0, own), (3e4, 700.0, own.replace(used=np.asarray(0.0))))


def test_an_annuity_pays_back_and_goes_on_through_no_interest():
    years, rate = 5.0, 0.08
    paid = sum(float(bill.annuity(years, rate)) / (1 + rate) ** (k + 1) for k in range(5))
    assert paid == pytest.approx(1.0, rel=1e-12)
    assert float(bill.annuity(years, 0.0)) == 0.2
    below, above = (jax.grad(bill.annuity, 1)(years, x) for x in (0.0, 1.1e-3))
    assert float(below) == pytest.approx(0.6, rel=1e-12)
    assert float(above) == pytest.approx(float(below), rel=2e-3)


def test_bills_margins_and_rates():
    parts = map(jnp.asarray, (900.0, 2900.0, 1100.0, 480.0, 0.8))
    found = bill.bill_of_materials(*parts)
    assert float(found.loss) == pytest.approx(4900 / 4, rel=1e-12)
    assert float(bill.sale_price(found.total, 0.8)) == pytest.approx(5 * float(found.total))
    agree_at(lambda *x: bill.bill_of_materials(*x).total, (900.0, 2900.0, 1100.0, 480.0, 0.8))
    finite_at(bill.sale_price, (100.0, 1.0))
    assert float(power.flops(2, 3, 4, 5, 6.0, 2.0)) == 2 * 2 * 3 * 4 * 5 * 6 * 2
