"""How does an estimator take the best of many layouts, exactly or smoothly?"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.estimators.estimate import Phase
from infer_jax.physics.numerics import soft_weights

Candidate = Callable[[Array], Phase]


def least(families: Sequence[Candidate], count: int) -> tuple[Array, Array]:
    """(family, index) of the fastest feasible phase, else of the least infeasible one.

    Each family is a function of an index in 0 .. count - 1. Candidates pass one index at a
    time, so that under ``vmap`` the loop over layouts is outside and each turn is one fused
    pass over the grid. Give it stopped inputs: the winner is to be evaluated anew.
    """

    def challenge(best: tuple[Array, ...], family: int, i: Array) -> tuple[Array, ...]:
        phase = families[family](i)
        short, time = phase.shortfall, phase.time
        better = (short < best[0]) | ((short == best[0]) & (time < best[1]))
        new = (short, time, jnp.full_like(i, family), i)
        return tuple(jnp.where(better, n, o) for n, o in zip(new, best, strict=True))

    def turn(i: Array, best: tuple[Array, ...]) -> tuple[Array, ...]:
        for family in range(len(families)):
            best = challenge(best, family, i)
        return best

    zero = jnp.zeros((), jnp.int32)
    if len(families) * count == 1:
        return zero, zero
    worst = jnp.full_like(jax.eval_shape(families[0], zero).time, jnp.inf)
    return lax.fori_loop(0, count, turn, (worst, worst, zero, zero))[2:]


def best(one: Phase, others: Phase) -> Phase:
    """The fastest feasible of one phase and a stack of phases, else the least infeasible."""
    phases = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), one, others)
    short = lax.stop_gradient(jax.vmap(lambda p: p.shortfall)(phases))
    time = lax.stop_gradient(jnp.where(short > jnp.min(short), jnp.inf, phases.time))
    return jax.tree.map(lambda x: x[jnp.argmin(time)], phases)


def blend(families: Sequence[Candidate], count: int, smoothing: Array) -> Phase:
    """The mean of all phases by ``soft_weights``: the best one as ``smoothing`` goes to 0."""
    indices = jnp.arange(count, dtype=jnp.int32)
    each = [jax.vmap(family)(indices) for family in families]
    phases = jax.tree.map(lambda *x: jnp.concatenate(x), *each)
    short = jax.vmap(lambda p: p.shortfall)(phases)
    share = soft_weights(phases.time, short, smoothing)
    return jax.tree.map(lambda x: jnp.sum(share * x, axis=0), phases)


def select(choices: Sequence[Phase], index: Array) -> Phase:
    """The phase of number ``index`` among a few."""
    result = choices[0]
    for i, other in enumerate(choices[1:], start=1):
        result = jax.tree.map(lambda a, b, i=i: jnp.where(index == i, b, a), result, other)
    return result
