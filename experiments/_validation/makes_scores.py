"""The errors of AMD's rows by fits that have not seen their group or server, printed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import _report
from experiments._validation import makes, makes_folds
from experiments._validation.estimates import answers
from experiments._validation.row import Row
from experiments._validation.scores import score

FILES = ("inferencex_deepseek_r1.csv", "rocm_vllm_mi300x.csv", "mlperf_v5_1_llm.csv")


def run(rows: Sequence[Row]) -> dict[str, Any]:
    """Score every way of leaving out; print a table, and return the headline."""
    measured = np.asarray([row.measured[makes.output(row)] for row in rows])
    kinds = np.asarray([f"{row.system} {row.group.split()[2]} {makes.output(row)}" for row in rows])
    lines, headline = [], {}
    for way in makes_folds.WAYS:
        times = makes_folds.held_out(rows, way)
        for name, predicted in zip(("known build", "unknown build"), times, strict=True):
            for kind in ("all", *sorted(set(kinds))):
                among = (kinds == kind) | (kind == "all")
                one = score(predicted[among], measured[among])
                assert one is not None
                figures = (one.rows, round(one.median, 1), round(one.mean, 1), round(one.bias, 1))
                lines.append((f"{way} left out, {name}", kind, *figures))
                headline.setdefault(f"{way}, {name}", {})[kind] = dict(
                    zip(("rows", "median", "mean", "bias"), figures, strict=True)
                )
    lines += _of_another(rows, headline)
    columns = ("", "rows of", "rows", "median %", "mean %", "bias %")
    _report.show("AMD's rows: TPOT, latency of a batch or throughput", columns, lines)
    return headline


def _of_another(rows: Sequence[Row], headline: dict[str, Any]) -> list[tuple[Any, ...]]:
    """AMD's closed loops by the fit to NVIDIA's rows alone: with Hopper's coefficients."""
    model = makes.base()
    found = answers(rows, model.replace(cdna3=model.hopper, cdna4=model.hopper))
    loops, lines = [row.asked == "loop" and "ttft" in row.measured for row in rows], []
    for name in ("tpot", "ttft"):
        times = np.asarray([row.measured.get(name, np.nan) for row in rows])[loops]
        one = score(found[name][loops], times)
        if one is None:
            continue
        ratio = times / found[name][loops]
        within = {
            s: np.quantile(ratio, (0.5 - s / 200, 0.5 + s / 200)).round(3) for s in (50, 80, 95)
        }
        figures = (one.rows, round(one.median, 1), round(one.mean, 1), round(one.bias, 1))
        lines.append(("make left out", f"closed loops, {name.upper()}", *figures))
        headline.setdefault("make", {})[name] = {
            **dict(zip(("rows", "median", "mean", "bias"), figures, strict=True)),
            "within": {s: ends.tolist() for s, ends in within.items()},
        }
    return lines
