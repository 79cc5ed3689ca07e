"""The augmented Lagrangian on problems whose solution and multipliers are known by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.design.lagrangian import begin, lagrangian, update

pytestmark = pytest.mark.usefixtures("x64")


def solve(objective, excess, start, rounds=30):
    x = jnp.asarray(start, float)
    held = begin(len(excess(x)))

    def merit(x, held):
        return lagrangian(objective(x), excess(x), held)

    newton = jax.jit(lambda x, held: x - jnp.linalg.solve(
        jax.hessian(merit)(x, held), jax.grad(merit)(x, held)))  # fmt: skip
    for _ in range(rounds):
        for _ in range(5):
            x = newton(x, held)
        held = update(held, excess(x))
    return np.asarray(x), held


def test_an_inequality_and_its_multiplier():
    # min x^2 + y^2, x + y >= 1: (1/2, 1/2), multiplier 1; the other limit does not bind
    x, held = solve(
        lambda x: jnp.sum(x**2),
        lambda x: jnp.stack([1.0 - jnp.sum(x), jnp.sum(x) - 9.0]),
        [3.0, -1.0],
    )
    np.testing.assert_allclose(x, [0.5, 0.5], atol=1e-8)
    np.testing.assert_allclose(held.weight, [1.0, 0.0], atol=1e-6)


def test_an_equality_is_two_inequalities():
    # min x + y on x y = 1 in logarithms: x = y = 1
    def both(u):
        return jnp.stack([jnp.sum(u), -jnp.sum(u)])

    x, held = solve(lambda u: jnp.sum(jnp.exp(u)), both, [1.0, 0.5])
    np.testing.assert_allclose(x, [0.0, 0.0], atol=1e-7)
    assert float(held.weight[1] - held.weight[0]) == pytest.approx(1.0, abs=1e-5)


def test_without_limits_it_is_the_objective():
    assert float(lagrangian(jnp.asarray(3.0), jnp.zeros(0), begin(0))) == 3.0
