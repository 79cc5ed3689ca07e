"""What five runs of a user's own server are worth: errors on its other rows, before and after.

Several draws of five rows of each server of InferenceX that has ten or more, calibrated as
`infer-jax calibrate` does; the server's other rows are predicted as before and with the fit.
"""

import time
from typing import Any

import numpy as np

from experiments import _report
from experiments._validation import board, estimates
from experiments._validation.split_scores import NOTES
from infer_jax.calibration.pooled import answers
from infer_jax.calibration.pooled.rows import AMD, PooledRow
from infer_jax.estimators.serving.server_coefficients import RUN_ERRORS


def table(rows: list[PooledRow], draws: int) -> dict[str, Any]:
    """Print median errors by make and time, and how often a server became worse; the figures."""
    rows = [row for row in rows if row.dataset.startswith("inferencex") and row.mode == "loop"]
    begin, servers = time.perf_counter(), estimates.servers(rows)
    shipped = estimates.answers(rows, answers.shipped_fit())
    errors: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    for seed in range(draws):
        found = estimates.five_runs(rows, seed)
        _report.say(f"draw {seed + 1}", begin)
        for own in servers.values():
            make = "AMD" if rows[own[0]].system in AMD else "NVIDIA"
            rest = [i for i in own if np.isfinite(found["tpot"][i])]
            for name in RUN_ERRORS:
                measured = board.measured(rows, name)[rest]
                before, after = (np.abs(x[name][rest] / measured - 1.0) for x in (shipped, found))
                errors.setdefault((make, name), []).append((before, after))
    figures: dict[str, Any] = {}
    lines = []
    for (make, name), pairs in errors.items():
        before, after = (
            100.0 * float(np.median(np.concatenate(x))) for x in zip(*pairs, strict=True)
        )
        rises = np.asarray([np.median(b) - np.median(a) for a, b in pairs])
        worse = 100.0 * float(np.mean(rises > RUN_ERRORS[name]))
        found = {"draws": len(pairs), "before": before, "after": after, "worse": worse}
        figures.setdefault(make, {})[name] = found
        shown = (f"{before:.1f}", f"{after:.1f}", f"{worse:.0f}")
        lines.append((make, name.upper(), len(pairs), *shown))
    columns = ("servers of", "", "draws", "before %", "after %", "worse %")
    title = "Five runs of a server: median errors of its other rows"
    _report.show(title, columns, lines, NOTES["five_runs"])
    return figures
