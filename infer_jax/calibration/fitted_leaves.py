"""The fitted leaves of a pytree, and their unbounded coordinates.

A leaf is named by its dotted path (``flop_cap``, ``chip.memory_bandwidth``, ``1.network_cap`` in
a tuple). Its declared bounds choose the coordinate: logarithm above a bound, logit between two,
the number itself where there are none. Fits move in these coordinates, so that no step leaves
the bounds, and a relative error of a rate is an absolute one.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.errors import InputError
from infer_jax.specs import leaves

Tree = TypeVar("Tree")  # a spec, or a tuple of specs
EDGE = 1e-6  # how near to a bound a starting value may be, as a share of the span


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The fitted leaves of a tree: their paths, their places among its leaves, their bounds.

    A parameter may have several leaves: those tied to it take its value.
    """

    names: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    low: np.ndarray
    high: np.ndarray

    def free(self, tree: object) -> Array:
        """Unbounded coordinates of the fitted leaves of ``tree``, one a parameter.

        A value on a bound, which no coordinate reaches, is moved inside by ``EDGE``.
        """
        values = jax.tree.leaves(tree)
        return self.unbounded(jnp.stack([jnp.asarray(values[i[0]], float) for i in self.places]))

    def unbounded(self, values: Array) -> Array:
        """Coordinates of physical values: log(x - low), logit((x - low) / span), or x."""
        low, span, both, above = self._sides()
        share = jnp.clip((values - low) / span, EDGE, 1.0 - EDGE)
        logit = jnp.log(share) - jnp.log1p(-share)
        over = jnp.log(jnp.where(above, jnp.maximum(values - low, 1e-300), 1.0))
        return jnp.where(both, logit, jnp.where(above, over, values))

    def values(self, free: Array) -> Array:
        """Physical values of coordinates: the inverse of ``unbounded``."""
        low, span, both, above = self._sides()
        inside = low + span * jax.nn.sigmoid(free)
        over = low + jnp.exp(jnp.where(above, free, 0.0))
        return jnp.where(both, inside, jnp.where(above, over, free))

    def place(self, tree: Tree, free: Array) -> Tree:
        """``tree`` with the fitted leaves at these coordinates."""
        flat, structure = jax.tree.flatten(tree)
        for places, value in zip(self.places, self.values(free), strict=True):
            for i in places:
                flat[i] = value
        return jax.tree.unflatten(structure, flat)

    def _sides(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        below, both = np.isfinite(self.low), np.isfinite(self.low) & np.isfinite(self.high)
        low = np.where(below, self.low, 0.0)
        return low, np.where(both, self.high - low, 1.0), both, below & ~both


def parameters(
    tree: object,
    names: Sequence[str],
    bounds: dict[str, tuple[float, float]] | None = None,
    ties: Mapping[str, Sequence[str]] | None = None,
) -> Parameters:
    """The parameters of these names in a pytree of specs.

    Args:
        tree: a spec, or a tuple of specs whose index then starts the path.
        names: dotted paths of leaves.
        bounds: narrower bounds than the declared ones, by name.
        ties: leaves that take the value of a parameter, by its name.

    Raises:
        InputError: no such leaf, one named twice, a choice, or bounds that are none.
    """
    known = {path: (i, meta) for i, (path, meta, _) in enumerate(leaves(tree))}
    tied = {name: tuple(others) for name, others in (ties or {}).items() if name in names}
    taken = [*names, *(other for others in tied.values() for other in others)]
    for name in taken:
        if name not in known:
            raise InputError("fit", "parameter", name, ", ".join(known))
        if taken.count(name) > 1:
            raise InputError("fit", "parameter", name, "each name once")
    places, lows, highs = [], [], []
    for name in names:
        place, meta = known[name]
        if meta["kind"] == "choice":
            raise InputError("fit", "parameter", name, "a number: choices have no gradient")
        low, high = (bounds or {}).get(name, (meta["low"], meta["high"]))
        if not (meta["low"] <= low < high <= meta["high"]):
            allowed = f"two numbers within {meta['low']:g} and {meta['high']:g}, the lower first"
            raise InputError("fit", f"bounds of {name}", (low, high), allowed)
        places.append((place, *(known[other][0] for other in tied.get(name, ()))))
        lows.append(low)
        highs.append(high)
    unknown = sorted(set(bounds or {}) - set(names))
    if unknown:
        raise InputError("fit", "bounds", unknown[0], f"a fitted parameter: {', '.join(names)}")
    if not names:
        raise InputError("fit", "parameters", "none", "at least one name")
    return Parameters(tuple(names), tuple(places), np.asarray(lows), np.asarray(highs))
