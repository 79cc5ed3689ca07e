"""Bands of a publisher that a fit has not seen, by the law of errors of the seen ones.

Of the rows that a fit may see, each publisher is left out in turn and the fit is refitted to the
others, linearised where it is: a round of robust least squares is then a small equation.
"""

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.calibration.pooled.likelihood import (
    MEDIAN,
    TTFT,
    PooledProblem,
    PooledTimes,
    weights,
)
from infer_jax.calibration.pooled.publishers import FACTS, UnseenErrors, publisher_facts

ROUNDS, MAX_MOVE = 12, 1.0  # of a linear refit; the largest change of a coordinate


def unseen_errors(
    times: PooledTimes, made: PooledProblem, free: np.ndarray, seen: np.ndarray
) -> UnseenErrors:
    """The errors of all times: of ``seen`` ones without their publisher, of others by the fit.

    Args:
        free: coordinates of the fit to the ``seen`` times.
    """
    publishers = times.labels(lambda row: row.publisher)
    logs, slope = (np.asarray(x) for x in made.derivatives(free))
    errors = np.log(times.seconds) - logs
    columns = {name: np.zeros(len(errors)) for name in FACTS}
    parts = [(~seen, seen, np.zeros(len(free)))]
    for publisher in np.unique(publishers[seen]):
        own = publishers == publisher
        others = seen & ~own
        if others.any():
            moved = _linear_move(made, free, (logs, slope), weights(times, others))
            parts.append((seen & own, others, moved))
    for own, others, moved in parts:
        errors[own] -= slope[own] @ moved
        for name, values in publisher_facts(times, others).items():
            columns[name][own] = values[own]
    return UnseenErrors(errors, columns)


def _linear_move(
    made: PooledProblem, free: np.ndarray, model: tuple[np.ndarray, np.ndarray], weight: np.ndarray
) -> np.ndarray:
    """The change of coordinates at the minimum of the robust loss of the linearised model."""
    logs, slope = model
    used = weight > 0.0
    rows, left = slope[used], (logs - np.log(made.data))[used]
    size, weight = made.scale[used], weight[used]
    priors, point = made.prior_residuals, jnp.asarray(free)
    ends, bent = np.asarray(priors(point)), np.asarray(jax.jacfwd(priors)(point))
    moved = np.zeros(len(free))
    for _ in range(ROUNDS):
        z = (left + rows @ moved) / size
        counted = weight * np.asarray(made.loss.weight(jnp.asarray(z))) / size**2
        square = (rows.T * counted) @ rows + bent.T @ bent + 1e-6 * np.eye(len(free))
        best = -np.linalg.solve(square, (rows.T * counted) @ left + bent.T @ ends)
        moved = np.clip(0.5 * (moved + best), -MAX_MOVE, MAX_MOVE)
    return moved


def ends(
    unseen: UnseenErrors, times: PooledTimes, seen: np.ndarray, shares: tuple[int, ...]
) -> np.ndarray:
    """Ends of bands of each time not ``seen``, by the law of the seen ones: logs.

    Shares of rows in per cent x (low, high) x times.
    """
    bands = np.full((len(shares), 2, len(seen)), np.nan)
    pools, first = unseen.facts["pools"] > 0.5, np.isin(times.kind, (TTFT, MEDIAN))
    outputs = np.where(first, np.where(pools, "pools_ttft", "ttft"), "tpot")
    for output in np.unique(outputs[~seen]):
        own, sample = ~seen & (outputs == output), unseen.sample(times, str(output), seen)
        if sample.any():
            law = unseen.law(times, sample)
            edges = np.asarray([law.ends[share] for share in shares])
            bands[:, :, own] = edges[:, :, None] * unseen.scales(law, own)
    return bands
