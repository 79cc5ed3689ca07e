"""The errors of AMD's rows by fits that have not seen their group or server, printed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import _report
from experiments._validation import makes, makes_folds
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
    columns = ("", "rows of", "rows", "median %", "mean %", "bias %")
    _report.show("AMD's rows: TPOT, latency of a batch or throughput", columns, lines)
    return headline
