"""Disaggregated rows: predicted by what aggregated ones taught, then with a few offsets more.

The theory is the house's: the serving model in two pools. Nothing of a row that is predicted was
fitted: the coefficients are the shipped fit of aggregated rows, and the offsets (of TPOT, and of
TTFT by engine) are of the rows of other folds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments import _report
from experiments._silicon import clean, folds as folding, quantiles, score, split
from experiments._silicon.aggregated import UNDRAWN, figures, table
from experiments._silicon.predictions import OUTPUTS, Held
from experiments._silicon.split import Split, Workers
from infer_jax.calibration import bands, offsets
from infer_jax.catalog import load_system
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload
from infer_jax.estimators.serving.engines import ENGINES

MORE = 4  # further parameters: an offset of TPOT, and one of TTFT for each engine
LIKENESS = {"engine": 4.0, "system": 2.0}


def run(
    cv: str | None, file: Path | None, out: Path | None, confidence: bool = False
) -> dict[str, Any]:
    """Score the rows whose workers are known; print tables, and return the headline."""
    every, left = split.disaggregated()
    rows = [r for r in every if r.unique]
    if file is not None:
        asked = folding.read(file)
        inside = folding.given(asked, every)
    else:
        asked = dict.fromkeys((r.id for r in (*every, *left)), "")
        inside = folding.folds(rows, str(cv))
    entries = folding.entries(every, asked)
    times = predicted(Serving.of(), rows)
    headline: dict[str, Any] = {"rows": len(rows), "further_parameters": MORE}
    if confidence:
        said = {name: [getattr(r, name) for r in rows] for name in OUTPUTS}
        headline["within"] = quantiles.shown(np.log([said[n] for n in OUTPUTS]) - np.log(times))
    found = {
        "aggregated rows alone": held(times, rows, inside, shifts=False),
        "and four offsets": held(times, rows, inside, shifts=True),
    }
    lines = []
    for what, folds in found.items():
        scores = {
            "clean": score.pooled(folds, rows, lambda r: True),
            "all": score.pooled(folds, rows, lambda r: True, entries),
        }
        told = {n: {k: figures(s[n]) for k, s in scores.items()} for n in OUTPUTS}
        headline |= told if what.startswith("and") else {what: told}
        lines += [(f"{what}, {k} rows, {n}", s[n]) for k, s in scores.items() for n in OUTPUTS]
    for fold in found["and four offsets"]:
        part = score.pooled([fold], rows, lambda r: True)
        lines += [(f"fold {fold.name}, {name}", one) for name, one in part.items()]
    note = "offsets and bands of a fold's rows are of the other folds'"
    table("Disaggregated rows, parameters of", lines, note)
    there = {rows[i].id for fold in found["and four offsets"] for i in fold.index}
    reasons = {x.id: x.reason for x in left if x.id in asked}
    reasons |= {r.id: UNDRAWN for r in every if r.id in asked and r.first not in there}
    reasons |= folding.elsewhere(asked, (*every, *left))
    counts = Counter(reasons.values())
    _report.show("Rows left out", ("reason", "rows"), counts.most_common())
    if out is not None:
        score.write(out, found["and four offsets"], rows, entries, reasons)
    return {**headline, "left_out": dict(counts)}


def held(
    times: np.ndarray, rows: Sequence[Split], inside: Mapping[str, np.ndarray], *, shifts: bool
) -> list[Held]:
    """Every fold with bands, and offsets if asked for, from the rows of the others."""
    left = np.log([[getattr(r, name) for r in rows] for name in OUTPUTS]) - np.log(times)
    labels = {
        "engine": np.asarray([r.engine for r in rows]),
        "system": np.asarray([r.system for r in rows]),
    }
    alike = np.asarray([f"{r.family} {r.system} {r.engine}" for r in rows])
    listed = np.any(list(inside.values()), axis=0)
    found = []
    for name, own in inside.items():
        index, others = np.flatnonzero(own), np.flatnonzero(listed & ~own)
        moved, factors = times[:, index].copy(), []
        for k, level in enumerate((np.full(len(rows), "all"), labels["engine"])):
            shift = np.zeros(len(rows))
            if shifts:
                learnt = offsets(left[k, others], [level[others].tolist()], [0.0])
                shift = learnt.at([level.tolist()])
            moved[k] *= np.exp(shift[index])
            factors.append(
                bands(
                    (shift - left[k])[others],
                    {n: x[others].tolist() for n, x in labels.items()},
                    {n: x[index].tolist() for n, x in labels.items()},
                    LIKENESS,
                    clusters=alike[others].tolist(),
                )
            )
        low, high = (
            moved * np.exp([getattr(f, side) for f in factors]) for side in ("low", "high")
        )
        found.append(Held(name, index, moved, low, high))
    return found


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


def _inputs(model: Serving, row: Split) -> tuple:
    engine, generation = float(ENGINES.index(row.engine)), float(clean.blackwell(row.system))
    own = model.replace(engine=np.asarray(engine), generation=np.asarray(generation))
    scale = float(model.drawn_length) if row.source == "random_length" else 1.0
    per_instance = max(row.concurrency / row.decode.count, 1.0)
    workload = ServingWorkload.of(isl=scale * row.isl, osl=scale * row.osl, batch=per_instance)
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
    decoding = theory.decoding(arch, hardware, workload, plan)
    life = theory.estimate(arch, hardware, workload.replace(batch=decoding), plan)
    return life.tpot, life.ttft
