"""The best decode chip: what binds, and what chips of today waste."""

import numpy as np

from experiments._silicon.claims import most_of
from experiments._silicon.frame import FITTED, IDEAL, Study
from experiments._silicon.multipliers import shadow_prices
from experiments._silicon.page import Page
from experiments._silicon.pictures import Bars, draw_bars
from infer_jax.plots.style import Figure

WORTH = {  # numbers of a chip moved alone, and what each of them is
    "FLOP/s (clock)": {"clock": 1.0},
    "memory bandwidth, same bill": {"memory.interface.lane": 1.0},
    "memory, same bill": {"memory.capacity": 1.0, "memory.price": -1.0},
    "links": {"link.lane": 1.0},
    "power limit": {"limit": 1.0},
}
STEP = 0.05


def run(study: Study) -> tuple[Page, Figure]:
    """Search two chips, one under each estimator, and price them beside those of today."""
    search = study.table["search"]
    tables = {"best, fitted": search, "best, ideal": {**search, "estimator": IDEAL}}
    for name, table in tables.items():
        study.search(name, table)
    page, names = Page(study), list(study.systems)
    fitted, ideal = study.central[FITTED], study.central[IDEAL]
    page.section("Chips")
    rows: list[list[object]] = []
    for name in names:
        chip = study.systems[name].chip
        row: list[object] = [name, chip.dies * chip.active, chip.clock / 1e9, chip.limit]
        row += [chip.stacks, 1e6 * fitted(name, of="die"), fitted(name, of="bill")]
        row += [100 * fitted(name, of="of memory"), fitted(name), ideal(name)]
        served = (f"{fitted(name, of=of)[0]:.0f}" for of in ("batch", "chips"))
        rows.append([*row, " on ".join(served), 100 * fitted(name, of="memory")])
    heads = ("chip", "cores", "GHz", "W", "stacks", "die, mm2", "bill, USD", "memory, % of it")
    more = ("USD/Mtok, fitted", "ideal", "requests on chips", "memory filled, %")
    page.table((*heads, *more), rows)
    page.section("What binds", study.table["binds"])
    rows = []
    for name, table in tables.items():
        found = {} if study.light else shadow_prices(study.spec(table), study.designs[name])
        rows += [[name, f"`{k}`", x] for k, x in found.items() if x > 0.005]
    page.table(("design", "limit", "%"), rows)
    page.section("What today's chips waste", study.table["wastes"])
    for word, which in (("fitted", FITTED), ("ideal", IDEAL)):
        worth = [[what, *worth_of(study, which, moves)] for what, moves in WORTH.items()]
        page.table((word, *names), worth)
    page.claims(study)
    bars = {
        f"USD per million tokens, {word}": Bars(
            names,
            [float(study.central[which](n)[0]) for n in names],
            [most_of(study.drawn[which](n)) for n in names],
            [float(np.median(study.drawn[which](n))) for n in names],
        )
        for word, which in (("fitted", FITTED), ("ideal", IDEAL))
    }
    title = "What a decode chip costs its users"
    return page, draw_bars(bars, title=title, caption=study.table["caption"])


def worth_of(study: Study, which: str, moves: dict[str, float]) -> list[float]:
    """Per cent that tokens get cheaper by a per cent more, of each chip in its first case."""
    factors = {path: np.exp(sign * np.array([-STEP, STEP])) for path, sign in moves.items()}
    world = study.moved(factors, which)
    return [float(np.log(world(n)[0] / world(n)[1]) / (2 * STEP)) for n in study.systems]
