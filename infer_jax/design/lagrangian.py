"""The augmented Lagrangian: constraints for an optimiser without constraints.

min f(x) with g(x) <= 0 becomes a sequence of smooth problems: L = f + sum over i of
(max(0, m_i + r g_i)^2 - m_i^2) / (2 r), m_i <- max(0, m_i + r g_i), r larger where g does not
shrink. An equality is two inequalities. Source: Nocedal and Wright, Numerical Optimization
(2006), Section 17.3, Eqs. 17.56 to 17.65, in the form of Rockafellar.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

FIRST, GROWTH, LARGEST = 10.0, 4.0, 1e5  # penalties, in units of log(objective) per log(excess)^2
SHRUNK = 0.5  # a violation that has not fallen to this share raises its penalty


class Multipliers(NamedTuple):
    """One multiplier and one penalty a constraint, and the violations they were set at."""

    weight: Array
    penalty: Array
    violation: Array


def begin(count: int) -> Multipliers:
    """No multipliers yet."""
    ones = jnp.ones(count)
    return Multipliers(0.0 * ones, FIRST * ones, jnp.inf * ones)


def lagrangian(objective: Array, excess: Array, multipliers: Multipliers) -> Array:
    """The augmented Lagrangian at one point; ``excess`` is positive where a constraint breaks."""
    pushed = jnp.maximum(0.0, multipliers.weight + multipliers.penalty * excess)
    return objective + jnp.sum((pushed**2 - multipliers.weight**2) / (2.0 * multipliers.penalty))


def update(multipliers: Multipliers, excess: Array) -> Multipliers:
    """Multipliers for the next smooth problem, after one was solved to ``excess``."""
    violation = jnp.maximum(excess, 0.0)
    stuck = violation > SHRUNK * multipliers.violation
    weight = jnp.maximum(0.0, multipliers.weight + multipliers.penalty * excess)
    penalty = jnp.where(
        stuck, jnp.minimum(GROWTH * multipliers.penalty, LARGEST), multipliers.penalty
    )
    return Multipliers(weight, penalty, violation)
