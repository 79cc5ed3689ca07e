"""Domains of fast links by size, in copper and in optics."""

import jax.numpy as jnp

from experiments._silicon.frame import ESTIMATORS, FITTED, IDEAL, Study
from experiments._silicon.page import Page, draw_lines
from infer_jax.plots.style import Figure
from infer_jax.silicon.accelerator import link_bandwidth
from infer_jax.silicon.bill import sale_price
from infer_jax.silicon.interfaces import switch_share

STAGES = 3.0  # ports that a link takes in two stages of switches: one below, two between them


def run(study: Study) -> tuple[Page, Figure]:
    """Each size in copper and in optics; beyond a switch's ports two stages."""
    sizes: list[int] = study.table["sizes"]
    kinds = list(study.systems)
    for kind in kinds:
        system = study.systems.pop(kind)
        switch = system.chip.switch
        assert switch is not None
        for size in sizes:
            stages = STAGES if size > float(switch.ports) else 1.0
            numbers = {"domain": float(size), "switch.price": stages * float(switch.price)}
            numbers |= {"switch.power": stages * float(switch.power)}
            study.add(f"{kind} {size}", system, numbers | study.table["numbers"])
    page, worlds = Page(study), study.central
    page.section("By size", study.table["caption"])
    heads = [f"{case}, {word}" for case in study.cases for word in ("fitted", "on chips", "ideal")]
    rows: list[list[object]] = []
    for name in study.systems:
        chip = study.systems[name].chip
        assert chip.switch is not None
        share = float(switch_share(chip.switch, link_bandwidth(chip)))
        bill = jnp.asarray(worlds[FITTED](name, of="bill")[0])
        price = float(sale_price(bill, chip.margin))
        row: list[object] = [name, share * float(chip.switch.price), price]
        row.append(
            share * float(chip.switch.power) + float(link_bandwidth(chip) * chip.link.energy)
        )
        for case in study.cases:
            row += [worlds[FITTED](name, case), f"{worlds[FITTED](name, case, 'chips')[0]:.0f}"]
            row.append(worlds[IDEAL](name, case))
        rows.append(row)
    page.table(("domain", "switches, USD", "chip, USD", "links and switches, W", *heads), rows)
    page.claims(study)
    lines = {
        case: {
            f"{kind}, {word}": (
                [float(x) for x in sizes],
                [float(study.central[which](f"{kind} {x}", case)[0]) for x in sizes],
            )
            for word, which in ESTIMATORS.items()
            for kind in kinds
        }
        for case in study.cases
    }
    labels = [("chips of the domain", "USD per million tokens"), ("chips of the domain", "")]
    title = "What a domain of fast links is worth in decode"
    return page, draw_lines(lines, labels, title=title, caption=study.table["caption"])
