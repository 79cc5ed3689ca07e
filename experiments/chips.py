"""Chips by the laws of silicon, beside what is published of them.

    python experiments/chips.py

A figure by law, the ends of 80 % of draws of its coefficients, and what is published: die areas of
makers and the press, bills of Epoch AI and Silicon Analysts (press). LLMCompass gives Aldebaran
arrays of twice the products that MI210 has, and all its links.
"""

import infer_jax as ij
from infer_jax.silicon.chips import known_chips
from infer_jax.verbs.chip_result import FIGURES

SHOWN = ("die_mm2", "full_power_w", "bill_usd", "embodied_kg", "flops_16_tflops", "limit_w")


def main() -> None:
    """Print the table."""
    for name in known_chips():
        found = ij.chip(name)
        published = found.published
        print(name)
        for figure in SHOWN:
            title, unit, factor, _ = FIGURES[figure]
            value, ends = found.figures[figure] * factor, [x * factor for x in found.ends[figure]]
            known = f"{published[figure]:,.4g}" if figure in published else "-"
            between = f"{ends[0]:,.4g} to {ends[1]:,.4g}"
            print(f"  {title:24}{value:10,.4g}  {between:20}{known:>9} {unit}")


if __name__ == "__main__":
    main()
