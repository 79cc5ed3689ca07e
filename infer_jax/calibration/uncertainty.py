"""Covariance and intervals of a fit whose rows need not be independent."""

from collections.abc import Hashable, Sequence
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from infer_jax.calibration.fitted_leaves import Parameters
from infer_jax.errors import InputError

QUANTILES = {0.5: 0.6744897501960817, 0.8: 1.2815515655446004, 0.95: 1.959963984540054}

Square = Float[np.ndarray, "parameters parameters"]


@runtime_checkable
class LinearFit(Protocol):
    """The parts of a fit that its error bars need: rows, their slopes and weights, the prior."""

    @property
    def parameters(self) -> Parameters: ...
    @property
    def free(self) -> Float[np.ndarray, " parameters"]: ...
    @property
    def weights(self) -> Float[np.ndarray, " rows"]: ...
    @property
    def residuals(self) -> Float[np.ndarray, " rows"]: ...
    @property
    def jacobian(self) -> Float[np.ndarray, "rows parameters"]: ...
    @property
    def precision(self) -> Float[np.ndarray, " parameters"]: ...
    @property
    def counted(self) -> Float[np.ndarray, " rows"]: ...
    @property
    def stiffness(self) -> float: ...
    @property
    def information(self) -> Square: ...


def moved_without(fit: LinearFit, rows: Sequence[int]) -> Float[np.ndarray, " parameters"]:
    """The change of the coordinates when rows are left out, to first order.

    (A - k J^T W J)^-1 J^T W r, sums over the rows, where A is the information of all and k the
    stiffness; exact for least squares of a linear model. Source: the deletion formula of Cook and
    Weisberg 1982, section 3.5.
    """
    slope = fit.jacobian[rows]
    pull = slope.T * fit.counted[rows]
    others = fit.information - fit.stiffness * pull @ slope
    # a direction that no other row informs (or a value at its bound) hardly moves
    size = np.diag(fit.information)
    others = others + 1e-9 * np.diag(np.maximum(size, 1e-6 * size.max()))
    return np.linalg.solve(others, pull @ fit.residuals[rows])


def covariance(fit: LinearFit, clusters: Sequence[Hashable] | None = None) -> Square:
    """Covariance of the free coordinates by the jackknife over clusters, parameters x parameters.

    Without a cluster g of rows the coordinates move by m_g (``moved_without``); the covariance is
    (G - 1) / G times the sum of m_g m_g^T, and A^-1 prior A^-1 with A the information. It is the
    sandwich of Huber 1967, made wide enough for few clusters. ``clusters`` labels rows with
    correlated errors (one model, one machine); None: all rows are independent. Source: MacKinnon
    and White 1985; Bell and McCaffrey 2002 (CR3).

    Raises:
        InputError: another number of labels than rows, or fewer than two clusters.
    """
    rows = len(fit.weights)
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
    of_priors = bread @ np.diag(fit.precision) @ bread
    return moves.T @ moves * (len(members) - 1) / len(members) + of_priors


def interval(fit: LinearFit, covered: Square, share: float = 0.8) -> dict[str, tuple[float, float]]:
    """The ``share`` (0.5, 0.8 or 0.95) interval of each parameter, by name, in its own unit.

    Symmetric in the free coordinate, whose covariance is ``covered``; within the bounds. Near one
    of two bounds a large step of that coordinate changes the value little, so an end is cut where
    the tangent puts it.

    Raises:
        InputError: another share.
    """
    if share not in QUANTILES:
        raise InputError("fit", "share", share, ", ".join(map(str, QUANTILES)))
    reach = QUANTILES[share] * np.sqrt(np.maximum(np.diag(covered), 0.0))
    fitted = fit.parameters
    value, moved = (np.asarray(x) for x in jax.jvp(fitted.values, (fit.free,), (reach,)))
    ends = (fit.free - reach, fit.free + reach)
    low, high = (np.asarray(fitted.values(jnp.asarray(end))) for end in ends)
    both = np.isfinite(fitted.low) & np.isfinite(fitted.high)
    low = np.where(both, np.maximum(low, value - moved), low)
    high = np.where(both, np.minimum(high, value + moved), high)
    pairs = zip(map(float, low), map(float, high), strict=True)
    return dict(zip(fitted.names, pairs, strict=True))


def correlation(covered: Square) -> Square:
    """Correlations of a covariance: near 1 or -1, the data cannot tell two parameters apart."""
    deviation = np.sqrt(np.maximum(np.diag(covered), 1e-300))
    return covered / np.outer(deviation, deviation)
