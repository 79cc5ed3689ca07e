"""A fitting problem: a model, measurements, parameters and priors.

A problem is solved for any weights of its rows by one compiled program, so that folds and
bootstrap draws, which are weights, cost no compilation. Residuals are differences of logarithms,
passed through a robust loss, with priors as residuals of their own. Levenberg-Marquardt starts from
several points; the best solution is kept.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.calibration.bounds import Parameters, parameters
from infer_jax.calibration.uncertainty import SOFT_L1, Fit, Loss, check_clusters
from infer_jax.compiling import SLOPES, of_rows, once
from infer_jax.errors import InputError
from infer_jax.on_demand import load_optional

if TYPE_CHECKING:
    from lineax import AbstractLinearSolver


Predict = Callable[[Any], Array]


class TreeModel:
    """A model that is a pytree of numbers itself: its programs are kept, for others of its kind."""


class Prior(NamedTuple):
    """A prior: a parameter is near ``value``, with relative standard deviation ``spread``."""

    value: float
    spread: float


def residuals(predicted: Array, measured: ArrayLike, weights: ArrayLike = 1.0) -> Array:
    """Differences of logarithms, weighted: w (log predicted - log measured)."""
    return jnp.asarray(weights) * (jnp.log(predicted) - jnp.log(jnp.asarray(measured)))


class ProblemOptions(TypedDict, total=False):
    """What a problem may say beside its model, measurements and names; see ``FitProblem.of``."""

    priors: Mapping[str, Prior] | None
    bounds: dict[str, tuple[float, float]] | None
    ties: Mapping[str, Sequence[str]] | None
    scale: ArrayLike
    loss: Loss
    tolerance: float


@dataclasses.dataclass(frozen=True)
class FitProblem:
    """A model and the measurements that its parameters are fitted to.

    ``scale`` is the typical log residual of each row; ``tolerance`` ends a descent when relative
    steps and gains are smaller.
    """

    predict: Predict
    tree: Any
    chosen: Parameters
    data: np.ndarray
    priors: dict[str, Prior]
    scale: np.ndarray
    loss: Loss = SOFT_L1
    tolerance: float = 1e-10
    # compiled programs; `with_` keeps them, since measurements are arguments
    programs: dict[Hashable, Callable] = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        predict: Predict,
        measured: ArrayLike | Sequence[float],
        tree: Any,
        names: Sequence[str],
        *,
        priors: Mapping[str, Prior] | None = None,
        bounds: dict[str, tuple[float, float]] | None = None,
        ties: Mapping[str, Sequence[str]] | None = None,
        scale: ArrayLike = 0.03,
        loss: Loss = SOFT_L1,
        tolerance: float = 1e-10,
    ) -> Self:
        """A problem, checked.

        Args:
            predict: all predictions of a tree, in the order and unit of ``measured``.
            measured: positive numbers.
            tree: the first starting point; leaves that are not fitted keep their values.
            names: dotted paths; see ``parameters``.
            priors: by name; a parameter without one is free within its bounds.
            bounds: narrower ones than declared, by name.
            ties: leaves that take the value of a parameter, by its name.
            scale: the typical size of a log residual, one for all rows or one for each.
            loss: ``SOFT_L1`` or ``CAUCHY``.
            tolerance: relative steps and gains below which a descent ends.

        Raises:
            InputError: measurements that are not positive numbers, or fewer (priors counted) than
                the parameters; a scale that is not positive; a prior of an unknown parameter;
                see ``parameters``.
        """
        chosen = parameters(tree, names, bounds, ties)
        data = np.asarray(measured, float)
        bad = np.flatnonzero(~(np.isfinite(data) & (data > 0)))
        if data.ndim != 1 or len(bad):
            where = f"measurement {bad[0] + 1}" if len(bad) else "measurements"
            value = data[bad[0]] if len(bad) else f"of shape {data.shape}"
            raise InputError("fit", where, value, "a list of numbers above 0")
        priors = dict(priors or {})
        for name, prior in priors.items():
            if name not in names:
                raise InputError("fit", "prior", name, f"a fitted parameter: {', '.join(names)}")
            if not (prior.value > 0 and prior.spread > 0):
                raise InputError("fit", f"prior of {name}", tuple(prior), "two numbers above 0")
        if len(data) + len(priors) < len(names):
            allowed = f"at least {len(names) - len(priors)}, the number of parameters"
            allowed += " without a prior" if priors else ""
            raise InputError("fit", "measurements", len(data), allowed)
        sizes = np.asarray(scale, float)
        if sizes.shape not in ((), data.shape) or not (np.isfinite(sizes) & (sizes > 0)).all():
            raise InputError("fit", "scale", scale, "a number above 0, or one a measurement")
        sizes = np.broadcast_to(sizes, data.shape)
        return cls(predict, tree, chosen, data, priors, sizes, loss, tolerance)

    def with_(self, measured: ArrayLike) -> Self:
        """The same problem with other measurements; its compiled programs serve both."""
        return dataclasses.replace(self, data=np.asarray(measured, float))

    def weighted(self, weights: ArrayLike | None) -> np.ndarray:
        """One weight a row.

        Raises:
            InputError: weights of another shape, negative or not finite.
        """
        numbers = np.asarray(1.0 if weights is None else weights, float)
        if numbers.shape not in ((), self.data.shape):
            raise InputError("fit", "weights", f"of shape {numbers.shape}", "one a measurement")
        if not (np.isfinite(numbers) & (numbers >= 0)).all():
            raise InputError("fit", "weights", "negative or not finite", "numbers of at least 0")
        return np.broadcast_to(numbers, self.data.shape)

    def starts(self, count: int = 1, spread: float = 0.0, seed: int = 0) -> Array:
        """The tree's own values, and points at random around them."""
        noise = np.random.default_rng(seed).normal(size=(count, len(self.chosen.names)))
        noise[0] = 0.0
        return self.chosen.free(self.tree) + spread * noise

    def logs(self, free: ArrayLike) -> Array:
        """Logarithms of the predictions at these coordinates."""
        return jnp.log(self.predict(self.chosen.insert(self.tree, jnp.asarray(free))))

    def row_losses(self, predicted: Array, weight: ArrayLike, logs: ArrayLike) -> Array:
        """sqrt(w) times robust residuals of rows, from logarithms of predicted and measured."""
        # the root of a weight of 0 has no derivative, but weights are never differentiated
        return jnp.sqrt(jnp.asarray(weight)) * self.loss.root((predicted - logs) / self.scale)

    def prior_residuals(self, free: Array) -> Array:
        """log(x / value) / spread, one a prior."""
        index = np.asarray([self.chosen.names.index(name) for name in self.priors], int)
        value, spread = np.reshape([*self.priors.values()], (-1, 2)).T
        return (jnp.log(self.chosen.values(free)[index]) - np.log(value)) / spread

    def losses(self, free: Array, weight: ArrayLike, logs: ArrayLike) -> Array:
        """The residuals to square and sum, of rows and of priors; ``logs`` of the measurements."""
        rows = self.row_losses(self.logs(free), weight, logs)
        return jnp.concatenate([rows, self.prior_residuals(free)])

    def solve(
        self, starts: ArrayLike, weights: ArrayLike, steps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best solution for each row of ``weights``, and half the sums of squares of all.

        Folds run one after the other in one compiled program.

        Raises:
            InputError: no start ends at finite residuals.
        """
        best, costs = [], []
        for weight in np.atleast_2d(np.asarray(weights)):
            ends, cost = self.descend(np.atleast_2d(np.asarray(starts)), weight, steps)
            cost = np.where(np.isfinite(cost), cost, np.inf)
            if not np.isfinite(cost).any():
                allowed = "a model that is, near its start"
                raise InputError("fit", "predictions", "not finite", allowed)
            best.append(np.asarray(ends)[np.argmin(cost)])
            costs.append(cost)
        return np.stack(best), np.stack(costs)

    def descend(
        self, starts: np.ndarray, weight: np.ndarray, steps: int
    ) -> tuple[ArrayLike, ArrayLike]:
        """The ends of the descents from all starts, side by side, and half the sums of squares."""
        if steps not in self.programs:
            descent = levenberg_marquardt(self.losses, self.tolerance, steps)
            self.programs[steps] = jax.jit(jax.vmap(descent, in_axes=(0, None, None)))
        return self.programs[steps](jnp.asarray(starts), weight, np.log(self.data))

    def derivatives(self, free: ArrayLike) -> tuple[Array, Array]:
        """Logarithms of the predictions and their Jacobian, rows x parameters, compiled once."""
        return self._slope(jnp.asarray(free), self.tree)

    def predictions(self, tree: object) -> ArrayLike:
        """The predictions of a tree; of one like the problem's no other program is compiled."""
        if jax.tree.structure(tree) == jax.tree.structure(self.tree):
            return np.exp(np.asarray(self._slope(self.chosen.free(tree), tree)[0]))
        if isinstance(self.predict, TreeModel):
            return once(type(self.predict).__call__, self.predict, tree, options=SLOPES)
        return jax.jit(self.predict, compiler_options=of_rows(jax.default_backend()))(tree)

    def _slope(self, free: Array, tree: object) -> tuple[Array, Array]:
        chosen = self.chosen
        fixed = (chosen.indices, tuple(chosen.low.tolist()), tuple(chosen.high.tolist()))
        if isinstance(self.predict, TreeModel):
            return once(log_slopes, self.predict, free, tree, fixed=fixed, options=SLOPES)
        if "slope" not in self.programs:
            options = of_rows(jax.default_backend())
            slopes = functools.partial(log_slopes, *fixed, self.predict)
            self.programs["slope"] = jax.jit(slopes, compiler_options=options)
        return self.programs["slope"](free, tree)

    def precision(self, free: ArrayLike) -> np.ndarray:
        """Diagonal of the priors' information in the free coordinates, one a parameter."""
        if not self.priors:
            return np.zeros(len(self.chosen.names))
        slope = np.diag(jax.jacfwd(lambda u: jnp.log(self.chosen.values(u)))(jnp.asarray(free)))
        free_prior = Prior(1.0, np.inf)
        spreads = [self.priors.get(name, free_prior).spread for name in self.chosen.names]
        return ((slope / np.asarray(spreads, slope.dtype)) ** 2).astype(float)


def log_slopes(
    indices: tuple[tuple[int, ...], ...], low: tuple[float, ...], high: tuple[float, ...],
    predict: Predict, free: Array, tree: object,
) -> tuple[Array, Array]:  # fmt: skip
    """Logarithms of the predictions and their Jacobian, rows x parameters, in one program.

    The parameters are given as plain values, by which the program is kept.
    """
    chosen = Parameters((), indices, np.asarray(low), np.asarray(high))

    def logs(free: Array) -> tuple[Array, Array]:
        result = jnp.log(predict(chosen.insert(tree, free)))
        return result, result

    return jax.jacfwd(logs, has_aux=True)(free)[::-1]


def levenberg_marquardt(
    losses: Callable[..., Array],
    tolerance: float,
    steps: int,
    linear_solver: "AbstractLinearSolver | None" = None,
) -> Callable[..., tuple[Array, Array]]:
    """A descent from one start and more data: its end, and half the sum of squares there.

    ``losses``: residuals of the coordinates and the data; ``linear_solver``: of the equations of a
    step; None: optimistix's default, QR of the Jacobian.

    Raises:
        InputError: the solver is not installed.
    """
    optx = load_optional("fit", "optimistix", "fit")
    chosen = {} if linear_solver is None else {"linear_solver": linear_solver}
    method = optx.LevenbergMarquardt(tolerance, tolerance * 1e-2, **chosen)

    def descent(start: Array, *data: Any) -> tuple[Array, Array]:
        solution = optx.least_squares(
            lambda free, data: losses(free, *data),
            method,
            start,
            data,
            options={"jac": "fwd"},  # few parameters, many rows
            max_steps=steps,
            throw=False,
        )
        return solution.value, 0.5 * jnp.sum(losses(solution.value, *data) ** 2)

    return descent


def fit(
    predict: Predict,
    measured: ArrayLike | Sequence[float],
    tree: Any,  # the caller's, and given to its own function
    names: Sequence[str],
    *,
    weights: ArrayLike | None = None,
    clusters: Sequence[Hashable] | None = None,
    restarts: int = 8,
    spread: float = 1.0,
    seed: int = 0,
    steps: int = 200,
    **options: Unpack[ProblemOptions],
) -> Fit:
    """Fits the leaves ``names`` of ``tree`` so that ``predict(tree)`` is nearest to ``measured``.

    Least squares of the robust log residuals in units of ``scale``, each counted ``weights``
    times, and of the priors' residuals, log(x / value) / spread.

    Args:
        predict: all predictions of a tree, in the order and unit of ``measured``.
        measured: positive numbers.
        tree: the first starting point; all other leaves keep their values.
        names: dotted paths; see ``parameters``.
        weights: how many times each row counts, once by default.
        clusters: labels of rows with correlated errors (one machine), for the error bars.
        restarts: number of starts; the others are random, ``spread`` away in every coordinate.
        steps: the most iterations from one start.
        options: priors, bounds, ties, scale (0.03), loss (``SOFT_L1``) and tolerance, as in
            ``FitProblem.of``.

    Raises:
        InputError: measurements that are not positive numbers, fewer than the parameters, or
            weights or clusters of another number; a prior of an unknown parameter; see
            ``parameters``; the solver is not installed; no start ends at finite residuals.
    """
    problem = FitProblem.of(predict, measured, tree, names, **options)
    check_clusters(clusters, len(problem.data))
    weight = problem.weighted(weights)
    ends, costs = problem.solve(problem.starts(restarts, spread, seed), weight, steps)
    return at(problem, ends[0], weight, np.sort(costs[0]), clusters)


def at(
    problem: FitProblem,
    free: ArrayLike,
    weights: ArrayLike | None = None,
    losses: np.ndarray | Sequence[float] = (),
    clusters: Sequence[Hashable] | None = None,
) -> Fit:
    """A ``Fit`` at given coordinates, with predictions, Jacobian and priors there."""
    logs, slope = problem.derivatives(free)
    return Fit(
        tree=problem.chosen.insert(problem.tree, jnp.asarray(free)),
        parameters=problem.chosen,
        free=np.asarray(free),
        predicted=np.exp(np.asarray(logs)),
        measured=problem.data,
        weights=problem.weighted(weights),
        jacobian=np.asarray(slope),
        precision=problem.precision(free),
        scale=problem.scale,
        losses=np.asarray(losses),
        loss=problem.loss,
        clusters=None if clusters is None else tuple(clusters),
    )
