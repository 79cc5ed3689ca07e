"""Choices by the probability that a limit holds, scored on groups that no fit has seen.

Beside the choice by the mean (``decisions``): of the rows of a group whose limit on TPOT holds with
the asked confidence, by the bands of the fold, the one of the highest predicted throughput.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments._silicon import decisions, quantiles
from experiments._silicon.predictions import OUTPUTS, Fold, spread
from experiments._silicon.rows import Row
from infer_jax.physics.chance import Spread, holds, room

SHARES = (50, 80, 95)  # per cent, of the bands that tell a law of errors
CONFIDENCES = (0.5, 0.8, 0.9, 0.95)


def spreads(fold: Fold, rows: Sequence[Row]) -> list[Spread]:
    """The law of errors of TPOT of each row of a fold, from bands of several shares."""
    edges = [spread(fold.fit, rows, fold.index, fold.counted, s / 100.0) for s in SHARES]

    def law(j: int) -> Spread:
        bands = zip(SHARES, edges, strict=True)
        return Spread.of({s: (float(low[0, j]), float(high[0, j])) for s, (low, high) in bands})

    return [law(j) for j in range(len(fold.index))]


def by_confidence(
    rows: Sequence[Row],
    times: np.ndarray,
    laws: Sequence[Spread | None],
    confidence: float,
) -> decisions.Chooser:
    """Chooses the highest predicted throughput whose limit holds with that probability."""
    worth = decisions.throughput(rows, times[0], times[1])

    def choose(group: np.ndarray, limit: float) -> int | None:
        chances = [_chance(limit, times[0, i], laws[i]) for i in group]
        sure = group[np.asarray(chances) >= confidence]
        return int(sure[np.argmax(worth[sure])]) if len(sure) else None

    return choose


def _chance(limit: float, time: float, law: Spread | None) -> float:
    assert law is not None
    known = room(jnp.asarray(limit), jnp.asarray(time), law)
    return float(holds(known, jnp.zeros(()), 1.0))


def errors(found: Sequence[Fold], rows: Sequence[Row]) -> dict[str, Any]:
    """Quantiles of held-out errors of clean rows, and what rows of one group share of them."""
    index = [i for fold in found for i in fold.index if rows[i].clean]
    times = np.concatenate([f.times[:, [rows[i].clean for i in f.index]] for f in found], axis=1)
    left = np.log([[getattr(rows[i], name) for i in index] for name in OUTPUTS]) - np.log(times)
    kinds = [(rows[i].system, rows[i].engine) for i in index]
    groups = [rows[i].group for i in index]
    return {
        "within": quantiles.shown(left),
        "common": quantiles.common(left, kinds, groups),
    }


def decided(found: Sequence[Fold], rows: Sequence[Row]) -> dict[str, Any]:
    """The choices by the mean and at each confidence; prints their table."""
    among = np.asarray([r.clean for r in rows])
    among &= np.any([np.isin(np.arange(len(rows)), f.index) for f in found], axis=0)
    times = np.full((len(OUTPUTS), len(rows)), np.nan)
    laws: list[Spread | None] = [None] * len(rows)
    for fold in reversed(found):  # of several draws, a row's first stands
        times[:, fold.index] = fold.times
        for i, law in zip(fold.index, spreads(fold, rows), strict=True):
            laws[int(i)] = law
    made = {
        "by the mean": decisions.judge(rows, decisions.by_model(rows, times[0], times[1]), among)
    }
    for confidence in CONFIDENCES:
        chooser = by_confidence(rows, times, laws, confidence)
        made[f"at {confidence:.0%} confidence"] = decisions.judge(rows, chooser, among)
    decisions.show("Choice of layout and load by belief", made)
    return {**{name: c._asdict() for name, c in made.items()}, **errors(found, rows)}
