"""Rules of export: what each costs prefill, decode and agents."""

from collections.abc import Mapping

import numpy as np

from experiments._silicon.claims import World, most_of
from experiments._silicon.frame import FITTED, IDEAL, Study
from experiments._silicon.page import Bars, Page, draw_bars
from infer_jax.plots.style import Figure

BASE = "H200"


def run(study: Study) -> tuple[Page, Figure]:
    """The best chip of a lattice under each rule for each use."""
    chip, rules = study.systems[BASE].chip, study.table["rules"]
    assert chip.memory is not None
    every = np.meshgrid(*(np.array(x, float) for x in study.table["axes"].values()))
    grid = dict(zip(study.table["axes"], (x.ravel() for x in every), strict=True))
    dark, lane = grid.pop("dark"), float(chip.memory.interface.lane) * grid.pop("lane")
    spare = np.ceil(grid["active"] * float(chip.die.cores / chip.active))
    cores = np.where(dark > 0, float(chip.die.cores), spare)
    numbers = {**grid, "die.cores": cores, "memory.interface.lane": lane}
    numbers |= {"die.memories": grid["stacks"], "clock": np.full(len(lane), float(chip.clock))}
    world = study.lattice(BASE, numbers)
    study.places = [(f"{rule}, {case}", case) for rule in rules for case in study.cases]
    for rule, lines in rules.items():
        for case in study.cases:
            usd = None
            if world is not None:
                figures = figures_of(study, numbers, world(BASE, case, "die"))
                usd = np.where(is_caught(lines, figures), np.inf, world(BASE, case))
            study.choose(f"{rule}, {case}", BASE, numbers, usd)
    page, fitted, ideal = Page(study), study.central[FITTED], study.central[IDEAL]
    page.section("How much dearer", study.table["sources"])

    def dearer(world: World, case: str) -> list[np.ndarray]:
        free = world(f"no rule, {case}", case)
        return [world(f"{rule}, {case}", case) / free for rule in rules]

    ratios = {
        case: [[float(x[0]) for x in dearer(w, case)] for w in (fitted, ideal)]
        for case in study.cases
    }
    columns = [column for both in ratios.values() for column in both]
    page.table(("rule", *study.heads), [[r, *x] for r, *x in zip(rules, *columns, strict=True)])
    page.section("Which chips")
    rows: list[list[object]] = []
    for name, own in study.designs.items():
        case = name.rpartition(", ")[2]
        figures = figures_of(study, own, fitted(name, case, "die"))
        row: list[object] = [name, own["active"], own["stacks"], own["limit"]]
        row += [1e6 * fitted(name, case, "die"), fitted(name, case, "bill"), figures["tpp"]]
        row += [figures["density"], figures["memory"], figures["links"], fitted(name, case)]
        rows.append([*row, fitted(name, case, "chips")])
    heads = ("rule, use", "cores", "stacks", "W", "die, mm2", "bill, USD", "TPP", "density")
    page.table((*heads, "memory, GB/s", "links, GB/s", "USD/Mtok", "chips"), rows)
    page.claims(study)
    bars = {
        case: Bars(list(rules), first, [*map(most_of, dearer(study.drawn[FITTED], case))], second)
        for case, (first, second) in ratios.items()
    }
    title = "How much dearer tokens are under rules of export"
    shared = "cost of tokens over that without a rule"
    return page, draw_bars(bars, title=title, caption=study.table["caption"], shared=shared)


def figures_of(
    study: Study, numbers: Mapping[str, np.ndarray | float], die: np.ndarray
) -> dict[str, np.ndarray]:
    """What rules count: TPP, its density, GB/s of memory, links, both, and of a stack by mm2."""
    chip = study.systems[BASE].chip
    core, memory = chip.die.core, chip.memory
    assert memory is not None
    each = 2 * float(core.lanes * core.rows * core.columns * chip.dies)
    tpp = 16 * each * np.asarray(numbers["active"]) * float(chip.clock) / 1e12
    stack = float(memory.interface.lanes) * np.asarray(numbers["memory.interface.lane"]) / 1e9
    links = 2 * np.asarray(numbers["die.links"]) * float(chip.link.lanes * chip.link.lane) / 1e9
    of_memory = stack * np.asarray(numbers["stacks"])
    found = {"tpp": tpp, "density": tpp / (1e6 * die), "memory": of_memory, "links": links}
    return found | {"both": of_memory + links, "stack": stack / (1e6 * float(memory.footprint))}


def is_caught(lines: list[dict[str, float]], figures: Mapping[str, np.ndarray]) -> np.ndarray:
    """Whether chips reach all numbers of any line."""
    caught = np.zeros(len(figures["tpp"]), bool)
    for line in lines:
        caught |= np.all([figures[k] >= x for k, x in line.items()], axis=0)
    return caught
