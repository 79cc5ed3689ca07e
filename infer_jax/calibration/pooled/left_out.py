"""Errors of the fit on what is new to it: systems, models, AMD's servers and make, pools.

Each NVIDIA system, each model and each server of AMD's is left out of the fit in turn, which is
solved again from what is shipped; the time of the left-out rows is then by coefficients alone.
AMD's chips by the fit to NVIDIA's rows have Hopper's coefficients. Two pools are rows of
aiconfigurator-core, of which no TTFT was ever fitted.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from infer_jax.calibration.cross_validation import label_masks, refits
from infer_jax.calibration.pooled.answers import answers, shipped_fit
from infer_jax.calibration.pooled.likelihood import (
    MEDIAN,
    PACE,
    STEPS,
    TTFT,
    PooledTimes,
    problem,
    weights,
)
from infer_jax.calibration.pooled.rows import AMD, PooledRow
from infer_jax.calibration.uncertainty import Fit
from infer_jax.estimators.serving import Deployment, Serving

OUTPUTS = ("tpot", "ttft")
# what is left out one at a time, and whether of AMD's rows
KINDS: dict[str, tuple[Callable[[PooledRow], str], bool]] = {
    "system": (lambda row: row.system, False),
    "model": (lambda row: row.model, False),
    "amd": (lambda row: row.group, True),
}


class NewErrors(NamedTuple):
    """Measured over predicted by output, and how many kinds were left out one at a time."""

    kinds: int
    tpot: np.ndarray
    ttft: np.ndarray

    def medians(self) -> dict[str, float]:
        """The median error of each output, per cent."""
        ratios = (self.tpot, self.ttft)
        errors = (100.0 * float(np.median(np.abs(1.0 / x - 1.0))) for x in ratios)
        return dict(zip(OUTPUTS, errors, strict=True))


def new_errors(
    rows: Sequence[PooledRow], fit: Fit | None = None, say: Callable[[str], None] = print
) -> dict[str, NewErrors]:
    """The errors by what is new. ``fit``: another than the shipped one; ``say``: of progress."""
    model = shipped_fit() if fit is None else fit.tree
    errors = refit_errors(PooledTimes.of(rows), None if fit is None else fit.free, say)
    return errors | {"make": of_another_make(rows, model), "pools": of_pools(rows, model)}


def refit_errors(
    times: PooledTimes, free: np.ndarray | None, say: Callable[[str], None]
) -> dict[str, NewErrors]:
    """The errors of systems, models and AMD's servers, each by a fit without it.

    ``free``: where the fits start; None: at what is shipped.
    """
    made = problem(times)
    start = made.starts(1, 0.0, 0) if free is None else free
    loops, first = offered_loops(times), np.isin(times.kind, (TTFT, MEDIAN))
    amd = np.asarray([row.system in AMD for row in times.rows])[times.row]
    errors = {}
    for name, (label, of_amd) in KINDS.items():
        scored, labels = loops & (amd == of_amd), times.labels(label)
        folds, ratios = label_masks(labels, scored), np.full(len(times.seconds), np.nan)
        for fold in refits(made, folds, weights=weights(times), starts=start, steps=STEPS):
            own = fold.inside & scored
            ratios[own] = np.exp(np.log(times.seconds) - np.asarray(made.logs(fold.free)))[own]
            say(f"without {fold.name}")
        left = np.isfinite(ratios)
        paces, firsts = ratios[left & (times.kind == PACE)], ratios[left & first]
        errors[name] = NewErrors(len(set(labels[left])), paces, firsts)
    return errors


def offered_loops(times: PooledTimes) -> np.ndarray:
    """Closed loops of one pool of an engine that is offered, which ATOM is not."""
    loops = [row.mode == "loop" and row.framework != "atom" for row in times.rows]
    return np.asarray(loops)[times.row]


def of_another_make(rows: Sequence[PooledRow], model: Serving) -> NewErrors:
    """AMD's closed loops by the fit to NVIDIA's rows: with Hopper's coefficients."""

    def is_scored(row: PooledRow) -> bool:
        loop = row.system in AMD and row.mode == "loop" and "ttft" in row.measured
        return loop and isinstance(row.plan, Deployment) and float(row.plan.drafts) == 0.0

    loops = [row for row in rows if is_scored(row)]
    return _errors(loops, model.replace(cdna3=model.hopper, cdna4=model.hopper))


def of_pools(rows: Sequence[PooledRow], model: Serving) -> NewErrors:
    """Rows of aiconfigurator-core in two pools, by a fit."""
    pools = [row for row in rows if row.dataset == "silicon pools"]
    return _errors(pools, model)


def _errors(rows: Sequence[PooledRow], model: Serving) -> NewErrors:
    columns = answers(rows, model)
    ratios = (np.asarray([r.measured[n] for r in rows]) / columns[n] for n in OUTPUTS)
    return NewErrors(0, *ratios)
