"""Chances that measured times are within limits, from quantiles of measured over predicted.

Errors are taken in log and carried to standard normal scores, in which they add: what all plans of
a server share (its offset, coefficients) and what each plan has of its own. A band whose tails are
longer than a normal law's keeps them.
"""

from collections.abc import Mapping
from statistics import NormalDist
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr
from jaxtyping import Float

FAR = 50.0  # log of a ratio beyond which nothing differs
TENTH = 1.2815515655446004  # normal score beyond which a tenth lies
STEEPEST = 1e-3  # log of a ratio that one unit of score spans at least


class Spread(NamedTuple):
    """log(measured / predicted) at normal scores; linear in between, and beyond the last two."""

    scores: Float[np.ndarray, " quantiles"]
    logs: Float[np.ndarray, " quantiles"]

    @classmethod
    def of(cls, within: Mapping[int, tuple[float, float]]) -> "Spread":
        """From the factors between which shares of measured runs are, by share in per cent.

        >>> spread = Spread.of({80: (0.8, 1.25)})
        >>> float(jnp.exp(ratio(1.2815515655446004, spread)))
        1.25
        """
        points = [
            (NormalDist().inv_cdf(0.5 + side * share / 200.0), float(np.log(edge)))
            for share, edges in within.items()
            for side, edge in zip((-1.0, 1.0), edges, strict=True)
        ]
        scores, logs = np.array(sorted(points)).T
        # quantiles may be equal to the digits in which they are stored
        least = np.concatenate([[0.0], STEEPEST * np.cumsum(np.diff(scores))])
        return cls(scores, np.maximum.accumulate(logs - least) + least)

    @property
    def width(self) -> Array:
        """log that one unit of score spans, over the middle 80 %: a deviation."""
        return (ratio(TENTH, self) - ratio(-TENTH, self)) / (2.0 * TENTH)


def score(log_ratio: Array, spread: Spread) -> Array:
    """Normal score of an error log(measured / predicted): the share below it is Phi(score).

    Infinite ratios count as e^50, so that the score and its gradient are finite.
    """
    x = jnp.clip(jnp.asarray(log_ratio), -FAR, FAR)
    return _line(x, jnp.asarray(spread.logs), jnp.asarray(spread.scores))


def ratio(score: Array | float, spread: Spread) -> Array:
    """log(measured / predicted) at a normal score: the inverse of ``score``."""
    return _line(jnp.asarray(score), jnp.asarray(spread.scores), jnp.asarray(spread.logs))


def _line(x: Array, at: Array, values: Array) -> Array:
    """Linear interpolation, the first and the last piece going on without end."""
    i = jnp.clip(jnp.searchsorted(at, x) - 1, 0, at.size - 2)
    return values[i] + (x - at[i]) * (values[i + 1] - values[i]) / (at[i + 1] - at[i])


def limit_score(limit: Array, time: Array, spread: Spread) -> Array:
    """Normal score up to which a measured time is within its limit.

    score(log(limit / predicted)). An infinite limit, and any limit above 0 of a time of 0, has
    the largest score; a limit of 0 has the smallest; the gradients are 0 there.
    """
    limit, time = jnp.asarray(limit), jnp.asarray(time)
    some = (limit > 0.0) & jnp.isfinite(limit) & (time > 0.0)
    known = jnp.log(jnp.where(some, limit, 1.0)) - jnp.log(jnp.where(some, time, 1.0))
    none = jnp.where(limit > 0.0, FAR, -FAR)
    return score(jnp.where(some, known, none), spread)


def holds(room: Array, shared: Array, own: Array | float) -> Array:
    """Probability that a limit holds where what plans share of the error is known.

    Phi((room - shared) / own), in normal scores; ``own``: deviation of what a plan has of its own,
    above 0. Where nothing is known but that the error's score is shared + own with variances c
    and 1 - c, its mean over ``shared`` is Phi(room): the band's own quantile.
    """
    return ndtr((room - shared) / own)


def chance(room: Float[Array, " limits"]) -> Float[Array, ""]:
    """Probability that all limits of a plan hold, whether or not a confidence is asked for.

    prod_l Phi(room_l): the errors of two times are taken as independent. What coefficients move
    both by makes them slightly dependent; draws would show it, and their own noise with it.
    """
    return jnp.prod(ndtr(room))


def shared_and_own(
    moved: Float[Array, "limits draws"],
    common: Float[Array, " limits"],
    offset: Float[Array, "limits draws"],
) -> tuple[Float[Array, "limits draws"], Float[Array, " limits"]]:
    """What plans share of an error's score by draw, and the deviation of a plan's own part.

    Of the band's variance 1 the part ``common`` c is shared: what coefficients move the score by
    (``moved``, less its mean, of variance v), and an offset of variance max(c - v, 0); the other
    1 - c is a plan's own. Where v is above c, which draws of independent coefficients overstate,
    ``moved`` shrinks to it: how wide errors are, the bands say, for they were measured on runs that
    no fit had seen; which errors plans share, the coefficients say.
    """
    shift = moved - jnp.mean(moved, axis=1, keepdims=True)
    variance = jnp.mean(shift**2, axis=1)
    # double where: a root has no slope at 0, a ratio none without variance
    left, over = common - variance, variance > common
    shrunk = jnp.sqrt(
        jnp.where(over & (common > 0.0), common / jnp.where(over, variance, 1.0), 1.0)
    )
    shrunk = jnp.where(over & (common <= 0.0), 0.0, shrunk)
    deviation = jnp.where(left > 0.0, jnp.sqrt(jnp.where(left > 0.0, left, 1.0)), 0.0)
    return shrunk[:, None] * shift + deviation[:, None] * offset, jnp.sqrt(1.0 - common)
