"""How does an estimator take the best of many layouts, exactly or smoothly?"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.estimators.estimate import Phase
from infer_jax.physics.numerics import soft_weights

Numbered = Callable[..., Phase]  # a phase of a candidate's indices, outermost first


def least(phase: Numbered, counts: tuple[int, ...]) -> tuple[Array, ...]:
    """The indices of the fastest feasible phase, else of the least infeasible one.

    ``phase(i, j, ...)`` for i in 0 .. counts[0] - 1 and so on, as nested loops: what an inner
    index does not touch is computed once per turn of the outer ones, and under ``vmap`` the
    loops are outside and each turn is one pass over the grid. Give it stopped inputs: the
    winner is to be evaluated anew, and its gradient is the gradient of the minimum.
    """
    if math.prod(counts) == 1:
        return (jnp.zeros((), jnp.int32),) * len(counts)

    def loop(*outer: Array) -> tuple[Array, ...]:
        if len(outer) == len(counts):
            candidate = phase(*outer)
            return candidate.shortfall, candidate.time
        # stored before they are compared: a loop that compares as it goes has the compiler
        # work each time out anew for each of its uses
        count = counts[len(outer)]
        turns = lax.map(lambda i: loop(*outer, i), jnp.arange(count, dtype=jnp.int32))
        least = (turns[0][0], turns[1][0], jnp.asarray(0, jnp.int32), *(t[0] for t in turns[2:]))
        for i in range(1, count):
            new = (turns[0][i], turns[1][i], jnp.asarray(i, jnp.int32), *(t[i] for t in turns[2:]))
            better = (new[0] < least[0]) | ((new[0] == least[0]) & (new[1] < least[1]))
            least = tuple(jnp.where(better, n, o) for n, o in zip(new, least, strict=True))
        return least

    return loop()[2:]


def best(one: Phase, others: Phase) -> Phase:
    """The fastest feasible of one phase and a stack of phases, else the least infeasible."""
    phases = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), one, others)
    short = lax.stop_gradient(jax.vmap(lambda p: p.shortfall)(phases))
    time = lax.stop_gradient(jnp.where(short > jnp.min(short), jnp.inf, phases.time))
    return jax.tree.map(lambda x: x[jnp.argmin(time)], phases)


def blend(phase: Numbered, counts: tuple[int, ...], smoothing: Array) -> Phase:
    """The mean of all phases by ``soft_weights``: the best one as ``smoothing`` goes to 0."""
    numbers = jnp.arange(math.prod(counts), dtype=jnp.int32)
    phases = jax.vmap(lambda i: phase(*jnp.unravel_index(i, counts)))(numbers)
    short = jax.vmap(lambda p: p.shortfall)(phases)
    share = soft_weights(phases.time, short, smoothing)
    return jax.tree.map(lambda x: jnp.sum(share * x, axis=0), phases)
