"""How prompt and output lengths vary around their means: a distribution, a mixture or samples.

Each function returns a tuple of ``Share`` for ``Workload.of(lengths=...)``. A continuous spread is
cut into strata, finer towards the long end, where waiting and percentiles are decided; a share is
the mean of its stratum, so means are kept exactly. An edge moves to a jump near it, so that
a spread of few values is kept as it is; samples are cut where they lie.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from infer_jax.errors import InputError
from infer_jax.specs.workload import Share

# edges of the strata in probability
PROMPTS = (0.0, 0.15, 0.35, 0.55, 0.75, 0.88, 0.95, 0.985, 0.997, 1.0)
OUTPUTS = (0.0, 0.15, 0.45, 0.75, 0.92, 0.985, 0.998, 1.0)
POINTS = 4000  # of a distribution, evenly spaced in probability

Quantile = Callable[[np.ndarray], np.ndarray]


def fixed(value: float = 1.0) -> Quantile:
    """The quantiles of a length that is always the same."""
    return lambda p: np.full_like(p, value)


def uniform(low: float, high: float) -> Quantile:
    """The quantiles of a length uniform between ``low`` and ``high``.

    Raises:
        InputError: not 0 <= low <= high.
    """
    if not 0 <= low <= high:
        raise InputError("lengths", "uniform", (low, high), "0 <= low <= high")
    return lambda p: low + (high - low) * p


def lognormal(variation: float) -> Quantile:
    """The quantiles of a log-normal length; ``variation`` is its deviation over its mean.

    Raises:
        InputError: a negative variation.
    """
    if not variation >= 0:
        raise InputError("lengths", "variation", variation, "a number of at least 0")
    sigma = np.sqrt(np.log1p(variation**2))
    normal = NormalDist()
    return lambda p: np.exp(sigma * np.array([normal.inv_cdf(float(x)) for x in p]))


def exponential() -> Quantile:
    """The quantiles of an exponential length."""
    return lambda p: -np.log1p(-p)


def independent(isl: Quantile, osl: Quantile) -> tuple[Share, ...]:
    """Prompts and outputs drawn independently, scaled to mean 1; prefixes vary as prompts do.

    >>> shares = independent(uniform(0.8, 1.0), fixed())
    >>> round(float(sum(s.weight * s.isl for s in shares)), 12)
    1.0
    """
    points = (np.arange(POINTS) + 0.5) / POINTS
    prompts, outputs = _strata(isl(points), PROMPTS), _strata(osl(points), OUTPUTS)
    return _relative([(v * w, i, o, i) for v, i in prompts for w, o in outputs])


def mixture(parts: Sequence[tuple[float, float, float]]) -> tuple[Share, ...]:
    """Weighted kinds of requests: (weight, isl, osl) each, relative to one another.

    >>> [float(s.isl) for s in mixture([(1, 100, 10), (1, 300, 30)])]
    [0.5, 1.5]
    """
    return _relative([(w, i, o, i) for w, i, o in parts])


def samples(isl: ArrayLike, osl: ArrayLike, prefix: ArrayLike | None = None) -> tuple[Share, ...]:
    """Shares of observed requests, cut by prompt and then by output: their relation is kept.

    Raises:
        InputError: nothing observed, or columns of unequal length.
    """
    prompts, outputs = np.asarray(isl, np.float64), np.asarray(osl, np.float64)
    cached = np.zeros_like(prompts) if prefix is None else np.asarray(prefix, np.float64)
    if not len(prompts) == len(outputs) == len(cached) or not len(prompts):
        counts = (len(prompts), len(outputs), len(cached))
        raise InputError("lengths", "samples", counts, "as many prompts as outputs, at least one")
    shares: list[tuple[float, float, float, float]] = []
    for rows in _cut(np.argsort(prompts, kind="stable"), PROMPTS):
        for part in _cut(rows[np.argsort(outputs[rows], kind="stable")], OUTPUTS):
            means = (prompts[part].mean(), outputs[part].mean(), cached[part].mean())
            shares.append((len(part) / len(prompts), *means))
    return _relative(shares)


def _strata(values: np.ndarray, edges: tuple[float, ...]) -> list[tuple[float, float]]:
    """(weight, mean) of each stratum of sorted values; one where all are equal."""
    if values[0] == values[-1]:
        return [(1.0, float(values[0]))]
    parts = _cut(values, _edges(values, edges))
    return [(len(part) / len(values), float(part.mean())) for part in parts]


def _cut(rows: np.ndarray, edges: tuple[float, ...]) -> list[np.ndarray]:
    """Consecutive parts of ``rows`` at ``edges`` in probability, the empty ones left out."""
    ends = np.round(np.asarray(edges[1:-1]) * len(rows)).astype(int)
    return [part for part in np.split(rows, ends) if len(part)]


def _edges(values: np.ndarray, edges: tuple[float, ...]) -> tuple[float, ...]:
    """Edges in probability, each moved to a jump of the sorted ``values`` close to it, if any.

    Looked at are the values between the midpoints to the next edges; an edge moves where a single
    jump makes up more than half of their range.
    """
    near = np.convolve(edges, (0.5, 0.5), "valid")
    moved = [0.0]
    for edge, span in zip(edges[1:-1], pairwise(near), strict=True):
        low, high = np.round(np.asarray(span) * (len(values) - 1)).astype(int)
        jumps = np.diff(values[low : high + 1])
        most = int(jumps.argmax())
        jump = jumps[most] > 0.5 * (values[high] - values[low])
        moved.append((low + most + 1) / len(values) if jump else edge)
    return (*moved, 1.0)


def _relative(shares: Sequence[tuple[float, float, float, float]]) -> tuple[Share, ...]:
    """Weights that sum to 1 and lengths whose means are 1.

    Raises:
        InputError: no share, a negative number, or a weight that sums to nothing.
    """
    table = np.asarray(shares, np.float64).reshape(-1, 4)
    if not np.all(np.isfinite(table) & (table >= 0)) or not table[:, 0].sum() > 0:
        raise InputError("lengths", "", shares, "finite weights and lengths, not all of weight 0")
    weight = table[:, 0] / table[:, 0].sum()
    means = weight @ table[:, 1:]
    sizes = np.divide(table[:, 1:], means, out=np.ones_like(table[:, 1:]), where=means > 0)
    return tuple(
        Share.of(weight=w, isl=i, osl=o, prefix=p)
        for w, (i, o, p) in zip(weight, sizes, strict=True)
    )
