"""The pooled fit itself: from what is shipped, and from other starts drawn from the priors."""

import jax.numpy as jnp
import numpy as np

from infer_jax.calibration.fitting import at
from infer_jax.calibration.pooled.likelihood import STEPS, PooledProblem, PooledTimes, weights
from infer_jax.calibration.uncertainty import Fit


def starts(made: PooledProblem, count: int) -> np.ndarray:
    """Free coordinates to start from: those of the shipped fit, then points in the priors.

    The points are the normal quantiles of a scrambled Sobol sequence, so that few of them cover
    the priors evenly. Source: Owen 1998, J. Complexity 14.
    """
    first = np.asarray(made.starts(1, 0.0, 0))
    if count < 2:
        return first
    from scipy.stats import norm, qmc  # of jax's own requirements

    names = made.chosen.names
    draws = qmc.Sobol(len(names), rng=0).random_base2(int(np.ceil(np.log2(count - 1))))
    priors = [made.priors[name] for name in names]
    value, spread = (np.asarray(x) for x in zip(*priors, strict=True))
    points = value * np.exp(spread * norm.ppf(draws[: count - 1]))
    inside = np.minimum(points, 0.98 * made.chosen.high)  # at a bound slopes are 0
    return np.concatenate(
        [first, [np.asarray(made.chosen.unbounded(jnp.asarray(x))) for x in inside]]
    )


def solve_starts(made: PooledProblem, times: PooledTimes, count: int) -> Fit:
    """The best end of ``count`` starts; ``losses`` has half the sums of squares, in order."""
    counted = weights(times)
    ends, losses = made.solve(starts(made, count), counted, STEPS)
    return at(made, ends[0], counted, losses[0])
