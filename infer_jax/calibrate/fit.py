"""Which parameters make a model agree with measurements?

Residuals are differences of logarithms, passed through a robust loss, with priors as residuals
of their own; Levenberg-Marquardt starts from several points at once and the best end is kept.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.calibrate.parameters import Parameters, parameters
from infer_jax.errors import InputError

Predict = Callable[[Any], Array]


class Prior(NamedTuple):
    """Where a parameter is thought to be: near ``value``, within a relative ``spread`` (1 s.d.)."""

    value: float
    spread: float


@dataclasses.dataclass(frozen=True)
class Fit:
    """What a fit found.

    ``tree`` is the given pytree with fitted leaves; ``predicted`` and ``measured`` are in the
    unit of the data; ``free`` and ``jacobian`` (rows x parameters, of log prediction) are in the
    coordinates of ``parameters``; ``precision`` is the prior's diagonal there, in residuals of
    ``scale``; ``losses`` are the restarts' ends, the best first.
    """

    tree: Any
    parameters: Parameters
    free: np.ndarray
    predicted: np.ndarray
    measured: np.ndarray
    weights: np.ndarray
    jacobian: np.ndarray
    precision: np.ndarray
    scale: float
    losses: np.ndarray

    @property
    def values(self) -> dict[str, float]:
        """The fitted parameters by name."""
        fitted = np.asarray(self.parameters.values(jnp.asarray(self.free)))
        return dict(zip(self.parameters.names, map(float, fitted), strict=True))

    @property
    def errors(self) -> np.ndarray:
        """Relative errors of the prediction, predicted / measured - 1, one a row."""
        return self.predicted / self.measured - 1.0


def residuals(predicted: Array, measured: ArrayLike, weights: ArrayLike = 1.0) -> Array:
    """Differences of logarithms, weighted: w (log predicted - log measured)."""
    return jnp.asarray(weights) * (jnp.log(predicted) - jnp.log(jnp.asarray(measured)))


def robust(residual: Array, scale: float) -> Array:
    """Residuals whose squares are the soft-L1 loss: large ones count by their size only.

    rho(r) = 2 s^2 (sqrt(1 + (r/s)^2) - 1), returned as sign(r) sqrt(rho): near r where it is
    small against the scale s, near sqrt(2 s |r|) where large. Smooth at 0 with slope 1.
    """
    ratio = (residual / scale) ** 2
    # sqrt(1 + q) - 1 = q / (sqrt(1 + q) + 1), without cancellation at 0
    return residual * jnp.sqrt(2.0 / (jnp.sqrt(1.0 + ratio) + 1.0))


def fit(
    predict: Predict,
    measured: Any,
    tree: Any,
    names: Sequence[str],
    *,
    weights: Any = None,
    priors: Mapping[str, Prior] | None = None,
    bounds: dict[str, tuple[float, float]] | None = None,
    scale: float = 0.03,
    restarts: int = 8,
    spread: float = 1.0,
    seed: int = 0,
    steps: int = 200,
) -> Fit:
    """The leaves ``names`` of ``tree`` for which ``predict(tree)`` is nearest to ``measured``.

    Least squares of the robust log residuals and of the priors', log(x / value) / spread in
    units of ``scale``, the size of an ordinary residual.

    Args:
        predict: all predictions of a tree, in the order and unit of ``measured``.
        measured: positive numbers.
        tree: where the first start is; all other leaves keep their values.
        names: dotted paths; see ``parameters``.
        weights: factors on residuals, 1 by default.
        priors: by name; a parameter without one is free within its bounds.
        bounds: narrower ones than declared, by name.
        restarts: starts in all; the others are ``spread`` away in every coordinate, at random.
        steps: iterations of one start at most.

    Raises:
        InputError: measurements that are not positive numbers, fewer than the parameters, or
            weights of another shape; a prior of an unknown parameter; see ``parameters``; the
            solver is not installed; no start ends at finite residuals.
    """
    problem = _Problem.of(predict, measured, tree, names, priors, bounds, scale)
    weight = problem.weighted(weights)
    starts = problem.starts(restarts, spread, seed)
    ends, costs = jax.jit(jax.vmap(problem.solver(steps), in_axes=(0, None)))(starts, weight)
    costs = _finite(costs)
    order = np.argsort(costs)
    free, chosen = ends[order[0]], problem.chosen

    def logs(u: Array) -> Array:
        return jnp.log(predict(chosen.place(tree, u)))

    at, slope = jax.jit(lambda u: (logs(u), jax.jacfwd(logs)(u)))(free)
    held = np.diag(jax.jacfwd(lambda u: jnp.log(chosen.values(u)))(free))
    precision = np.asarray(
        [
            (held[i] / p.spread) ** 2 if (p := problem.priors.get(n)) else 0.0
            for i, n in enumerate(names)
        ]
    )
    return Fit(
        tree=chosen.place(tree, free),
        parameters=chosen,
        free=np.asarray(free),
        predicted=np.exp(np.asarray(at)),
        measured=problem.data,
        weights=weight,
        jacobian=np.asarray(slope),
        precision=precision,
        scale=scale,
        losses=costs[order],
    )


def held_out(
    predict: Predict,
    measured: Any,
    tree: Any,
    names: Sequence[str],
    folds: Sequence[Any],
    *,
    weights: Any = None,
    priors: Mapping[str, Prior] | None = None,
    bounds: dict[str, tuple[float, float]] | None = None,
    scale: float = 0.03,
    restarts: int = 4,
    spread: float = 1.0,
    seed: int = 0,
    steps: int = 200,
) -> np.ndarray:
    """Every row predicted by a fit on the rows of the other folds, in the unit of the data.

    ``folds`` labels the rows; all folds are fitted at once, in one compiled program. The rest
    is as in ``fit``.

    Raises:
        InputError: another number of labels than rows, fewer than two folds; see ``fit``.
    """
    problem = _Problem.of(predict, measured, tree, names, priors, bounds, scale)
    labels = np.asarray([str(label) for label in folds])
    kinds = sorted(set(labels))
    if len(labels) != len(problem.data) or len(kinds) < 2:
        allowed = f"{len(problem.data)} labels, one a row, of two folds or more"
        raise InputError("fit", "folds", f"{len(labels)} of {len(kinds)} kinds", allowed)
    inside = np.stack([labels == kind for kind in kinds])
    weight = np.where(inside, 0.0, problem.weighted(weights))
    starts = problem.starts(restarts, spread, seed)
    solve = jax.vmap(jax.vmap(problem.solver(steps), in_axes=(0, None)), in_axes=(None, 0))
    ends, costs = jax.jit(solve)(starts, weight)
    best = np.argmin(np.stack([_finite(c) for c in costs]), axis=1)
    found = ends[np.arange(len(kinds)), best]
    every = jax.jit(jax.vmap(lambda u: predict(problem.chosen.place(tree, u))))(found)
    return np.sum(np.where(inside, np.asarray(every), 0.0), axis=0)


class _Problem(NamedTuple):
    """What every fit of one model to one set of measurements shares."""

    predict: Predict
    tree: Any
    chosen: Parameters
    data: np.ndarray
    priors: dict[str, Prior]
    scale: float

    @classmethod
    def of(
        cls,
        predict: Predict,
        measured: Any,
        tree: Any,
        names: Sequence[str],
        priors: Mapping[str, Prior] | None,
        bounds: dict[str, tuple[float, float]] | None,
        scale: float,
    ) -> "_Problem":
        chosen = parameters(tree, names, bounds)
        data = np.asarray(measured, float)
        bad = np.flatnonzero(~(np.isfinite(data) & (data > 0)))
        if data.ndim != 1 or len(bad):
            where = f"measurement {bad[0] + 1}" if len(bad) else "measurements"
            shown = data[bad[0]] if len(bad) else f"of shape {data.shape}"
            raise InputError("fit", where, shown, "a list of numbers above 0")
        if len(data) < len(names):
            allowed = f"at least {len(names)}, the number of parameters"
            raise InputError("fit", "measurements", len(data), allowed)
        beliefs = dict(priors or {})
        for name, prior in beliefs.items():
            if name not in names:
                raise InputError("fit", "prior", name, f"a fitted parameter: {', '.join(names)}")
            if not (prior.value > 0 and prior.spread > 0):
                raise InputError("fit", f"prior of {name}", tuple(prior), "two numbers above 0")
        return cls(predict, tree, chosen, data, beliefs, scale)

    def weighted(self, weights: Any) -> np.ndarray:
        """One weight a row."""
        given = np.asarray(1.0 if weights is None else weights, float)
        if given.shape not in ((), self.data.shape):
            raise InputError("fit", "weights", f"of shape {given.shape}", "one a measurement")
        if not (np.isfinite(given) & (given >= 0)).all():
            raise InputError("fit", "weights", "negative or not finite", "numbers of at least 0")
        return np.broadcast_to(given, self.data.shape)

    def starts(self, count: int, spread: float, seed: int) -> Array:
        """The tree's own values, and points at random around them."""
        noise = np.random.default_rng(seed).normal(size=(count, len(self.chosen.names)))
        noise[0] = 0.0
        return self.chosen.free(self.tree) + spread * noise

    def losses(self, free: Array, weight: Array) -> Array:
        """What is squared and summed: robust residuals of the rows, and the priors'."""
        predicted = self.predict(self.chosen.place(self.tree, free))
        rows = robust(residuals(predicted, self.data, weight), self.scale)
        values = dict(zip(self.chosen.names, self.chosen.values(free), strict=True))
        held = [
            self.scale / p.spread * (jnp.log(values[name]) - np.log(p.value))
            for name, p in self.priors.items()
        ]
        return jnp.concatenate([rows, jnp.stack(held)]) if held else rows

    def solver(self, steps: int) -> Callable[[Array, Array], tuple[Array, Array]]:
        """Levenberg-Marquardt from one start: (end, half the sum of squares there)."""
        try:
            import optimistix as optx
        except ImportError:
            allowed = "pip install 'infer_jax[fit]'"
            raise InputError("fit", "optimistix", "not installed", allowed) from None
        method = optx.LevenbergMarquardt(rtol=1e-10, atol=1e-12)

        def solve(start: Array, weight: Array) -> tuple[Array, Array]:
            found = optx.least_squares(
                self.losses,
                method,
                start,
                weight,
                options={"jac": "fwd"},  # few parameters, many rows
                max_steps=steps,
                throw=False,
            )
            return found.value, 0.5 * jnp.sum(self.losses(found.value, weight) ** 2)

        return solve


def _finite(costs: Any) -> np.ndarray:
    """Costs with infinity where they are not numbers; at least one must be."""
    costs = np.where(np.isfinite(costs), costs, np.inf)
    if not np.isfinite(costs).any():
        raise InputError("fit", "predictions", "not finite", "a model that is, near its start")
    return costs
