"""Leaves of a pytree within their declared bounds, and the unbounded coordinates of a fit.

A leaf is named by its dotted path (``flop_cap``, ``chip.memory_bandwidth``, ``1.network_cap`` in
a tuple). Its declared bounds choose the coordinate: the logarithm above a bound, the logit between
two, the number itself where there are none. Fits move in these coordinates, so that no step leaves
the bounds, and a relative error of a rate is an absolute one.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.errors import InputError
from infer_jax.specs import leaves
from infer_jax.typed_jax import jit

Tree = TypeVar("Tree")  # a spec, or a tuple of specs
EDGE = 1e-6  # how near to a bound a starting value may be, as a share of the span


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The fitted leaves of a tree: their paths, their indices among its leaves, their bounds.

    A parameter may have several leaves: those tied to it take its value.
    """

    names: tuple[str, ...]
    indices: tuple[tuple[int, ...], ...]
    low: np.ndarray
    high: np.ndarray

    def free(self, tree: object) -> Array:
        """Unbounded coordinates of the fitted leaves of ``tree``, one a parameter.

        A value on one of two bounds, which no coordinate reaches, is moved inside by ``EDGE``.
        """
        values = jax.tree.leaves(tree)
        return self.unbounded(jnp.stack([jnp.asarray(values[i[0]], float) for i in self.indices]))

    def unbounded(self, values: Array) -> Array:
        """Coordinates of physical values: log(x - low), logit((x - low) / span), or x."""
        return _unbounded(values, *self._sides())

    def values(self, free: Array) -> Array:
        """Physical values of coordinates: the inverse of ``unbounded``."""
        return _values(free, *self._sides())

    def insert(self, tree: Tree, free: Array) -> Tree:
        """``tree`` with the fitted leaves at these coordinates."""
        flat, structure = jax.tree.flatten(tree)
        for indices, value in zip(self.indices, self.values(free), strict=True):
            for i in indices:
                flat[i] = value
        return jax.tree.unflatten(structure, flat)

    def _sides(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(low, span, whether there are two bounds, whether there is a lower one alone)."""
        below, both = np.isfinite(self.low), np.isfinite(self.low) & np.isfinite(self.high)
        low = np.where(below, self.low, 0.0)
        return low, np.where(both, self.high - low, 1.0), both, below & ~both


# each one program: their operations one by one are a dozen, for every number of parameters
@jit(inline=True)
def _unbounded(
    values: Array, low: np.ndarray, span: np.ndarray, both: np.ndarray, above: np.ndarray
) -> Array:
    share = jnp.clip((values - low) / span, EDGE, 1.0 - EDGE)
    logit = jnp.log(share) - jnp.log1p(-share)
    over = jnp.maximum(values - low, jnp.finfo(values.dtype).tiny)
    return jnp.where(both, logit, jnp.where(above, jnp.log(over), values))


@jit(inline=True)
def _values(
    free: Array, low: np.ndarray, span: np.ndarray, both: np.ndarray, above: np.ndarray
) -> Array:
    inside = low + span * jax.nn.sigmoid(free)
    over = low + jnp.exp(jnp.where(above, free, 0.0))
    return jnp.where(both, inside, jnp.where(above, over, free))


class Bounded(NamedTuple, Generic[Tree]):
    """A pytree as a function of unbounded numbers, one for each of ``names``; see ``bounded``."""

    tree: Tree
    parameters: Parameters

    @property
    def names(self) -> tuple[str, ...]:
        """The paths of the leaves that move, in the order of the numbers."""
        return self.parameters.names

    @property
    def start(self) -> Array:
        """The numbers at which every leaf has the value that it has in ``tree``."""
        return self.parameters.free(self.tree)

    def __call__(self, free: Array) -> Tree:
        """``tree`` with its leaves at these numbers, always within their bounds."""
        return self.parameters.insert(self.tree, free)

    def values(self, free: Array) -> dict[str, Array]:
        """The leaves at these numbers, by name."""
        return dict(zip(self.names, self.parameters.values(free), strict=True))


def bounded(
    tree: Tree, names: Sequence[str], bounds: dict[str, tuple[float, float]] | None = None
) -> Bounded[Tree]:
    """Leaves of an estimator as unbounded numbers, so that any solver keeps them within bounds.

    ``bounded(...)(numbers)`` is the estimator at these numbers, and ``.start`` are those of its own
    values. The map is differentiable; a share of 0 or 1 is approached and never passed, while a
    least-squares fit of raw leaves ends at shares such as 2.09.

    Args:
        tree: an estimator, another spec, or a tuple of specs.
        names: dotted paths of the leaves that move.
        bounds: narrower bounds than the declared ones, by name.

    Raises:
        InputError: as ``parameters``; a leaf that starts on its only bound, from where a logarithm
            does not move.

    Three coefficients of the economics model, fitted to times that it made itself:

    >>> import infer_jax as ij, jax, jax.numpy as jnp, optimistix as optx
    >>> model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    >>> work, plan = ij.Workload.of(isl=1024, osl=128), ij.Plan.of(tp=2)
    >>> @jax.jit
    ... def log_times(estimator):
    ...     def one(batch):
    ...         load = work.replace(batch=batch)
    ...         times = estimator.estimate(model.architecture, system.hardware, load, plan)
    ...         return jnp.log(jnp.stack([times.ttft, times.tpot]))
    ...     return jax.vmap(one)(jnp.array([1.0, 512.0])).ravel()
    >>> start = ij.make("economics.planned")
    >>> measured = log_times(start.with_(flop_cap=0.55, memory_cap=0.97, launch=6e-6))
    >>> shares = ij.bounded(start, ("flop_cap", "memory_cap", "launch"))
    >>> def errors(free, _):
    ...     return log_times(shares(free)) - measured
    >>> solver = optx.LevenbergMarquardt(rtol=1e-6, atol=1e-6)
    >>> solution = optx.least_squares(errors, solver, shares.start)
    >>> {name: f"{x:.3g}" for name, x in shares.values(solution.value).items()}
    {'flop_cap': '0.55', 'memory_cap': '0.97', 'launch': '6e-06'}
    """
    chosen = parameters(tree, names, bounds)
    values = jax.tree.leaves(tree)
    for k, name in enumerate(chosen.names):
        start, low = float(values[chosen.indices[k][0]]), chosen.low[k]
        if np.isfinite(low) and not np.isfinite(chosen.high[k]) and not start > low:
            raise InputError("bounded", name, start, f"a start above {low:g}")
    return Bounded(tree, chosen)


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
    known = {path: (i, declared) for i, (path, declared, _) in enumerate(leaves(tree))}
    tied = {name: tuple(others) for name, others in (ties or {}).items() if name in names}
    moving = [*names, *(other for others in tied.values() for other in others)]
    for name in moving:
        if name not in known:
            raise InputError("fit", "parameter", name, ", ".join(known))
        if moving.count(name) > 1:
            raise InputError("fit", "parameter", name, "each name once")
    indices, ends = [], []
    for name in names:
        index, declared = known[name]
        if declared["kind"] == "choice":
            raise InputError("fit", "parameter", name, "a number: choices have no gradient")
        widest = declared["low"], declared["high"]
        low, high = (bounds or {}).get(name, widest)
        if not (widest[0] <= low < high <= widest[1]):
            allowed = f"two numbers within {widest[0]:g} and {widest[1]:g}, the lower first"
            raise InputError("fit", f"bounds of {name}", (low, high), allowed)
        indices.append((index, *(known[other][0] for other in tied.get(name, ()))))
        ends.append((low, high))
    unknown = sorted(set(bounds or {}) - set(names))
    if unknown:
        raise InputError("fit", "bounds", unknown[0], f"a fitted parameter: {', '.join(names)}")
    if not names:
        raise InputError("fit", "parameters", "none", "at least one name")
    low, high = np.asarray(ends, float).T
    return Parameters(tuple(names), tuple(indices), low, high)
