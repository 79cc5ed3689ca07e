"""Are limits kept as often as was asked? Measured rows as the plans that are chosen from.

Rows of one server and lengths are plans. Under a limit on one time, at the quartiles of measured
ones, the plan is the row of most predicted tokens/s per GPU among those whose limit holds with the
asked probability, as `plan --confidence` believes; was its measured time within the limit?
"""

from typing import Any

import numpy as np

from experiments import _report
from experiments._validation import board
from experiments._validation.decisions import in_flight
from experiments._validation.split_scores import SHARES, quantile
from infer_jax.calibration.pooled import answers
from infer_jax.calibration.pooled.likelihood import MEDIAN, PACE, TTFT, PooledTimes
from infer_jax.calibration.pooled.publishers import LAW_OF_KIND
from infer_jax.calibration.pooled.rows import AMD, PooledRow
from infer_jax.calibration.uncertainty import rows_by_label

QUARTILES = (0.25, 0.5, 0.75)
MIN_ROWS = 4  # rows of a server and lengths
LINES = {PACE: "TPOT", TTFT: "TTFT", MEDIAN: "TTFT, median"}
GOAL = (75.0, 88.0)  # per cent of limits kept at a confidence of 80 %


def shipped(rows: list[PooledRow]) -> tuple[PooledTimes, np.ndarray, np.ndarray]:
    """Times of rows, their logs of measured over predicted by the shipped fit, and their bands."""
    rows = [row for row in rows if row.mode in answers.LAWS]
    times = PooledTimes.of(rows)
    predicted = times.predicted(answers.answers(rows, answers.shipped_fit()))
    within = [board.within(row) for row in rows]
    none = dict.fromkeys(SHARES, (np.nan, np.nan))
    ends = [
        [within[i].get(LAW_OF_KIND.get(kind, "tpot"), none)[share] for share in SHARES]
        for i, kind in zip(times.row.tolist(), times.kind.tolist(), strict=True)
    ]
    return times, np.log(times.seconds / predicted), np.log(np.asarray(ends)).transpose(1, 2, 0)


def table(
    times: PooledTimes, errors: np.ndarray, bands: np.ndarray, confidence: float
) -> dict[str, Any]:
    """Print how often limits are kept, by make, pools and time; the figures.

    Args:
        errors: log(measured / predicted) of the times.
        bands: its ends by share, shares x 2 x times.
    """
    believed = np.log(times.seconds) - errors + quantile(confidence, bands)
    kept: dict[tuple[str, str], list[bool]] = {}
    for kind, line in LINES.items():
        usable = np.flatnonzero((times.kind == kind) & np.isfinite(believed))
        rows = (times.rows[i] for i in times.row[usable])
        groups = rows_by_label((r.dataset, r.group, r.served, r.lengths, r.mode) for r in rows)
        for members in groups.values():
            own = usable[members]
            if len(own) < MIN_ROWS:
                continue
            row, worth = times.rows[int(times.row[own[0]])], _worth(times, errors, own)
            make = "AMD" if row.system in AMD else "NVIDIA"
            where = f"{make}, pools" if row.mode == "pools" else make
            for limit in np.log(np.quantile(times.seconds[own], QUARTILES)):
                holds = np.flatnonzero(believed[own] <= limit)
                if len(holds):
                    chosen = own[holds[np.argmax(worth[holds])]]
                    held = bool(np.log(times.seconds[chosen]) <= limit)
                    for name in (where, "all"):
                        kept.setdefault((line, name), []).append(held)
    figures: dict[str, Any] = {}
    lines = []
    for (line, where), held in kept.items():
        share = 100.0 * float(np.mean(held))
        figures.setdefault(line, {})[where] = {"choices": len(held), "kept": round(share, 1)}
        lines.append((line, where, len(held), f"{share:.0f}"))
    title = f"Limits kept by plans that hold with {100 * confidence:g} %"
    note = f"Goal at 80 %: {GOAL[0]:g} to {GOAL[1]:g} % on every make."
    _report.show(title, ("limit on", "plans on", "choices", "kept %"), lines, note)
    return figures


def _worth(times: PooledTimes, errors: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Log of predicted output tokens/s per GPU of the rows of some times, but for their TTFT."""
    worth = []
    for j in own.tolist():
        load, chips, _ = in_flight(times.rows[int(times.row[j])])
        (pace,) = np.flatnonzero((times.row == times.row[j]) & (times.kind == PACE))[:1]
        worth.append(np.log(load / chips / times.seconds[pace]) + errors[pace])
    return np.asarray(worth)
