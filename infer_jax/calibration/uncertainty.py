"""How sure is a fit? Covariance that does not trust the rows to be independent."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.calibration.cross_validation import labelled
from infer_jax.calibration.fit import Fit, moved_without
from infer_jax.calibration.problem import Problem
from infer_jax.errors import InputError

QUANTILES = {0.5: 0.6744897501960817, 0.8: 1.2815515655446004, 0.95: 1.959963984540054}


def covariance(fit: Fit, clusters: Sequence[Any] | None = None) -> np.ndarray:
    """Covariance of the free coordinates by the jackknife over clusters, parameters x parameters.

    Without a cluster g of rows the coordinates move by m_g (``moved_without``); the covariance is
    (G - 1) / G times the sum of m_g m_g^T, and A^-1 prior A^-1 with A the information. It is the
    sandwich of Huber 1967, made wide enough for few clusters. ``clusters`` labels rows whose
    errors belong together (one model, one machine); None: every row is alone. Source: MacKinnon
    and White 1985; Bell and McCaffrey 2002 (CR3).

    Raises:
        InputError: another number of labels than rows, or fewer than two clusters.
    """
    rows = len(fit.measured)
    labels = list(range(rows)) if clusters is None else list(clusters)
    if len(labels) != rows:
        raise InputError("fit", "clusters", len(labels), f"a label for each of {rows} rows")
    members: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        if fit.weights[i] > 0:
            members.setdefault(str(label), []).append(i)
    if len(members) < 2:
        raise InputError("fit", "clusters", len(members), "at least 2")
    moves = np.stack([moved_without(fit, inside) for inside in members.values()])
    bread = np.linalg.pinv(fit.information)
    held = bread @ np.diag(fit.precision) @ bread
    return moves.T @ moves * (len(members) - 1) / len(members) + held


def interval(fit: Fit, covered: np.ndarray, share: float = 0.8) -> dict[str, tuple[float, float]]:
    """The ``share`` (0.5, 0.8 or 0.95) interval of each parameter, by name, in its own unit.

    Symmetric in the free coordinate, whose covariance is ``covered``; within the bounds. Near one
    of two bounds that coordinate runs far for nothing: no end is further than the tangent puts it.

    Raises:
        InputError: another share.
    """
    if share not in QUANTILES:
        raise InputError("fit", "share", share, ", ".join(map(str, QUANTILES)))
    reach = QUANTILES[share] * np.sqrt(np.maximum(np.diag(covered), 0.0))
    made = fit.parameters
    value, moved = (np.asarray(x) for x in jax.jvp(made.values, (fit.free,), (reach,)))
    low, high = (np.asarray(made.values(jnp.asarray(fit.free + sign * reach))) for sign in (-1, 1))
    both = np.isfinite(made.low) & np.isfinite(made.high)
    low = np.where(both, np.maximum(low, value - moved), low)
    high = np.where(both, np.minimum(high, value + moved), high)
    pairs = zip(map(float, low), map(float, high), strict=True)
    return dict(zip(made.names, pairs, strict=True))


def correlation(covered: np.ndarray) -> np.ndarray:
    """Correlations of a covariance: near 1 or -1, the data cannot tell two parameters apart."""
    deviation = np.sqrt(np.maximum(np.diag(covered), 1e-300))
    return covered / np.outer(deviation, deviation)


def bootstrap(
    problem: Problem,
    clusters: Sequence[Any],
    *,
    weights: Any = None,
    start: Any = None,
    draws: int = 40,
    seed: int = 0,
    steps: int = 100,
) -> np.ndarray:
    """Free coordinates refitted to clusters drawn with replacement, draws x parameters.

    A cluster drawn twice counts twice; the fits share one compiled program. Source: Efron and
    Tibshirani 1993, chapter 8.

    Raises:
        InputError: another number of labels than rows, or fewer than two clusters; see ``fit``.
    """
    inside = labelled(clusters, len(problem.data))
    member = np.stack(list(inside.values()))
    random = np.random.default_rng(seed)
    picked = random.multinomial(len(member), np.full(len(member), 1.0 / len(member)), size=draws)
    begin = problem.starts(1, 0.0, 0) if start is None else np.atleast_2d(start)
    ends, _ = problem.solve(begin, picked @ member * problem.weighted(weights), steps)
    return ends
