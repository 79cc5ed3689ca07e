"""Chips by the laws of silicon, beside what is published of them, and chips that no fit saw.

    python experiments/chips.py          # every chip, and one maker left out at a time
    python experiments/chips.py fit      # the table [unlisted] of catalog/published/silicon.toml

A figure by law; the ends of 80 % of draws of its coefficients and of what the laws leave out; what
is published, of makers and the press; whether it lies within. LLMCompass gives Aldebaran arrays of
twice the products that MI210 has, and all its links.
"""

import sys
from collections.abc import Collection, Mapping

import jax
import numpy as np

import infer_jax as ij
from infer_jax.catalog.foreign import Parsed
from infer_jax.catalog.published.tables import tables
from infer_jax.silicon.chips import SiliconSystem, known_chips
from infer_jax.silicon.spread import (
    RATIO,
    Ratio,
    coefficient_deviations,
    draw_chips,
    fit_ratio,
    ratios,
    sample,
)
from infer_jax.verbs.chip_result import FIGURES, ChipResult, figures_of

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


def left_out(answers: Mapping[str, ChipResult]) -> None:
    """Print coverage of each maker's chips by ratios that were fitted to the others'."""
    print("\none maker left out: 80 % ends by ratios of the others, of figures that are published")
    counts: dict[str, tuple[int, int]] = dict.fromkeys(ORDER, (0, 0))
    for maker in dict.fromkeys(row_of(name)["maker"] for name in answers):
        fitted = fit(answers, {maker})
        text = ", ".join(f"{k} {x.centre:.2f} ({x.deviation:.2f})" for k, x in fitted.items())
        print(f"{maker}, of {text}")
        for name, answer in answers.items():
            if row_of(name)["maker"] != maker:
                continue
            for figure, (low, high, known) in judge(answer, fitted).items():
                within, seen = low < known < high, figure in row_of(name).get("fit", ())
                note = "" if seen else "  (not counted)"
                print(
                    f"  {name:18}{FIGURES[figure][0]:26}{low:10,.4g} to {high:10,.4g}"
                    f"{known:10,.4g} {'yes' if within else 'no'}{note}"
                )
                if seen:
                    some, all_ = counts[LAWS[figure]]
                    counts[LAWS[figure]] = some + within, all_ + 1
    total = [sum(x) for x in zip(*counts.values(), strict=True)]
    by_law = ", ".join(f"{law} {some} of {all_}" for law, (some, all_) in counts.items())
    print(f"within: {total[0]} of {total[1]} figures ({by_law})")


def main() -> None:
    """Print the tables."""
    answers = {name: ij.chip(name) for name in known_chips()}
    if "fit" in sys.argv:
        for law, ratio in fit(answers).items():
            row = f"centre = {ratio.centre:.4g}, deviation = {ratio.deviation:.4g}"
            print(f"{law} = {{ {row}, chips = {ratio.chips} }}")
        return
    for answer in answers.values():
        show(answer)
    print("\nratios of all:", {k: f"{x.centre} ({x.deviation})" for k, x in ratios().items()})
    left_out(answers)


if __name__ == "__main__":
    main()
