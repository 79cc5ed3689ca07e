"""Gradient ascent from many starts: all restarts in one compiled program, in rounds.

A round is a few steps of optax's Adam or L-BFGS on the augmented Lagrangian at one temperature;
between rounds multipliers are updated, progress is reported, and a standstill ends the search.

The augmented Lagrangian: constraints for an optimiser without constraints.

min f(x) with g(x) <= 0 becomes a sequence of smooth problems: L = f + sum over i of
(max(0, m_i + r g_i)^2 - m_i^2) / (2 r), m_i <- max(0, m_i + r g_i), r larger where g does not
shrink. An equality is two inequalities. Source: Nocedal and Wright, Numerical Optimization
(2006), Section 17.3, Eqs. 17.56 to 17.65, in the form of Rockafellar.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.compiling import of_gradients
from infer_jax.design.problem import MIN_TEMPERATURE, DesignProblem
from infer_jax.errors import InputError
from infer_jax.on_demand import load_optional

FIRST, GROWTH, LARGEST = 10.0, 4.0, 1e5  # penalties, in units of log(objective) per log(excess)^2
SHRUNK = 0.5  # a violation that has not fallen to this share raises its penalty


class Multipliers(NamedTuple):
    """One multiplier and one penalty a constraint, and the violations they were set at."""

    weight: Array
    penalty: Array
    violation: Array


def begin(count: int) -> Multipliers:
    """No multipliers yet."""
    ones = jnp.ones(count)
    return Multipliers(0.0 * ones, FIRST * ones, jnp.inf * ones)


def lagrangian(objective: Array, excess: Array, multipliers: Multipliers) -> Array:
    """The augmented Lagrangian at one point; ``excess`` is positive where a constraint breaks."""
    pushed = jnp.maximum(0.0, multipliers.weight + multipliers.penalty * excess)
    return objective + jnp.sum((pushed**2 - multipliers.weight**2) / (2.0 * multipliers.penalty))


def update(multipliers: Multipliers, excess: Array) -> Multipliers:
    """Multipliers for the next smooth problem, after one was solved to ``excess``."""
    violation = jnp.maximum(excess, 0.0)
    stuck = violation > SHRUNK * multipliers.violation
    weight = jnp.maximum(0.0, multipliers.weight + multipliers.penalty * excess)
    penalty = jnp.where(
        stuck, jnp.minimum(GROWTH * multipliers.penalty, LARGEST), multipliers.penalty
    )
    return Multipliers(weight, penalty, violation)


Optimiser = Any  # of optax: init and update
OptimiserState = Any  # a pytree that its optimiser alone knows
Aux = TypeVar("Aux")
Trace = tuple[Array, Array, Array]  # by step: objective, worst excess, values
METHODS = ("adam", "lbfgs")
ROUNDS = 8  # at most, each of an equal share of the steps
MAX_TEMPERATURE = 0.3  # the first temperature of a smoothed estimator
FAST, SLOW = 0.25, 0.02  # Adam's first and last step, in logits
MIN_GAIN = 1e-4  # two rounds that gain less than this share end the search
MAX_FORWARD = 4  # up to this many numbers forward mode is used, whose code stays one fused pass
TOLERANCE = 1e-2  # relative excess that a relaxed design may have, since rounding decides later


class Restart(NamedTuple):
    """One restart between rounds."""

    free: Array
    digits: Array
    multipliers: Multipliers
    memory: OptimiserState


class AscentProgress(NamedTuple):
    """After a round: the best objective (nearly) within limits, NaN if none; the least excess."""

    round: int
    rounds: int
    objective: float
    excess: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class AscentPath:
    """The paths of the restarts.

    By step and restart: log objective, worst log excess, values of the moving digits
    (steps x restarts x digits), all of the relaxed problem. ``gradients`` counts gradient
    evaluations over all restarts.
    """

    objective: np.ndarray
    excess: np.ndarray
    values: np.ndarray
    free: np.ndarray
    digits: np.ndarray
    gradients: int

    @property
    def ends(self) -> np.ndarray:
        """Restarts by their ends, best first: nearly within limits, then least objective."""
        excess = np.maximum(self.excess[-1], TOLERANCE)
        finite = np.where(np.isfinite(self.objective[-1]), self.objective[-1], np.inf)
        return np.lexsort((finite, np.round(excess, 2)))


def ascend(
    problem: DesignProblem,
    free: np.ndarray,
    digits: np.ndarray,
    limits: np.ndarray,
    *,
    steps: int = 160,
    method: str = "adam",
    progress: Callable[[AscentProgress], None] | None = None,
) -> AscentPath:
    """Follow gradients from all starts: coordinates (restarts x moving), digits (restarts x all).

    Raises:
        InputError: an unknown method, or optax is not installed.
    """
    if method not in METHODS:
        raise InputError("codesign", "method", method, " or ".join(METHODS))
    length, sign = max(1, steps // ROUNDS), problem.signs[problem.keep.by]
    with jax.enable_x64(True):
        started = time.perf_counter()
        optimiser = _optimiser(method, length * ROUNDS)
        key = (method, length)
        if key not in problem.compiled:
            run = partial(_round, problem, optimiser, method, length)
            options = of_gradients(jax.default_backend())
            problem.compiled[key] = jax.jit(run, compiler_options=options)
        run = problem.compiled[key]

        def restart(free: Array, digits: Array) -> Restart:
            return Restart(free, digits, begin(problem.excesses), optimiser.init(free))

        lanes = jax.jit(jax.vmap(restart))(jnp.asarray(free), jnp.asarray(digits, jnp.int32))
        traces, gradients, best = [], 0, []
        for i in range(ROUNDS):
            share = i / (ROUNDS - 1)
            temperature = MAX_TEMPERATURE * (MIN_TEMPERATURE / MAX_TEMPERATURE) ** share
            lanes, trace, counted = run(lanes, jnp.asarray(temperature), limits)
            traces.append([np.asarray(x) for x in trace])
            gradients += int(np.sum(counted))
            objective, excess = traces[-1][0][-1], traces[-1][1][-1]
            good = objective[(excess <= TOLERANCE) & np.isfinite(objective)]
            best.append(float(good.min()) if good.size else np.inf)
            if progress is not None:
                now = float(np.exp(sign * best[-1])) if good.size else np.nan
                seconds = time.perf_counter() - started
                progress(AscentProgress(i + 1, ROUNDS, now, float(excess.min()), seconds))
            # where no restart keeps the limits now, they are still on their way
            if i > 1 and np.all(np.isfinite(best[-3:])) and best[-3] - min(best[-2:]) < MIN_GAIN:
                break
        objective, excess, values = (np.concatenate(x) for x in zip(*traces, strict=True))
        ended = np.asarray(lanes.free), np.asarray(lanes.digits)
        return AscentPath(objective, excess, values, *ended, gradients)


def with_slope(
    merit: Callable[[Array], tuple[Array, Aux]], free: Array
) -> tuple[Array, Array, Aux]:
    """(value, slope, the rest of ``merit``): forward for ``MAX_FORWARD`` numbers, else reverse."""
    if len(free) > MAX_FORWARD:
        (value, rest), slope = jax.value_and_grad(merit, has_aux=True)(free)
        return value, slope, rest

    def along(way: Array) -> tuple[Array, Array, Aux]:
        return jax.jvp(merit, (free,), (way,), has_aux=True)

    return jax.vmap(along, out_axes=(None, 0, None))(jnp.eye(len(free)))


def _optimiser(method: str, steps: int) -> Optimiser:
    optax = load_optional("codesign", "optax", "codesign")
    if method == "lbfgs":
        search = optax.scale_by_backtracking_linesearch(12)
        return optax.lbfgs(linesearch=search)
    schedule = optax.cosine_decay_schedule(FAST, steps, alpha=SLOW / FAST)
    return optax.chain(optax.zero_nans(), optax.adam(schedule, b1=0.8, b2=0.95))


def _round(
    problem: DesignProblem,
    optimiser: Optimiser,
    method: str,
    steps: int,
    lanes: Restart,
    temperature: Array,
    limits: Array,
) -> tuple[Restart, Trace, Array]:
    """``steps`` steps of every restart, then new multipliers; their trace, and evaluations."""

    def advance(lane: Restart) -> tuple[Restart, tuple[Array, ...]]:
        def merit(free: Array) -> tuple[Array, tuple[Array, Array]]:
            objective, excess = problem.relaxation(free, lane.digits, temperature, limits)
            return lagrangian(objective, excess, lane.multipliers), (objective, excess)

        def step(
            carry: tuple[Array, OptimiserState], _: None
        ) -> tuple[tuple[Array, OptimiserState], tuple[Array, ...]]:
            free, memory = carry
            value, slope, rest = with_slope(merit, free)
            slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
            extra, evaluations = {}, jnp.asarray(1)
            if method == "lbfgs":
                extra = {"value": value, "grad": slope, "value_fn": lambda x: merit(x)[0]}
            change, memory = optimiser.update(slope, memory, free, **extra)
            if method == "lbfgs":
                evaluations = 1 + memory[-1].info.num_linesearch_steps
            worst = jnp.max(rest[1], initial=-jnp.inf)
            row = (rest[0], worst, problem.relaxed.values(free), evaluations)
            return (free + jnp.where(jnp.isfinite(change), change, 0.0), memory), row

        (free, memory), rows = jax.lax.scan(step, (lane.free, lane.memory), None, length=steps)
        excess = problem.relaxation(free, lane.digits, temperature, limits)[1]
        # L-BFGS starts afresh, since its curvature is that of the last Lagrangian
        memory = optimiser.init(free) if method == "lbfgs" else memory
        return Restart(free, lane.digits, update(lane.multipliers, excess), memory), rows

    lanes, (objective, excess, values, evaluations) = jax.vmap(advance, out_axes=(0, 1))(lanes)
    return lanes, (objective, excess, values), jnp.sum(evaluations) + len(objective[0])
