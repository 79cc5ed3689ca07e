"""Disaggregated rows: predicted by what aggregated ones taught, then with a few offsets more.

The theory is the house's: the serving model in two pools. Nothing of a row that is predicted was
fitted: the coefficients are the shipped fit of aggregated rows, and the offsets (of TTFT, by
engine) are of the other systems' rows.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments import _report
from experiments._silicon import clean, split
from experiments._silicon.split import Split, Workers
from infer_jax.calibrate import Score, offsets, score
from infer_jax.catalog import load_system
from infer_jax.errors import InputError
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.serving import Deployment, Requests, Serving
from infer_jax.estimators.serving.coefficients import ENGINES

OUTPUTS = ("tpot", "ttft")
MORE = 3  # further parameters: an offset of TTFT for each engine


def run(cv: str | None, file: Path | None, out: Path | None) -> dict[str, Any]:
    """Score the rows whose workers are known; print tables, and return the headline.

    Raises:
        InputError: folds that are not systems, which is the one way here.
    """
    if cv != "system" or file is not None or out is not None:
        what = "--folds" if file else "--out" if out else f"--cv {cv}"
        raise InputError("command line", "--mode disagg", what, "--cv system alone")
    scored, left = split.disaggregated()
    times = predicted(Serving.calibrated(), scored)
    moved = shifted(times, scored)
    headline: dict[str, Any] = {"rows": len(scored), "further_parameters": MORE}
    lines = []
    for what, found in (("of aggregated rows alone", times), ("and three offsets", moved)):
        scores = _scores(found, scored)
        lines += [(f"parameters {what}, {n}", s) for n, s in scores.items()]
        headline[what] = {name: s._asdict() for name, s in scores.items()}
    for system in sorted({r.system for r in scored}):
        among = [i for i, r in enumerate(scored) if r.system == system]
        part = _scores(moved[:, among], [scored[i] for i in among])
        lines += [(f"{system}, {n}", s) for n, s in part.items()]
    shown = [
        (what, s.rows, f"{s.median:.1f}", f"{s.mean:.1f}", f"{s.p90:.1f}", f"{s.spearman:.3f}")
        for what, s in lines
    ]
    columns = ("", "rows", "median %", "mean %", "p90 %", "Spearman")
    note = "offsets of a system's rows are of the other systems'"
    _report.show("Disaggregated rows", columns, shown, note)
    reasons = Counter(x.reason for x in left)
    _report.show("Rows left out", ("reason", "rows"), reasons.most_common())
    return {**headline, "left_out": dict(reasons)}


def predicted(model: Serving, rows: Sequence[Split]) -> np.ndarray:
    """TPOT and TTFT of rows in seconds, outputs x rows: one program a structure of model."""
    made = [_inputs(model, row) for row in rows]
    kinds: dict[Any, list[int]] = {}
    for i, given in enumerate(made):
        kinds.setdefault(jax.tree.structure(given), []).append(i)
    times = np.empty((2, len(rows)))
    one = jax.jit(jax.vmap(_estimate))
    for members in kinds.values():
        stacked = jax.tree.map(
            lambda *x: np.stack([np.asarray(v) for v in x]), *(made[i] for i in members)
        )
        times[:, members] = np.asarray(one(*stacked))
    return times


def shifted(times: np.ndarray, rows: Sequence[Split]) -> np.ndarray:
    """Times of each system's rows after offsets from the rows of the other systems."""
    measured = np.asarray([[getattr(r, name) for r in rows] for name in OUTPUTS])
    names = [r.engine for r in rows]
    systems = np.asarray([r.system for r in rows])
    found = times.copy()
    for system in set(systems):
        others, own = np.flatnonzero(systems != system), np.flatnonzero(systems == system)
        left = np.log(measured[1, others] / times[1, others])
        learnt = offsets(left, [[names[i] for i in others]], [0.0])
        found[1, own] *= np.exp(learnt.at([[names[i] for i in own]]))
    return found


def _inputs(model: Serving, row: Split) -> tuple:
    engine, generation = float(ENGINES.index(row.engine)), float(clean.blackwell(row.system))
    own = model.replace(engine=np.asarray(engine), generation=np.asarray(generation))
    scale = float(model.drawn_length) if row.source == "random_length" else 1.0
    per_instance = max(row.concurrency / row.decode.count, 1.0)
    workload = Requests.of(isl=scale * row.isl, osl=scale * row.osl, batch=per_instance)
    pools = Pools.of(
        prefill=_plan(row.prefill),
        decode=_plan(row.decode),
        prefill_copies=row.prefill.count,
        decode_copies=row.decode.count,
        prefill_batch=row.prefill.layout.dp,  # a prompt on every attention rank
    )
    hardware = load_system(row.profile).hardware
    return Disaggregated.of(target=own), row.architecture(), hardware, workload, pools


def _plan(workers: Workers) -> Deployment:
    grid = workers.layout
    return Deployment.of(tp=grid.tp, attention_dp=grid.dp, ep=grid.moe_ep)


def _estimate(theory: Disaggregated, arch: Any, hardware: Any, workload: Any, plan: Any) -> Any:
    life = theory.estimate(arch, hardware, workload, plan)
    return life.tpot, life.ttft


def _scores(times: np.ndarray, rows: Sequence[Split]) -> dict[str, Score]:
    return {
        name: score(times[k], np.asarray([getattr(r, name) for r in rows]))
        for k, name in enumerate(OUTPUTS)
    }
