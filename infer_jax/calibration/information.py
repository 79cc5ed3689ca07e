"""The run to measure next: the one expected to narrow predictions most."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from infer_jax.calibration.fitting import Fit
from infer_jax.errors import InputError


class Worth(NamedTuple):
    """A candidate: its place in the list, and the bits it adds beyond the ones chosen before.

    ``narrows`` is the share by which the deviation of the wanted predictions falls.
    """

    index: int
    bits: float
    narrows: float


def next_measurements(
    fit: Fit,
    candidates: np.ndarray,
    scale: float | Sequence[float],
    *,
    wanted: np.ndarray | None = None,
    covered: np.ndarray | None = None,
    count: int = 3,
) -> tuple[Worth, ...]:
    """The best next runs, one after the other (each assumed done before the next is chosen).

    A run with Jacobian j and noise s adds log2(1 + j C j^T / s^2) / 2 bits of information on the
    parameters, with C their covariance. With ``wanted``, the run that narrows these predictions
    most is chosen. Source: Lindley 1956; MacKay 1992 for the second.

    Args:
        fit: the fit so far.
        candidates: Jacobian of the log predictions of possible runs, runs x parameters.
        scale: noise of one run in log.
        wanted: Jacobian of the log predictions to narrow; None: the parameters.
        covered: covariance of the parameters; None: that of the fit's information.
        count: how many runs.

    Raises:
        InputError: candidates of another number of parameters, or none.
    """
    candidates = np.atleast_2d(np.asarray(candidates, float))
    if not candidates.size or candidates.shape[1] != len(fit.free):
        allowed = f"at least one row of {len(fit.free)} numbers"
        raise InputError("fit", "candidates", f"of shape {candidates.shape}", allowed)
    noise = np.broadcast_to(np.asarray(scale, float) ** 2, len(candidates))
    spread = np.linalg.pinv(fit.information) if covered is None else np.asarray(covered)
    goal = np.eye(len(fit.free)) if wanted is None else np.atleast_2d(wanted)
    chosen: list[Worth] = []
    for _ in range(min(count, len(candidates))):
        towards = candidates @ spread
        variance = np.sum(towards * candidates, axis=1)
        bits = 0.5 * np.log2(1.0 + variance / noise)
        before = np.sum((goal @ spread) * goal, axis=1)
        # by how much each candidate reduces the variance of every goal, by the rank-one update
        falls = (towards @ goal.T) ** 2 / (variance + noise)[:, None]
        total = falls.sum(axis=1) if wanted is not None else bits
        best = int(np.argmax(total))
        left = np.sqrt(np.maximum(before - falls[best], 0.0).sum() / before.sum())
        chosen.append(Worth(best, float(bits[best]), float(1.0 - left)))
        step = towards[best]
        spread = spread - np.outer(step, step) / (variance[best] + noise[best])
    return tuple(chosen)
