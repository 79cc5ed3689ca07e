"""What does a user lose by choosing after the predictions? Regret under limits on TPOT.

Plans, choices and what they are worth: docs/validation.md, "What a user loses". Of equal plans the
newest is chosen. A row that says a TPOT which the data sheet's rates do not allow is no plan: what
it states was not in flight.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from experiments import _report
from experiments._validation import estimates, folds
from experiments._validation.split_scores import NOTES, Predicted, quantile
from infer_jax.calibration.pooled.answers import Columns, answers
from infer_jax.calibration.pooled.likelihood import METRICS, PACE, RATE, TTFT, PooledTimes
from infer_jax.calibration.pooled.rows import PooledRow
from infer_jax.calibration.uncertainty import rows_by_label
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment, Serving

LIMITS = np.geomspace(8e-3, 80e-3, 11)  # seconds a token
MIN_ROWS = 4  # plans of a question
CONFIDENCES = (0.5, 0.8, 0.9, 0.95)
MEAN_LENGTH = 0.9  # of drawn lengths over the stated ones
IMPOSSIBLE = 1.2  # times faster than at the data sheet's rates, without launches and hosts

# what plans of one question share beside model and lengths
AMONG: dict[str, Callable[[PooledRow], Hashable]] = {
    "all chips": lambda row: "",
    "a kind of chip": lambda row: row.system,
    "a server": lambda row: (row.publisher, row.group),
}


class Regret(NamedTuple):
    """Regret in per cent, per cent of choices that broke the limit, mean regret of the others."""

    questions: int
    median: float = np.nan
    mean: float = np.nan
    broken: float = np.nan
    kept: float = np.nan


def is_plan(row: PooledRow) -> bool:
    """Whether a row is a plan with a load whose TPOT and rate are known."""
    timed = "tpot" in row.measured and ("throughput" in row.measured or "ttft" in row.measured)
    return timed and row.mode in ("loop", "pools") and row.workload is not None


def is_possible(rows: Sequence[PooledRow]) -> np.ndarray:
    """Whether the data sheet's rates allow the measured TPOT of each plan, with some room."""
    least = answers(rows, Serving.roofline())["tpot"]
    return least <= IMPOSSIBLE * np.asarray([row.measured["tpot"] for row in rows])


def rates(rows: Sequence[PooledRow], columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Output tokens a second per GPU of all pools: as stated, or C O / (TTFT + (O - 1) TPOT)."""
    none = np.full(len(rows), np.nan)
    stated = columns.get("throughput", none) * np.asarray([row.chip_share for row in rows])
    requests, gpus, osl = np.asarray([in_flight(row) for row in rows]).reshape(-1, 3).T
    latency = columns.get("ttft", none) + (osl - 1.0) * columns["tpot"]
    return np.where(np.isfinite(stated), stated, requests * osl / latency / gpus)


def in_flight(row: PooledRow) -> tuple[float, float, float]:
    """Requests in flight, GPUs that serve them, and their mean output tokens."""
    work, plan = row.workload, row.plan
    assert work is not None and isinstance(plan, Deployment | Pools)
    copies, gpus = (
        (plan.decode_copies, plan.chips) if isinstance(plan, Pools) else (1.0, plan.instance)
    )
    drawn = MEAN_LENGTH if float(work.nominal) > 0.5 else 1.0
    return float(work.batch) * float(copies), float(gpus), float(work.osl) * drawn


def _questions(rows: Sequence[PooledRow], among: str) -> list[np.ndarray]:
    """Indices of the rows of each question; of all chips, those with two kinds or more."""
    groups = rows_by_label((row.model, row.lengths, AMONG[among](row)) for row in rows).values()
    kinds = 2 if among == "all chips" else 1
    enough = (x for x in groups if len(x) >= MIN_ROWS and len({rows[i].system for i in x}) >= kinds)
    return [np.asarray(own) for own in enough]


def regret(rows: Sequence[PooledRow], columns: Mapping[str, np.ndarray], among: str) -> Regret:
    """The regret of choices by predictions of ``rows``, all of them plans.

    ``columns``: TPOT, TTFT, rates; and ``bound``, the TPOT that is held to the limit, if another.
    """
    measured = {name: estimates.measured(rows, name) for name in ("tpot", "ttft", "throughput")}
    # where a source gives no rate, neither is the predicted one taken
    given = np.isfinite(measured["throughput"])
    stated = np.where(given, columns.get("throughput", np.nan), np.nan)
    worth, hoped = rates(rows, measured), rates(rows, {**columns, "throughput": stated})
    bound = columns.get("bound", columns["tpot"])
    tpot, load = measured["tpot"], np.asarray([float(r.workload.batch) for r in rows if r.workload])
    newest = np.argsort(np.argsort(np.asarray([row.date for row in rows]), kind="stable"))
    runs = rows_by_label((r.publisher, r.date, r.lengths, folds.layout(r)) for r in rows)
    alike = {i: own for own in runs.values() for i in own}
    lost, broken = [], []
    for group in _questions(rows, among):
        for limit in LIMITS:
            kept = group[tpot[group] <= limit]
            if not len(kept):
                continue
            chosen = group[bound[group] <= limit]
            gained, breaks = 0.0, False
            if len(chosen):
                choice = int(chosen[np.lexsort((newest[chosen], hoped[chosen]))[-1]])
                breaks = bool(tpot[choice] > limit)
                less = [i for i in alike[choice] if load[i] < load[choice] and tpot[i] <= limit]
                gained = max(worth[less], default=0.0) if breaks else worth[choice]
            lost.append(100.0 * (1.0 - gained / worth[kept].max()))
            broken.append(breaks)
    if not lost:
        return Regret(0)
    kept = np.asarray(lost)[~np.asarray(broken, bool)]
    figures = (np.median(lost), np.mean(lost), 100.0 * np.mean(broken), np.mean(kept))
    return Regret(len(lost), *map(float, figures))


def of_split(times: PooledTimes, found: Predicted) -> dict[str, Any]:
    """The table of rows left out: by coefficients, with offsets, and so at a confidence."""
    ways = {"coefficients": left_out(times, found.plain)}
    offset = ways["with offsets of other runs"] = left_out(times, found.offset)
    pace = (times.kind == PACE) & np.isfinite(found.bands).all(axis=(0, 1))
    for confidence in CONFIDENCES:
        bound = np.full(len(times.rows), np.nan)
        logs = quantile(confidence, found.bands[:, :, pace])
        bound[times.row[pace]] = offset["tpot"][times.row[pace]] * np.exp(logs)
        ways[f"so, at {confidence:.0%} confidence"] = offset | {"bound": bound}
    ways["aiconfigurator 0.12"] = estimates.aiconfigurator(times.rows)
    return table(times.rows, ways)


def left_out(times: PooledTimes, logs: np.ndarray) -> Columns:
    """Predictions of all rows by metric, from log(measured / predicted) of their times."""
    columns, seconds = {}, times.seconds * np.exp(-logs)
    for kind, name in ((PACE, "tpot"), (TTFT, "ttft"), (RATE, "throughput")):
        own = (times.kind == kind) & (times.metric == METRICS.index(name))
        columns[name] = np.full(len(times.rows), np.nan)
        columns[name][times.row[own]] = seconds[own] ** (-1.0 if name == "throughput" else 1.0)
    return columns


def table(rows: Sequence[PooledRow], found: Mapping[str, Columns]) -> dict[str, Any]:
    """Print the regret of choices by each estimator, and return it.

    The first estimator is scored on all plans, and beside each other one on those of both.
    """
    plans = np.asarray([i for i, row in enumerate(rows) if is_plan(row)], int)
    possible = is_possible([rows[i] for i in plans])
    plans, impossible = plans[possible], int(np.sum(~possible))
    figures: dict[str, Any] = {}
    lines = []
    first, *others = [name for name, columns in found.items() if "tpot" in columns]
    own = _of_plans(rows, found, [first], plans)
    parts = [(own, {first: first})]
    for other in others:
        both = _of_plans(rows, found, [first, other], plans)
        again = {first: f"{first} where {other} answers"} if len(both) < len(own) else {}
        parts.append((both, again | {other: other}))
    for kept, names in parts:
        for among, (name, key) in product(AMONG, names.items()):
            columns = {k: x[kept] for k, x in found[name].items()}
            one = regret([rows[i] for i in kept], columns, among)
            if one.questions:
                figures.setdefault(key, {})[among] = one._asdict() | {"rows": len(kept)}
                shown = (f"{x:.1f}" for x in one[1:])
                lines.append((f"{key}, among {among}", len(kept), one.questions, *shown))
    columns = ("chosen by", "rows", "questions", "median %", "mean %", "broken %", "else mean %")
    ends = {"limits": len(LIMITS), "least": 1e3 * LIMITS[0], "most": 1e3 * LIMITS[-1]}
    note = NOTES["regret"].format(**ends, impossible=impossible, times=IMPOSSIBLE)
    if lines:
        _report.show("What a user loses by choosing after the predictions", columns, lines, note)
    return figures


def _of_plans(
    rows: Sequence[PooledRow], found: Mapping[str, Columns], names: Sequence[str], plans: np.ndarray
) -> np.ndarray:
    """The plans whose TPOT and rate all of these estimators answer."""
    known = [rows[i] for i in plans]
    answered = np.ones(len(plans), bool)
    for name in names:
        columns = {k: x[plans] for k, x in found[name].items()}
        answered &= np.isfinite(columns["tpot"]) & np.isfinite(rates(known, columns))
    return plans[answered]
