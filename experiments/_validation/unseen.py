"""Bands of a publisher that a fit has not seen, by the law of errors of the seen ones.

Of the rows that a fit may see, each publisher is left out in turn and the fit solved again.
"""

import numpy as np

from infer_jax.calibration.pooled.likelihood import PooledProblem, PooledTimes
from infer_jax.calibration.pooled.publishers import UnseenErrors, without_publishers


def unseen_errors(
    times: PooledTimes, made: PooledProblem, free: np.ndarray, seen: np.ndarray
) -> UnseenErrors:
    """The errors of all times: of ``seen`` ones without their publisher, of others by the fit.

    Args:
        free: coordinates of the fit to the ``seen`` times.
    """
    own = np.log(times.seconds) - np.asarray(made.logs(free))
    errors = without_publishers(times, made, free[None], seen)
    return UnseenErrors.of(times, np.where(seen, errors, own))


def ends(
    unseen: UnseenErrors, times: PooledTimes, seen: np.ndarray, shares: tuple[int, ...]
) -> np.ndarray:
    """Ends of bands of each time not ``seen``, by the law of the seen ones: logs.

    Shares of rows in per cent x (low, high) x times. A median of TTFT, which one publisher alone
    may have, errs by the law of means where no other has any.
    """
    bands = np.full((len(shares), 2, len(seen)), np.nan)
    known = seen & np.isfinite(unseen.errors)
    for name in np.unique(unseen.laws[~seen]).tolist():
        own = ~seen & (unseen.laws == name)
        some = [unseen.sample(times, x, known) for x in dict.fromkeys((name, "ttft"))]
        sample = next((x for x in some if x.any()), None)
        if sample is not None:
            law = unseen.law(times, sample)
            edges = np.asarray([law.ends[share] for share in shares])
            bands[:, :, own] = edges[:, :, None] * unseen.scales(law, own)
    return bands
