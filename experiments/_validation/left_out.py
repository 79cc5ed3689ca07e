"""Errors of the shipped fit on what is new to it: systems, models, AMD's servers and make, pools.

Each NVIDIA system, each model and each server of AMD's is left out of the fit in turn, which is
solved again from what is shipped; the time of the left-out rows is then by coefficients alone.
AMD's chips by the fit to NVIDIA's rows have Hopper's coefficients. Two pools are rows of
aiconfigurator-core, of which no TTFT was ever fitted.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import _report
from experiments._silicon import disaggregated, split
from experiments._validation import everything, makes, ship, silicon
from experiments._validation.estimates import answers
from experiments._validation.everything import MEDIAN, PACE, TTFT, Measured
from experiments._validation.row import Row
from infer_jax.calibration import Fit
from infer_jax.catalog.files import write_text
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving

# what is left out, and of whose rows
WAYS = {
    "system": (lambda row: row.system, False),
    "model": (lambda row: row.served and row.served.model, False),
    "amd": (lambda row: row.group, True),
}
OUTPUTS = ("tpot", "ttft")


class Ratios(NamedTuple):
    """Measured over predicted by output, and how many ``kinds`` were left out one at a time."""

    kinds: int
    tpot: np.ndarray
    ttft: np.ndarray


def run(rows: list[Row], file: Path | None = None, fit: Fit | None = None) -> dict[str, Any]:
    """Print the errors by what is new, and return them; with ``file`` they end that file.

    ``fit``: another than the shipped one.

    Raises:
        InputError: aiconfigurator-core is not installed.
    """
    if not silicon.there():
        raise InputError("validation", "aiconfigurator-core", "absent", "installed: its rows count")
    model = makes.base() if fit is None else fit.tree
    found = refitted(Measured.of(rows), None if fit is None else fit.free)
    found |= {"make": of_another(rows, model), "pools": of_pools(model)}
    if file is not None:
        text = file.read_text().partition(ship.UNSEEN)[0]
        tables = (ship.table(f"unseen.{k}", len(x.tpot), x.tpot, x.ttft) for k, x in found.items())
        write_text(file, text + ship.UNSEEN + "".join(tables))
    lines, headline = [], {}
    for way, ratios in found.items():
        errors = [100.0 * float(np.median(np.abs(1.0 / x - 1.0))) for x in ratios[1:]]
        headline[way] = {"rows": len(ratios.tpot), **dict(zip(OUTPUTS, errors, strict=True))}
        lines.append((way, ratios.kinds or "-", len(ratios.tpot), *(f"{x:.1f}" for x in errors)))
    columns = ("new", "left out in turn", "rows", "TPOT, median %", "TTFT, median %")
    _report.show("Errors of what is new to the shipped fit", columns, lines)
    return headline


def refitted(times: Measured, free: np.ndarray | None = None) -> dict[str, Ratios]:
    """The ratios of systems, models and AMD's servers, each by a fit without it.

    ``free``: where the fits start; None: at what is shipped.
    """
    made, begun = everything.problem(times), time.perf_counter()
    start = made.starts(1, 0.0, 0) if free is None else free[None]
    loops = offered(times)
    amd = times.labels(lambda row: row.system in makes.CHIPS) == "True"
    logs = {}
    for way, (of, whose) in WAYS.items():
        scored = loops & (amd == whose)
        left = logs[way] = np.full(len(times.seconds), np.nan)
        for kind, own in kinds(times.labels(of), scored):
            ends, _ = made.solve(start, everything.weights(times, ~own), everything.STEPS)
            predicted = np.asarray(made.logs(ends[0]))
            places = own & scored
            left[places] = (np.log(times.seconds) - predicted)[places]
            _report.console().print(f"[dim]{time.perf_counter() - begun:6.1f} s[/]  without {kind}")
    first = np.isin(times.kind, (TTFT, MEDIAN))
    found = {}
    for way, left in logs.items():
        known = np.isfinite(left)
        count = len(set(times.labels(WAYS[way][0])[known]))
        paces = known & (times.kind == PACE)
        found[way] = Ratios(count, np.exp(left[paces]), np.exp(left[known & first]))
    return found


def offered(times: Measured) -> np.ndarray:
    """Closed loops of one pool of an engine that is offered, which ATOM is not."""
    return times.labels(lambda r: r.asked == "loop" and r.group.split()[2] != "atom") == "True"


def kinds(labels: np.ndarray, scored: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Every label among the scored times, and all times that have it."""
    for kind in np.unique(labels[scored]):
        yield str(kind), labels == kind


def of_another(rows: list[Row], model: Serving) -> Ratios:
    """AMD's closed loops by the fit to NVIDIA's rows: with Hopper's coefficients."""
    loops = [r for r in rows if makes.fitted(r) and r.asked == "loop" and "ttft" in r.measured]
    found = answers(loops, model.replace(cdna3=model.hopper, cdna4=model.hopper))
    ratios = (np.asarray([r.measured[n] for r in loops]) / found[n] for n in OUTPUTS)
    return Ratios(0, *ratios)


def of_pools(model: Serving) -> Ratios:
    """Rows of aiconfigurator-core in two pools, by a fit."""
    every, _ = split.disaggregated()
    rows = [row for row in every if row.unique]
    times = disaggregated.predicted(model, rows)
    measured = np.asarray([[getattr(row, name) for row in rows] for name in OUTPUTS])
    return Ratios(0, *(measured / times))
