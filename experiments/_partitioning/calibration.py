"""Which coefficients do the measured cells give, how sure are they, and do they hold elsewhere?

One prior for all: an efficiency is near its data sheet, within a factor of e^0.25 (one standard
deviation). It decides what the cells leave open: whether large matmuls are slow, or narrow ones.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from experiments._partitioning.measured import Cell, predictor
from infer_jax.calibration import Fit, Prior, covariance, fit, interval, predict_held_out
from infer_jax.catalog import load_system
from infer_jax.estimators.partitioning import Partitioning
from infer_jax.specs import Hardware

EFFICIENCIES = ("flop_cap", "memory_cap", "network_cap")
BASELINE = ("flop_cap", "memory_cap", "layer_overhead")
PRIORS = {name: Prior(1.0, 0.25) for name in EFFICIENCIES}
BOUNDS = {"collective": (0.0, 50e-6), "layer_overhead": (0.0, 5e-3), "half_width": (0.0, 2e4)}
START: dict[str, float] = dict.fromkeys(EFFICIENCIES, 0.7)
START |= {"half_width": 1000.0, "collective": 3e-6, "layer_overhead": 1e-5}
START |= {"hidden_memory": 0.5, "hidden_network": 0.5}
NAMES = tuple(START)


def fitted(
    rows: Sequence[Cell],
    hardware: Hardware | None = None,
    names: Sequence[str] = NAMES,
    restarts: int = 6,
) -> Fit:
    """The model fitted to cells on TPU v4, or on ``hardware``."""
    tree, priors, bounds = _settings(names)
    seconds = [c.seconds for c in rows]
    with jax.enable_x64(True):
        predict = predictor(list(rows), hardware)
        return fit(predict, seconds, tree, names, priors=priors, bounds=bounds, restarts=restarts)


def gpus(rows: Sequence[Cell]) -> Fit:
    """The FasterTransformer columns, with the A100's own coefficients."""
    return fitted(rows, load_system("a100_sxm").hardware)


def spreads(result: Fit, rows: Sequence[Cell]) -> dict[str, tuple[float, float]]:
    """80 % intervals; cells of one column of one table err together."""
    with jax.enable_x64(True):
        clusters = [(c.table, c.series) for c in rows]
        return interval(result, covariance(result, clusters), 0.8)


def left_out(rows: Sequence[Cell], names: Sequence[str] = NAMES) -> np.ndarray:
    """Relative errors of every cell, each table predicted by a fit on the other two.

    With ``BASELINE`` as names, of three parameters: efficiency of compute and of memory, and a
    layer's overhead; the network is then the data sheet's and what can hide does.
    """
    tree, priors, bounds = _settings(names)
    seconds = [c.seconds for c in rows]
    folds = [c.table for c in rows]
    with jax.enable_x64(True):
        times = predict_held_out(
            predictor(list(rows)), seconds, tree, names, folds, priors=priors, bounds=bounds
        )
    return times / np.asarray(seconds) - 1.0


def _settings(names: Sequence[str]) -> tuple[Partitioning, dict[str, Prior], dict[str, Any]]:
    """Start, priors and bounds of a fit of these names; the others stay ideal."""
    begin = Partitioning.as_planned().with_(**{name: START[name] for name in names})
    priors = {name: p for name, p in PRIORS.items() if name in names}
    return begin, priors, {name: b for name, b in BOUNDS.items() if name in names}


def summary(errors: np.ndarray) -> tuple[float, float]:
    """(median, worst) absolute relative error."""
    size = np.abs(errors)
    return float(np.median(size)), float(size.max())
