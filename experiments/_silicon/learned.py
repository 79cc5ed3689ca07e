"""What does a small network add to the physics, from features that hold no rate of hardware?"""

from collections.abc import Sequence

import numpy as np

from experiments._silicon import fit as fitting
from experiments._silicon.predictions import Fold
from experiments._silicon.rows import Row
from infer_jax.calibrate import learn_residual, left_out
from infer_jax.catalog import load_system

ENGINES = ("trtllm", "sglang", "vllm")


def features(rows: Sequence[Row]) -> np.ndarray:
    """Dimensionless numbers of rows: loads, lengths, layout, formats and engine.

    Of the chip only its generation is told; of the model its shape, not its name.
    """
    return np.asarray([_features(row) for row in rows])


def _features(row: Row) -> list[float]:
    grid, formats, load = row.layout, row.formats, row.concurrency
    assert grid is not None and formats is not None and load is not None
    engine = [float(row.engine == name) for name in ENGINES]
    blackwell = float(load_system(row.profile).hardware.chip.flops_4 > 0)
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
    """The fold's times with a residual learnt on the rows it saw."""
    seen = np.flatnonzero(fold.counted)
    groups = np.asarray([" ".join(map(str, r.group)) for r in rows])
    errors = left_out(fold.fit, np.tile(groups, 2).tolist(), np.tile(fold.counted, 2))
    left = -errors.reshape(2, -1)[:, seen].T
    every = features(rows)
    learnt = learn_residual(
        every[seen], left, groups[seen].tolist(), [2.0 * s for s in fitting.SCALES]
    )
    return fold._replace(times=fold.times * np.exp(learnt(every[fold.index])).T)
