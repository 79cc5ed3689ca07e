"""The law of errors of a new source, learned from errors on sources that were left out.

What publishers of rows differ in is in no residual of a fit that has seen them, so the sample is of
errors of predictions without the row's whole source. Such errors come in few clusters: a cluster
counts as a dozen rows at most, and what facts add to the scale is held near none by a prior.
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from infer_jax.catalog.published import ErrorLaw
from infer_jax.errors import InputError

FREEDOM = 4.0  # of the Student's t that scales are learned by: few errors are very large
COUNTED = 12.0  # rows that a cluster counts as, at most
# deviations of priors: of the log scale, of what a fact adds to it; of the mean error
SCALE, SLOPE, MEAN = 0.5, 0.3, 0.1
SHARES = (50, 80, 95)  # per cent
ROUNDS = 60


def learned(
    errors: Float[np.ndarray, " rows"],
    facts: Mapping[str, Float[np.ndarray, " rows"]],
    clusters: Sequence[Hashable],
    believed: float,
    widening: Sequence[str] = (),
    shares: Sequence[int] = SHARES,
) -> ErrorLaw:
    """The law of errors whose sources were left out.

    The scale is exp(a + sum b_k fact_k), by the likelihood of Student's t with priors; the ends of
    a share are weighted quantiles of errors over their scale, halfway to those of their size alone,
    as the side on which few sources erred says little of the next one's.

    Args:
        errors: log(measured / predicted), each by a fit without the row's source.
        facts: by name, of each row.
        clusters: labels of rows whose errors are alike: a data set of a source.
        believed: the scale that is expected.
        widening: facts that cannot make an error less: what is new to a fit.

    Raises:
        InputError: no errors, or facts or clusters of another number.
    """
    known = np.asarray(errors, float)
    columns = [np.asarray(x, float) for x in facts.values()]
    if not len(known) or any(len(x) != len(known) for x in (*columns, clusters)):
        raise InputError("law of errors", "rows", len(known), "one or more, each with its facts")
    weight = counts(clusters)
    table = np.stack([np.ones(len(known)), *columns], axis=1)
    kept = np.ones(table.shape[1], bool)
    while True:
        found = np.zeros(len(kept))
        found[kept] = _scales(known, table[:, kept], weight, np.log(believed))
        below = np.asarray([False, *(n in widening for n in facts)]) & (found < 0.0)
        if not below.any():
            break
        kept &= ~below
    scores = known * np.exp(-table @ found)
    return ErrorLaw(
        float(np.exp(found[0])),
        dict(zip(facts, map(float, found[1:]), strict=True)),
        {share: _ends(scores, weight, share / 100.0) for share in shares},
    )


def counts(clusters: Sequence[Hashable]) -> Float[np.ndarray, " rows"]:
    """How much each row counts: a cluster as ``COUNTED`` rows at most."""
    labels = [str(label) for label in clusters]
    _, place, many = np.unique(labels, return_inverse=True, return_counts=True)
    return np.minimum(1.0, COUNTED / many)[place]


def _scales(
    errors: np.ndarray, table: np.ndarray, weight: np.ndarray, believed: float
) -> np.ndarray:
    """Coefficients of the log scale at the most probable point, by damped Newton (Fisher) steps.

    The mean error is a parameter, too, so that a common bias does not count as scale.
    """
    many = table.shape[1]
    middle = np.append([believed], np.zeros(many))
    held = np.append([SCALE], np.full(many, SLOPE))
    held[-1] = MEAN
    full = np.append(middle[:many], 0.0)

    def cost(point: np.ndarray) -> float:
        z = (errors - point[many]) * np.exp(-table @ point[:many])
        row = table @ point[:many] + (FREEDOM + 1.0) / 2.0 * np.log1p(z**2 / FREEDOM)
        return float(weight @ row + np.sum(((point - middle) / held) ** 2) / 2.0)

    least = cost(full)
    for _ in range(ROUNDS):
        scale = np.exp(table @ full[:many])
        z = (errors - full[many]) / scale
        pull = (FREEDOM + 1.0) * z / (FREEDOM + z**2)
        slope = np.append(table.T @ (weight * (1.0 - pull * z)), -weight @ (pull / scale))
        slope += (full - middle) / held**2
        # expected curvatures of Student's t: 2 f / (f + 3) of log scale, (f + 1) / (f + 3) of mean
        bend = np.zeros((many + 1, many + 1))
        bend[:many, :many] = 2.0 * FREEDOM / (FREEDOM + 3.0) * (table.T * weight) @ table
        bend[many, many] = (FREEDOM + 1.0) / (FREEDOM + 3.0) * (weight @ scale**-2)
        step = np.linalg.solve(bend + np.diag(held**-2), slope)
        size = 1.0
        while cost(full - size * step) > least and size > 1e-4:
            size *= 0.5
        full, least = full - size * step, cost(full - size * step)
        if np.max(np.abs(size * step)) < 1e-7:
            break
    return full[:many]


def _ends(scores: np.ndarray, weight: np.ndarray, share: float) -> tuple[float, float]:
    """The two quantiles of a share, halfway to the symmetric ones."""
    tail = (1.0 - share) / 2.0
    low, high = _quantiles(scores, weight, (tail, 1.0 - tail))
    (both,) = _quantiles(np.abs(scores), weight, (share,))
    return 0.5 * (low - both), 0.5 * (high + both)


def _quantiles(
    values: np.ndarray, weight: np.ndarray, shares: Sequence[float]
) -> tuple[float, ...]:
    """Weighted quantiles, linear in between."""
    order = np.argsort(values)
    reach = np.cumsum(weight[order])
    found = np.interp(shares, (reach - 0.5 * weight[order]) / reach[-1], values[order])
    return tuple(map(float, found))
