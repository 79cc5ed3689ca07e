"""Arrays of 4 bits: what they take, and which users they pay."""

import numpy as np

from experiments._silicon.frame import ESTIMATORS, FITTED, IDEAL, Study
from experiments._silicon.page import Page, draw_lines
from infer_jax.plots.style import Figure
from infer_jax.silicon.accelerator import data_sheet

DOUBLINGS = 2.0 ** np.arange(0, 8)  # of the prompt
SLOWER = 2.0 ** np.arange(-2, 2.1, 0.5)  # of the time for a token


def run(study: Study) -> tuple[Page, Figure]:
    """Three chips that differ in their narrow products alone."""
    for name, system in list(study.systems.items()):  # all of one design that no fit has seen
        study.add(name, system, study.table["numbers"].get(name, {}))
    names = list(study.systems)
    page, fitted, ideal = Page(study), study.central[FITTED], study.central[IDEAL]
    page.section("What they take and bring", study.table["area"])
    rows: list[list[object]] = []
    for name in names:
        sheet = data_sheet(study.systems[name].chip)
        row: list[object] = [name, 1e6 * fitted(name, of="die"), fitted(name, of="bill")]
        row += [float(sheet.chip.flops_4) / 1e15, float(sheet.chip.flops_8) / 1e15]
        for case in study.cases:
            row += [float(w(name, case)[0] / w("without", case)[0]) for w in (fitted, ideal)]
        rows.append(row)
    heads = ("chip", "die, mm2", "bill, USD", "4 bits, PFLOP/s", "8 bits", *study.heads)
    page.table(heads, rows)
    lengths = lines_of(study, "both", "isl", DOUBLINGS)
    speeds = lines_of(study, "decode", "tpot", SLOWER)
    page.section("By prompt, and by speed", study.table["caption"])
    page.table(("prompt, tokens", *lengths), table_of(lengths))
    page.table(("tokens/s", *speeds), table_of(speeds))
    page.claims(study)
    labels = [
        ("tokens of the prompt", "cost with arrays of 4 bits / without"),
        ("tokens/s of a user", ""),
    ]
    return page, draw_lines(
        {"with prompts": lengths, "decode alone": speeds},
        labels,
        title="What arrays of 4 bits bring, with their area",
        caption=study.table["caption"],
        logs=(True, False),
    )


Lines = dict[str, tuple[list[float], list[float]]]


def lines_of(study: Study, case: str, path: str, factors: np.ndarray) -> Lines:
    """Tokens of both chips over those without, by a number of a case, under both estimators."""
    across = getattr(study.cases[case], path) * factors
    across = 1.0 / across if path == "tpot" else across
    found: Lines = {}
    for word, which in ESTIMATORS.items():
        places = [(name, case) for name in study.systems]
        world = study.moved({path: factors}, which, places)
        for name in ("halves", "own units"):
            ratio = world(name, case) / world("without", case)
            found[f"{name}, {word}"] = (across.tolist(), ratio.tolist())
    return found


def table_of(lines: Lines) -> list[list[object]]:
    """Rows of lines that share what is across."""
    across = next(iter(lines.values()))[0]
    return [[f"{x:,.0f}", *(up[i] for _, up in lines.values())] for i, x in enumerate(across)]
