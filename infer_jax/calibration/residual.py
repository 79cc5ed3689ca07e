"""A small network fitted to the residuals of the physics, and its errors on other rows.

A network g of dimensionless features multiplies a prediction by exp(g). It is zero at the start,
shrinks toward zero, and training stops where groups that it does not see stop gaining.
"""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.errors import InputError
from infer_jax.on_demand import load_optional

if TYPE_CHECKING:
    from flax.linen import Module

Weights = Any  # of a flax module, a pytree


def network(width: int, outputs: int) -> "Module":
    """Features of a row to the logarithm of a factor on each of ``outputs`` predictions.

    A flax module; exactly 0 before training.
    """
    import flax.linen as nn

    class Network(nn.Module):
        @nn.compact
        def __call__(self, features: Array) -> Array:
            hidden = nn.tanh(nn.Dense(width)(features))
            hidden = nn.tanh(nn.Dense(width)(hidden))
            return nn.Dense(outputs, kernel_init=nn.initializers.zeros)(hidden)

    return Network()


@dataclasses.dataclass(frozen=True)
class Residual:
    """A trained correction: networks averaged, features' centre and size, rounds of each.

    ``weights`` have an axis of the networks. ``gain`` is the share of the loss on left-out groups
    that it removes; at 0 it is off.
    """

    network: "Module"
    weights: Weights
    centre: np.ndarray
    size: np.ndarray
    rounds: tuple[int, ...]
    gain: float

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """log of the factor on each prediction, rows x outputs."""
        scaled = jnp.asarray((np.asarray(features) - self.centre) / self.size)
        each = jax.vmap(self.network.apply, in_axes=(0, None))(self.weights, scaled)
        return np.mean(np.asarray(each), axis=0)


def learn_residual(
    features: np.ndarray,
    left: np.ndarray,
    groups: Sequence[Hashable],
    scale: Sequence[float],
    *,
    parts: int = 5,
    width: int = 16,
    rounds: int = 400,
    decay: float = 1e-3,
    rate: float = 3e-3,
    seed: int = 0,
) -> Residual:
    """A correction of ``left`` = log(measured / predicted), rows x outputs.

    ``parts`` networks are trained side by side, each without one part of the groups, on the
    robust loss log(1 + (r / s)^2 / 4); each stops at the round that is best on its own part, and
    their mean is used. Where no round gains, the correction is exactly zero.

    Args:
        features: dimensionless numbers, rows x features, none of them a rate of the hardware.
        left: log residuals of the physics.
        groups: labels of rows with correlated errors; a group is in one part.
        scale: typical size of ``left`` by output.

    Raises:
        InputError: shapes that do not fit, fewer groups than parts, or flax is not installed.
    """
    features, left = np.asarray(features, float), np.asarray(left, float)
    if features.ndim != 2 or left.ndim != 2 or not len(features) == len(left) == len(groups):
        allowed = "equal rows of features, outputs and groups"
        raise InputError("residual", "features", f"of shape {features.shape}", allowed)
    kinds = sorted(set(groups), key=str)
    if len(kinds) < parts:
        raise InputError("residual", "groups", len(kinds), f"at least {parts}")
    for library in ("flax", "optax"):
        load_optional("residual", library, "fit")
    shuffled = np.random.default_rng(seed).permutation(len(kinds)) % parts
    of = dict(zip(kinds, shuffled, strict=True))
    part = np.asarray([of[g] for g in groups])
    centre, size = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-9)
    scaled, wanted = jnp.asarray((features - centre) / size), jnp.asarray(left)
    net = network(width, left.shape[1])

    def loss(weights: Weights, seen: Array) -> Array:
        wrong = (wanted - net.apply(weights, scaled)) / jnp.asarray(scale, float)  # pyright: ignore[reportOperatorIssue]
        return jnp.sum(jnp.sum(jnp.log1p(wrong**2 / 4.0), axis=1) * seen) / jnp.sum(seen)

    train = _training(loss, lambda key: net.init(key, scaled[:1]), rate, decay, rounds)
    seen = jnp.asarray([part != i for i in range(parts)], float)
    keys = jax.random.split(jax.random.key(seed), parts)
    best, start, least, at = jax.device_get(jax.jit(jax.vmap(train))(keys, seen))
    gain = float(1.0 - np.sum(least) / np.sum(start))
    return Residual(net, best, centre, size, tuple(at.tolist()), gain)


def _training(
    loss: Callable[[Weights, Array], Array],
    start: Callable[[Array], Weights],
    rate: float,
    decay: float,
    rounds: int,
) -> Callable[[Array, Array], tuple[Weights, Array, Array, Array]]:
    """A function that trains one network from a random key on a mask of rows.

    It returns the best weights, the loss on the other rows before training and at its least, and
    the round of the latter.
    """
    import optax

    optimiser = optax.adamw(rate, weight_decay=decay)

    def train(key: Array, seen: Array) -> tuple[Weights, Array, Array, Array]:
        def round_(carry: tuple, _: None) -> tuple[tuple, Array]:
            weights, state, best, least = carry
            updates, state = optimiser.update(jax.grad(loss)(weights, seen), state, weights)
            weights = optax.apply_updates(weights, updates)
            now = loss(weights, 1.0 - seen)
            best = jax.tree.map(lambda a, b: jnp.where(now < least, a, b), weights, best)
            return (weights, state, best, jnp.minimum(now, least)), now

        first = start(key)
        before = loss(first, 1.0 - seen)
        carry = (first, optimiser.init(first), first, before)
        (_, _, best, least), course = jax.lax.scan(round_, carry, None, length=rounds)
        return best, before, least, jnp.argmin(course)

    return train
