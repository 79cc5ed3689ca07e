"""What does a small network add to the physics, from features that hold no rate of hardware?"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments._silicon import clean
from experiments._silicon.predictions import Fold
from experiments._silicon.rows import Row
from infer_jax.calibration import learn_residual, left_out

ENGINES = ("trtllm", "sglang", "vllm")
SCALES = (0.1, 0.3)  # ordinary size of what the physics leaves, in log: TPOT, TTFT
LEAST = 0.02  # share of the loss on left-out rows: less is what choosing the best round gives


def features(rows: Sequence[Row]) -> np.ndarray:
    """Dimensionless numbers of rows: loads, lengths, layout, formats and engine.

    Of the chip only its generation is told; of the model its shape, not its name.
    """
    return np.asarray([_features(row) for row in rows])


def _features(row: Row) -> list[float]:
    grid, formats, load = row.layout, row.formats, row.concurrency
    assert grid is not None and formats is not None and load is not None
    engine = [float(row.engine == name) for name in ENGINES]
    blackwell = float(clean.blackwell(row.system))
    fixed = float(row.source == "fixed_length")
    return [
        *np.log2([load, row.isl, row.osl, grid.tp, grid.dp, grid.moe_ep, grid.gpus]),
        np.log2(load * row.isl / row.osl),
        *engine,
        *(blackwell * e for e in engine),
        blackwell,
        fixed,
        *(fixed * e for e in engine),
        float(row.hidden_mtp),
        formats.attention_bits / 8.0,
        formats.feedforward_bits / 8.0,
        formats.dynamic,
    ]


def corrected(fold: Fold, rows: Sequence[Row]) -> Fold:
    """The fold's times with a residual learnt on the rows it saw.

    Training stops where left-out rows stop gaining: groups for rows of a model that was seen,
    whole models for those of another, where next to nothing carries over.
    """
    groups = np.asarray([" ".join(map(str, r.group)) for r in rows])
    families = np.asarray([r.family for r in rows])
    known = np.isin(families[fold.index], families[fold.counted])
    factor = np.zeros((2, len(fold.index)))
    for mine, labels in ((known, groups), (~known, families)):
        if mine.any():
            factor[:, mine] = _learnt(fold, rows, labels, mine)
    return replace(fold, times=fold.times * np.exp(factor))


def _learnt(fold: Fold, rows: Sequence[Row], labels: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """Logarithms of the factors on the fold's rows ``mine``, outputs x rows."""
    seen = np.flatnonzero(fold.counted)
    errors = left_out(fold.fit, np.tile(labels, 2).tolist(), np.tile(fold.counted, 2))
    left = -errors.reshape(2, -1)[:, seen].T
    every = features(rows)
    learnt = learn_residual(every[seen], left, labels[seen].tolist(), SCALES)
    return learnt(every[fold.index[mine]]).T * (learnt.gain >= LEAST)
