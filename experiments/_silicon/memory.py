"""What a byte/s of memory costs and is worth, and memory's share of bills."""

import numpy as np

from experiments._silicon.claims import most_of
from experiments._silicon.frame import FITTED, IDEAL, Study
from experiments._silicon.page import Page, draw_lines
from infer_jax.plots.style import Figure
from infer_jax.silicon.accelerator import resident_memory
from infer_jax.silicon.bill import HOURS, KILOWATT

TWO_THIRDS = 2.0 / 3.0
STEP = 0.05


def run(study: Study) -> tuple[Page, Figure]:
    """Chips of six years, each with a stack more beside it."""
    years: dict[str, float] = study.table["years"]
    for name in years:
        system = study.systems[name]
        more = float(system.chip.stacks) + 1.0
        ends = more / float(system.chip.dies)
        numbers = {"stacks": more, "die.memories": max(ends, float(system.chip.die.memories))}
        study.add(f"{name}, a stack more", system, numbers, seen=name in study.seen)
    page, fitted = Page(study), study.central[FITTED]
    page.section("What it costs", study.table["why"])
    rows: list[list[object]] = []
    for name, year in years.items():
        chip, share = study.systems[name].chip, fitted(name, of="of memory")[0]
        assert chip.memory is not None
        held = resident_memory(chip)
        row: list[object] = [name, f"{year}", chip.stacks, held.capacity / 1e9]
        row += [held.bandwidth / 1e12, chip.memory.price * 1e9, fitted(name, of="a TB/s")]
        row += [fitted(name, of="bill"), 100 * share]
        rows.append([*row, TWO_THIRDS / (1 - TWO_THIRDS) * (1 - share) / share])
    heads = ("chip", "year", "stacks", "GB", "TB/s", "USD/GB", "USD of memory a TB/s", "bill, USD")
    page.table((*heads, "memory, % of it", "two thirds at this times its price"), rows)
    page.section("What it is worth", study.table["worth"])
    page.table(("chip", *study.cases, *(f"{case}, ideal" for case in study.cases)), [
        [name, *worth] for name, worth in worth_of(study, list(years)).items()
    ])  # fmt: skip
    page.section("When a stack more pays", study.table["pays"])
    rows = []
    for name in years:
        pairs = [
            w(name, case)[0] / w(f"{name}, a stack more", case)[0]
            for case in study.cases
            for w in (fitted, study.central[IDEAL])
        ]
        rows.append([name, *pairs])
    page.table(("chip", *study.heads), rows)
    page.claims(study)
    across = list(years.values())
    drawn, parts = study.drawn[FITTED], {}
    for head, of, scale in (("its price", "a TB/s", 1.0), ("its share", "of memory", 100.0)):
        ends = [scale * most_of(drawn(n, of=of)) for n in years]
        central = [scale * float(fitted(n, of=of)[0]) for n in years]
        parts[head] = {"shaded: 80 % of draws": (across, central, ends)}
    labels = [("year", "USD of memory for a TB/s"), ("year", "memory, % of the bill")]
    title = "What a byte/s of memory costs, and memory's share"
    return page, draw_lines(
        parts, labels, title=title, caption=study.table["caption"], logs=(False, False)
    )


def worth_of(study: Study, names: list[str]) -> dict[str, list[float]]:
    """USD that a TB/s may cost to pay, of each chip, by case under both estimators.

    Elasticity of tokens' cost in bandwidth alone times what the chip costs over its years, by TB/s.
    """
    places = [(name, case) for name in names for case in study.cases]
    moves = {"memory.interface.lane": np.exp([-STEP, STEP])}
    worlds = [study.moved(moves, which, places) for which in (FITTED, IDEAL)]
    found: dict[str, list[float]] = {}
    for name in names:
        chip, owner = study.systems[name].chip, study.systems[name].chip.owner
        energy = chip.limit / KILOWATT * owner.pue * HOURS * owner.years
        owned = study.central[FITTED](name, of="bill")[0] + float(energy * owner.electricity)
        each = owned / (float(resident_memory(chip).bandwidth) / 1e12) / (2 * STEP)
        found[name] = [
            each * float(-np.diff(np.log(w(name, case)))[0]) for w in worlds for case in study.cases
        ]
    return found
