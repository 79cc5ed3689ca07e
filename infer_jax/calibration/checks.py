"""Posterior predictive checks: whether measurements could have come from a fit."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from infer_jax.calibration.fitting import Fit


class Check(NamedTuple):
    """One statistic of the residuals: as measured, its 80 % range in replicas, how extreme.

    ``extreme`` is the share of replicas at least as large; near 0 or 1 the fit does not explain it.
    """

    name: str
    measured: float
    low: float
    high: float
    extreme: float

    @property
    def passes(self) -> bool:
        """True where at least 1 % of the replicas lie on each side."""
        return 0.01 <= self.extreme <= 0.99


def predictive_checks(
    fit: Fit,
    covered: np.ndarray,
    scale: float,
    trends: Mapping[str, ArrayLike] | None = None,
    draws: int = 500,
    seed: int = 0,
) -> tuple[Check, ...]:
    """Statistics of log(measured / predicted), against replicas drawn from the posterior.

    A replica has parameters of covariance ``covered`` and independent noise of size ``scale``.
    Checked: the spread, the worst row, the lag-one autocorrelation (neighbouring rows are runs of
    one server, whose errors are alike where it is positive), and the correlation with each of
    ``trends`` (such as log concurrency), which a wrong functional form leaves. Source: Gelman, Meng
    and Stern 1996.
    """
    random = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(covered)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    moves = random.normal(size=(draws, len(values))) @ root.T
    replicas = moves @ fit.jacobian.T + scale * random.normal(size=(draws, len(fit.measured)))
    used = fit.weights > 0
    seen = np.vstack([-fit.residuals[None], replicas])[:, used]
    statistics = {
        "spread": np.std(seen, axis=1),
        "worst row": np.max(np.abs(seen), axis=1),
        "likeness of neighbours": _likeness(seen),
    }
    for name, values in (trends or {}).items():
        along = np.asarray(values, float)[used]
        along = (along - along.mean()) / max(float(along.std()), 1e-300)
        statistics[f"trend with {name}"] = np.mean(seen * along, axis=1)
    return tuple(_check(name, values) for name, values in statistics.items())


def _likeness(seen: np.ndarray) -> np.ndarray:
    centred = seen - seen.mean(axis=1, keepdims=True)
    together = np.mean(centred[:, 1:] * centred[:, :-1], axis=1)
    return together / np.maximum(np.mean(centred**2, axis=1), 1e-300)


def _check(name: str, values: np.ndarray) -> Check:
    measured, replicas = values[0], values[1:]
    low, high = np.quantile(replicas, (0.1, 0.9))
    extreme = float(np.mean(replicas >= measured))
    return Check(name, float(measured), float(low), float(high), extreme)
