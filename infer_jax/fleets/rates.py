"""Arrival rates in steps: ramps through the mean rates of equal periods."""

import jax
import jax.numpy as jnp
from jax import Array

STEP = 15.0  # s, how often Kubernetes looks at a metric (--horizontal-pod-autoscaler-sync-period)


def steps_of(period: float) -> int:
    """Steps of a period, an even number, each about ``STEP`` long.

    >>> steps_of(3600.0), steps_of(10.0)
    (240, 2)
    """
    return 2 * max(round(period / (2.0 * STEP)), 1)


def ramp(rates: Array, steps: int) -> Array:
    """Rate of each of ``steps`` (even) equal steps of every period, requests/s: [periods * steps].

    Two lines a period, whose mean is the period's rate. They meet the next period's at the mean of
    both rates, or at twice the smaller where that is less, so that no rate is below 0. A rate that
    does not change is a constant. The first begins and the last ends at its own rate. Where
    neighbours tie, either slope.

    >>> ramp(jnp.asarray([1.0, 3.0]), 4).tolist()
    [0.875, 0.625, 0.875, 1.625, 2.375, 3.125, 3.375, 3.125]
    """
    between = jnp.minimum(0.5 * (rates[1:] + rates[:-1]), 2.0 * jnp.minimum(rates[1:], rates[:-1]))
    left = jnp.concatenate([rates[:1], between])
    right = jnp.concatenate([between, rates[-1:]])
    middle = 2.0 * rates - 0.5 * (left + right)
    share = (jnp.arange(steps // 2) + 0.5) / (steps // 2)
    first = left[:, None] + share * (middle - left)[:, None]
    second = middle[:, None] + share * (right - middle)[:, None]
    return jnp.concatenate([first, second], axis=1).ravel()


def surges(seed: int, steps: int, seconds: Array, share: Array, sojourn: Array) -> Array:
    """Factors of the rates of steps that jump between 1 + ``share`` and 1 - ``share``.

    Times up and down are exponential with mean ``sojourn`` s, as of a Markov-modulated Poisson
    process of two states (Fischer and Meier-Hellstern 1993, Performance Evaluation 18). A step
    keeps the state that it ends in. Gradient by ``share`` alone.
    """
    turns = jax.random.uniform(jax.random.key(seed), (steps,)) < -jnp.expm1(-seconds / sojourn)
    return 1.0 + share * (1.0 - 2.0 * (jnp.cumsum(turns) % 2))
