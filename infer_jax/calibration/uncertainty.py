"""A fit with its error bars: covariance, intervals, and which parameters the data determine.

Rows need not be independent: errors of one model or machine are correlated.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.calibration.bounds import Parameters
from infer_jax.errors import InputError


class Loss(NamedTuple):
    """A loss rho of a standardised residual z, rho(z) = z^2 where z is small.

    ``root`` is sign(z) sqrt(rho(z)), smooth at 0 with slope 1, for least squares; ``weight`` is
    rho'(z) / (2 z), the weight of a row in the equations of the optimum; ``curvature`` is
    rho''(z) / 2, its contribution to the information.
    """

    root: Callable[[Array], Array]
    weight: Callable[[np.ndarray], np.ndarray]
    curvature: Callable[[np.ndarray], np.ndarray]


def _soft_l1_root(z: Array) -> Array:
    # sqrt(1 + q) - 1 = q / (sqrt(1 + q) + 1), without cancellation at 0
    return z * jnp.sqrt(2.0 / (jnp.sqrt(1.0 + z**2) + 1.0))


def _cauchy_root(z: Array) -> Array:
    quarter = z**2 / 4.0
    # log1p(q) / q is 0 / 0 at 0, where the series 1 - q / 2 is exact to rounding
    small = quarter < 1e-9
    share = jnp.where(small, 1.0 - quarter / 2.0, jnp.log1p(quarter) / jnp.where(small, 1, quarter))
    return z * jnp.sqrt(share)


# rho = 2 (sqrt(1 + z^2) - 1): a large residual counts by its size
SOFT_L1 = Loss(_soft_l1_root, lambda z: (1.0 + z**2) ** -0.5, lambda z: (1.0 + z**2) ** -1.5)
# rho = 4 log(1 + z^2 / 4): a large residual hardly counts
CAUCHY = Loss(
    _cauchy_root,
    lambda z: 1.0 / (1.0 + z**2 / 4.0),
    lambda z: (1.0 - z**2 / 4.0) / (1.0 + z**2 / 4.0) ** 2,
)


QUANTILES = {0.5: 0.6744897501960817, 0.8: 1.2815515655446004, 0.95: 1.959963984540054}
MIN_STIFFNESS = 0.2  # if most rows are outliers, the curvature is meaningless
UNLEARNT = 0.8  # of the prior's deviation: the data hardly moved a parameter
CORRELATED = 0.9  # correlation above which two parameters cannot be told apart
UNBOUNDED = 2.0  # log deviation (a factor of 7) above which a parameter without a prior is unknown

Label = TypeVar("Label", bound=Hashable)
Square = Float[np.ndarray, "parameters parameters"]


@dataclasses.dataclass(frozen=True)
class Fit:
    """Fitted parameters with their error bars: ``values``, ``covariance``, ``intervals``.

    ``tree`` is the given pytree with fitted leaves; ``predicted`` and ``measured`` are in the
    unit of the data; ``free`` and ``jacobian`` (rows x parameters, of log prediction) are in the
    coordinates of ``parameters``; ``precision`` is the diagonal of the prior's information there;
    ``scale`` the typical size of each row's log residual; ``losses`` are half the sums of squares
    of the restarts' solutions, in squares of the scale, the best first. ``clusters`` labels rows
    with correlated errors, for the error bars; None: all rows are independent.
    """

    tree: Any
    parameters: Parameters
    free: np.ndarray
    predicted: np.ndarray
    measured: np.ndarray
    weights: np.ndarray
    jacobian: np.ndarray
    precision: np.ndarray
    scale: np.ndarray
    losses: np.ndarray
    loss: Loss = SOFT_L1
    clusters: tuple[Hashable, ...] | None = None

    @property
    def values(self) -> dict[str, float]:
        """The fitted parameters by name."""
        fitted = np.asarray(self.parameters.values(jnp.asarray(self.free)))
        return dict(zip(self.parameters.names, map(float, fitted), strict=True))

    @functools.cached_property
    def covariance(self) -> np.ndarray:
        """Covariance of the free coordinates, parameters x parameters: ``covariance`` of the fit.

        With a single cluster, which has no scatter, the inverse of the information.
        """
        if len(_members(self, self.clusters)) < 2:
            return np.linalg.pinv(self.information)
        return covariance(self, self.clusters)

    @functools.cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 80 % interval of each parameter by name; ``interval`` has other shares."""
        return interval(self, self.covariance, 0.8)

    @property
    def errors(self) -> np.ndarray:
        """Relative errors of the prediction, predicted / measured - 1, one a row."""
        return self.predicted / self.measured - 1.0

    @property
    def residuals(self) -> np.ndarray:
        """log(predicted / measured), one a row."""
        return np.log(self.predicted / self.measured)

    @functools.cached_property
    def row_weights(self) -> np.ndarray:
        """The effective weight of each row: weight times robust weight over squared scale."""
        return self.weights * self.loss.weight(self.residuals / self.scale) / self.scale**2

    @functools.cached_property
    def stiffness(self) -> float:
        """Curvature of the robust loss over its weight, mean of the rows; 1 for least squares.

        Rows with outliers carry less information than their weights. Source: Huber 1981,
        section 7.6.
        """
        curved = self.weights * self.loss.curvature(self.residuals / self.scale)
        bent = np.sum(curved) / np.sum(self.row_weights * self.scale**2)
        return float(np.clip(bent, MIN_STIFFNESS, 1.0))

    @functools.cached_property
    def information(self) -> np.ndarray:
        """Curvature of the loss, k J^T W J + prior, parameters x parameters; k: ``stiffness``."""
        slopes = self.row_weights[:, None] * self.jacobian
        return self.stiffness * self.jacobian.T @ slopes + np.diag(self.precision)


def moved_without(fit: Fit, rows: Sequence[int] | np.ndarray) -> Float[np.ndarray, " parameters"]:
    """The change of the coordinates when rows are left out, to first order.

    (A - k J^T W J)^-1 J^T W r, sums over the rows, where A is the information of all and k the
    stiffness; exact for least squares of a linear model. Source: the deletion formula of Cook and
    Weisberg 1982, section 3.5.
    """
    slope = fit.jacobian[rows]
    pull = slope.T * fit.row_weights[rows]
    others = fit.information - fit.stiffness * pull @ slope
    # a direction that no other row informs (or a value at its bound) hardly moves
    size = np.diag(fit.information)
    others = others + 1e-9 * np.diag(np.maximum(size, 1e-6 * size.max()))
    return np.linalg.solve(others, pull @ fit.residuals[rows])


def check_clusters(clusters: Sequence[Hashable] | None, rows: int) -> None:
    """Raise InputError where there is not one label a row."""
    if clusters is not None and len(clusters) != rows:
        raise InputError("fit", "clusters", len(clusters), f"a label for each of {rows} rows")


def rows_by_label(labels: Iterable[Label]) -> dict[Label, list[int]]:
    """The rows that have each label, labels in the order in which they come first."""
    rows: dict[Label, list[int]] = {}
    for i, label in enumerate(labels):
        rows.setdefault(label, []).append(i)
    return rows


def _members(fit: Fit, clusters: Sequence[Hashable] | None) -> list[np.ndarray]:
    """The rows of each cluster that count; None: a cluster for each row.

    Raises:
        InputError: another number of labels than rows.
    """
    check_clusters(clusters, len(fit.weights))
    used = np.flatnonzero(fit.weights > 0)
    labels = used if clusters is None else [str(clusters[i]) for i in used.tolist()]
    return [used[rows] for rows in rows_by_label(labels).values()]


def covariance(fit: Fit, clusters: Sequence[Hashable] | None = None) -> Square:
    """Covariance of the free coordinates by the jackknife over clusters, parameters x parameters.

    Without a cluster g of rows the coordinates move by m_g (``moved_without``); the covariance is
    (G - 1) / G times the sum of m_g m_g^T, and A^-1 prior A^-1 with A the information. It is the
    sandwich of Huber 1967, made wide enough for few clusters. ``clusters`` labels rows with
    correlated errors (one model, one machine); None: all rows are independent. Source: MacKinnon
    and White 1985; Bell and McCaffrey 2002 (CR3).

    Raises:
        InputError: another number of labels than rows, or fewer than two clusters.
    """
    members = _members(fit, clusters)
    if len(members) < 2:
        raise InputError("fit", "clusters", len(members), "at least 2")
    moves = np.stack([moved_without(fit, inside) for inside in members])
    bread = np.linalg.pinv(fit.information)
    of_priors = bread @ np.diag(fit.precision) @ bread
    return moves.T @ moves * (len(members) - 1) / len(members) + of_priors


def interval(fit: Fit, covered: Square, share: float = 0.8) -> dict[str, tuple[float, float]]:
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


class Identified(NamedTuple):
    """One parameter: its deviation in the free coordinate, the share of the prior's, words.

    ``learnt`` is the deviation after over that before the fit, None without a prior.
    """

    name: str
    deviation: float
    learnt: float | None
    verdict: str


class Identifiability(NamedTuple):
    """Every parameter, the pairs that move together with their correlation, and sentences."""

    parameters: tuple[Identified, ...]
    pairs: tuple[tuple[str, str, float], ...]
    sentences: tuple[str, ...]


def identifiability(fit: Fit) -> Identifiability:
    """Which parameters the rows of a fit could identify, from its information.

    A pair is told apart by the rows where its posterior correlation stays below ``CORRELATED``;
    a parameter is learnt where the rows leave less than ``UNLEARNT`` of its prior's deviation.
    """
    names, findings = fit.parameters.names, []
    deviations = np.sqrt(np.diag(_inverse(fit.information))).tolist()
    for name, deviation, precision in zip(names, deviations, fit.precision, strict=True):
        learnt = float(deviation * np.sqrt(precision)) if precision > 0 else None
        verdict = "identified"
        if learnt is not None and learnt > UNLEARNT:
            verdict = "these runs say nothing of it; the prior stands"
        elif learnt is None and deviation > UNBOUNDED:
            verdict = "these runs do not bound it"
        findings.append(Identified(name, deviation, learnt, verdict))
    # correlations by the rows alone, without the prior
    related = correlation(_inverse(fit.information - 0.99 * np.diag(fit.precision)))
    pairs = [
        (names[i], names[j], float(related[i, j]))
        for i, j in itertools.combinations(range(len(names)), 2)
        if abs(related[i, j]) >= CORRELATED
    ]
    pairs.sort(key=lambda pair: -abs(pair[2]))
    sentences = [f"{f.name}: {f.verdict}." for f in findings if f.verdict != "identified"]
    sentences += [
        f"{a} and {b} cannot be told apart by these runs (correlation {r:+.2f}): "
        f"about {'their product' if r < 0 else 'their ratio'} is known."
        for a, b, r in pairs
    ]
    return Identifiability(tuple(findings), tuple(pairs), tuple(sentences))


def _inverse(information: np.ndarray) -> np.ndarray:
    """Inverse of an information matrix; directions without information get a huge variance."""
    size = np.sqrt(np.maximum(np.diag(information), 1e-300))
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    values = np.maximum(values, 1e-12)
    return (vectors / values) @ vectors.T / np.outer(size, size)
