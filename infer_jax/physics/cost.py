"""The rate, the price and the energy of tokens, and the power of a chip."""

from typing import Protocol

import jax.numpy as jnp
from jax import Array

from infer_jax.catalog.published import power_shares
from infer_jax.specs import Spec, number, spec

_MEAN = power_shares()  # of a chip of no generation with measured power


def token_rate(time: Array) -> Array:
    """Tokens per second of a request whose tokens take ``time`` seconds each: 1 / time."""
    return 1.0 / time


def usd_per_million_tokens(chips: Array, usd_per_hour: Array, time: Array, tokens: Array) -> Array:
    """USD per million tokens when ``chips`` chips take ``time`` seconds for ``tokens`` tokens.

    1e6 * chips * time * price / (3600 * tokens).

    >>> import jax.numpy as jnp
    >>> round(float(usd_per_million_tokens(*map(jnp.asarray, (1.0, 3.6, 1.0, 1000.0)))), 6)
    1.0
    """
    return 1e6 / 3600.0 * chips * usd_per_hour * time / tokens


@spec
class Draw(Spec):
    """What a chip draws, as shares of its board power, and what its building adds.

    Shares are fitted to servers whose power was measured (`python experiments/power.py`); without
    ``of_generation`` they are the mean of the generations that have such rows. Energy is of the
    chips alone unless ``pue`` says otherwise; 1.56 is the mean power usage effectiveness of the
    largest sites in the Uptime Institute's survey of 2024.
    """

    idle: Array = number("drawn by a chip at rest", kind="fraction", high=1, default=_MEAN["idle"])
    active: Array = number(
        "drawn in a pass that only waits, for launches or other chips",
        kind="fraction",
        high=1,
        default=_MEAN["active"],
    )
    memory: Array = number(
        "drawn while memory is saturated and nothing is computed",
        kind="size",
        default=_MEAN["memory"],
    )
    compute: Array = number(
        "drawn while computing is saturated, without the limit of the board",
        kind="size",
        default=_MEAN["compute"],
    )
    pue: Array = number(
        "power of the building over power of its machines", kind="size", low=1, default=1.0
    )


def power(board: Array, busy: Array, reading: Array, computing: Array, draw: Draw) -> Array:
    """Watts of a chip that is in a pass, reads memory and computes for these shares of the time.

    P (idle + (active - idle) u_p + (memory - active) u_m + (compute - active) u_c), at most P:
    linear in each share. Idle chips, waits and work draw differently (Chung et al. 2026, arXiv
    2601.22076).
    """
    drawn = draw.idle + (draw.active - draw.idle) * busy
    drawn = drawn + (draw.memory - draw.active) * reading
    drawn = drawn + (draw.compute - draw.active) * computing
    return board * jnp.minimum(drawn, 1.0)


class Activity(Protocol):
    """Seconds of some work, and of these those in which memory is read and arithmetic done."""

    @property
    def time(self) -> Array:
        """All seconds."""
        ...

    @property
    def reading(self) -> Array:
        """Seconds in which memory is read."""
        ...

    @property
    def computing(self) -> Array:
        """Seconds in which arithmetic is done."""
        ...


def power_at(board: Array, spent: Activity, rate: Array, draw: Draw) -> Array:
    """Watts of a chip that does a piece of work ``rate`` times a second, and rests in between."""
    busy = jnp.minimum(spent.time * rate, 1.0)
    reading = jnp.minimum(spent.reading * rate, 1.0)
    computing = jnp.minimum(spent.computing * rate, 1.0)
    return power(board, busy, reading, computing, draw)


def joules_per_million_tokens(chips: Array, watts: Array, time: Array, tokens: Array) -> Array:
    """Joules per million tokens when ``chips`` chips draw ``watts`` each for ``time`` seconds.

    1e6 * chips * watts * time / tokens.
    """
    return 1e6 * chips * watts * time / tokens
