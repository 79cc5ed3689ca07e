"""Chips by the laws of silicon, beside what is published of them, and chips that no fit saw.

    python experiments/chips.py          # every chip, and one maker left out at a time
    python experiments/chips.py fit      # the table [unlisted] of catalog/published/silicon.toml
    python experiments/chips.py table    # what docs/silicon.md has of every chip

A figure by law; the ends of 80 % of draws of its coefficients and of what the laws leave out; what
is published, of makers and the press; whether it lies within. LLMCompass gives Aldebaran arrays of
twice the products that MI210 has, and all its links.
"""

import sys
from collections.abc import Collection, Mapping, Sequence

import jax
import numpy as np

import infer_jax as ij
from infer_jax.catalog.foreign import Parsed
from infer_jax.catalog.published.tables import tables
from infer_jax.silicon.chips import SiliconSystem, known_chips
from infer_jax.silicon.figures import FIGURES, figures_of
from infer_jax.silicon.spread import (
    RATIO,
    Ratio,
    coefficient_deviations,
    draw_chips,
    ratios,
    sample,
)
from infer_jax.verbs.chip_result import ChipResult

LAWS = {"die_mm2": "area", "base_mm2": "area", "limit_w": "power", "bill_usd": "bill"}
ORDER = ("area", "power", "bill")  # a bill is of dies with their ratio
SEED = 0


def row_of(name: str) -> Parsed:
    """The row of a chip."""
    return tables("silicon")["accelerators"][name]


def drawn_figures(system: SiliconSystem, fitted: Mapping[str, Ratio]) -> dict[str, np.ndarray]:
    """Figures of draws of a chip, with these ratios alone."""
    with jax.enable_x64(True):
        chip = jax.tree.map(np.asarray, system.chip)
        deviation = coefficient_deviations(chip, system.rows)
        kept = {
            path: fitted[path.removeprefix(RATIO)].deviation if path.startswith(RATIO) else x
            for path, x in deviation.items()
            if not path.startswith(RATIO) or path.removeprefix(RATIO) in fitted
        }
        return sample(figures_of, draw_chips(chip, kept, jax.random.key(SEED), fitted=fitted))


def fit_ratio(logs: Sequence[float], own: Sequence[float]) -> Ratio:
    """The ratio of chips whose logarithms of published over law are known.

    Random effects (DerSimonian and Laird 1986): variance beyond ``own``, the deviations that a
    law's coefficients give each, by moments, and the error of the mean on top.
    """
    r, weight = np.asarray(logs), 1.0 / np.square(own)
    mean = np.sum(weight * r) / np.sum(weight)
    excess = np.sum(weight * (r - mean) ** 2) - (len(r) - 1)
    scale = np.sum(weight) - np.sum(weight**2) / np.sum(weight)
    beyond = max(excess / scale, 0.0) if len(r) > 1 else 0.0
    weight = 1.0 / (1.0 / weight + beyond)
    centre = np.exp(np.sum(weight * r) / np.sum(weight))
    return Ratio(float(centre), float(np.sqrt(beyond + 1.0 / np.sum(weight))), len(r))


def fit(answers: Mapping[str, ChipResult], without: Collection[str] = ()) -> dict[str, Ratio]:
    """Ratios of published to law, fitted to the chips of all makers but some."""
    found: dict[str, Ratio] = {}
    for law in ORDER:
        logs: list[float] = []
        own: list[float] = []
        for name, answer in answers.items():
            row = row_of(name)
            if row["maker"] in without:
                continue
            for figure in row.get("fit", ()):
                if LAWS[figure] == law:
                    drawn = np.log(drawn_figures(answer.system, found)[figure])
                    known = answer.published[figure] / FIGURES[figure][2]
                    logs.append(float(np.log(known) - np.mean(drawn)))
                    own.append(float(np.std(drawn)))
        found[law] = fit_ratio(logs, own)
    return found


def judge(answer: ChipResult, fitted: Mapping[str, Ratio]) -> dict[str, tuple[float, ...]]:
    """(Low, high, published) of the figures that are judged, in the units of ``FIGURES``."""
    drawn = drawn_figures(answer.system, fitted)
    return {
        figure: (
            *(np.quantile(drawn[figure], [0.1, 0.9]) * FIGURES[figure][2]),
            answer.published[figure],
        )
        for figure in LAWS
        if figure in answer.published and answer.figures[figure] > 0
    }


def show(answer: ChipResult) -> None:
    """Print the figures of a chip."""
    print(f"{answer.system.name}")
    for row in answer.rows():
        low, known = row["low"], row["published"]
        between = "" if low is None else f"{low:,.4g} to {row['high']:,.4g}"
        value = "" if row["value"] is None else f"{row['value']:,.4g}"
        beside = "" if known is None else f"{known:,.4g}"
        within = "" if row["within"] is None else ("yes" if row["within"] else "no")
        print(f"  {row['title']:26}{value:>10}  {between:22}{beside:>9} {row['unit']:8}{within}")


def table(answers: Mapping[str, ChipResult]) -> None:
    """Print die, base die, board power and bill of every chip as rows of a page."""
    print("| | die, mm2 | base die, mm2 | board, W | bill, USD |")
    print("|---" * (len(LAWS) + 1) + "|")
    for name, answer in answers.items():
        cells: list[str] = []
        rows = {row["figure"]: row for row in answer.rows()}
        for row in (rows.get(figure, {}) for figure in LAWS):
            if not row.get("low"):
                cells.append("")
                continue
            law, low, high = (f"{float(f'{row[x]:.3g}'):,.0f}" for x in ("value", "low", "high"))
            known, outside = row["published"], " outside" if row["within"] is False else ""
            beside = "" if known is None else f": {known:,.0f}{outside}"
            cells.append(f"{law} ({low} to {high}){beside}")
        print(f"| {name} | " + " | ".join(cells) + " |")
    area, power, bill = (f"{x.centre:.2f} ({x.deviation:.2f})" for x in ratios().values())
    print(f"| published over law | {area} | {area} | {power} | {bill} |")


def said(fitted: Mapping[str, Ratio]) -> str:
    """Ratios in words."""
    return ", ".join(f"{k} {x.centre:.2f} ({x.deviation:.2f})" for k, x in fitted.items())


def judged(name: str, answer: ChipResult, fitted: Mapping[str, Ratio]) -> dict[str, bool]:
    """Print the figures of a chip beside their ends, and return which lie within."""
    found: dict[str, bool] = {}
    for figure, (low, high, known) in judge(answer, fitted).items():
        found[figure] = low < known < high
        title, within = FIGURES[figure][0], "yes" if found[figure] else "no"
        counted = "" if figure in row_of(name).get("fit", ()) else "  (not counted)"
        print(f"  {name:18}{title:18}{low:10,.4g} to{high:10,.4g}{known:10,.4g} {within}{counted}")
    return found


def left_out(answers: Mapping[str, ChipResult]) -> None:
    """Print coverage of each maker's chips by ratios that were fitted to the others'."""
    print("\none maker left out: 80 % ends by ratios of the others, of figures that are published")
    counts: dict[str, tuple[int, int]] = dict.fromkeys(ORDER, (0, 0))
    for maker in dict.fromkeys(row_of(name)["maker"] for name in answers):
        fitted = fit(answers, {maker})
        print(f"{maker}, of {said(fitted)}")
        for name, answer in answers.items():
            if row_of(name)["maker"] != maker:
                continue
            for figure, within in judged(name, answer, fitted).items():
                if figure in row_of(name).get("fit", ()):
                    some, all_ = counts[LAWS[figure]]
                    counts[LAWS[figure]] = some + within, all_ + 1
    total = [sum(x) for x in zip(*counts.values(), strict=True)]
    by_law = ", ".join(f"{law} {some} of {all_}" for law, (some, all_) in counts.items())
    print(f"within: {total[0]} of {total[1]} figures ({by_law})")
    print("\nannounced, by the ratios of all that are sold; of SRAM alone, by those of the others")
    for name in ("rubin_cpx", "vera_rubin_nvl144"):
        judged(name, answers[name], ratios())
    alone = fit(answers, {"Groq", "Cerebras"})
    for name in ("groq_lpu", "wse3"):
        judged(name, answers[name], alone)


def main() -> None:
    """Print the tables."""
    answers = {name: ij.chip(name) for name in known_chips()}
    if "fit" in sys.argv:
        for law, ratio in fit(answers).items():
            row = f"centre = {ratio.centre:.4g}, deviation = {ratio.deviation:.4g}"
            print(f"{law} = {{ {row}, chips = {ratio.chips} }}")
        return
    if "table" in sys.argv:
        table(answers)
        return
    for answer in answers.values():
        show(answer)
    print(f"\nratios of all: {said(ratios())}")
    left_out(answers)


if __name__ == "__main__":
    main()
