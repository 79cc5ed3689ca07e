"""What limits of a search are worth: its multipliers at the design."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import nnls

from infer_jax.compiling import quick
from infer_jax.design.design import Search
from infer_jax.design.problem import MIN_TEMPERATURE
from infer_jax.design.toml import spec_of
from infer_jax.sweeps.constraint import Constraint
from infer_jax.sweeps.paths import Point, estimate_at

ACTIVE = 0.05  # a limit further from binding has no price
AT_END = 1e-3  # of a search's span


def shadow_prices(table: Mapping[str, Any], values: Mapping[str, float]) -> dict[str, float]:
    """By how many per cent the objective improves with a per cent more of each limit that binds.

    Multipliers of least squares, at least 0, of the slopes of objective and limits in the
    logarithms of the free numbers (Karush, Kuhn, Tucker) at the rounded design; the ends of axes
    count as limits, degrees as fixed.
    """
    spec = spec_of("search", table)
    search = Search.of(spec.estimator, spec.space, spec.keeps[0], feasible=spec.feasible)
    problem, keep = search.problems[0], spec.keeps[0]
    relaxed = problem.relaxed
    paths = [next(c.path for c in relaxed.group.columns if c.digit == d) for d in relaxed.moving]
    at, low, high = (
        np.log([values[path] for path in paths]),
        relaxed.bounds.low,
        relaxed.bounds.high,
    )
    inside = np.clip((at - low) / (high - low), 1e-6, 1 - 1e-6)
    free = relaxed.bounds.unbounded(jnp.asarray(low + inside * (high - low)))
    digits = jnp.asarray(relaxed.random(np.random.default_rng(0), 1)[1][0])

    def both(free: Array) -> tuple[tuple[Array, Array, Array], Array]:
        out = problem.relaxation(
            free, digits, jnp.asarray(MIN_TEMPERATURE), jnp.asarray(problem.limits)
        )
        return (*out, jnp.log(relaxed.values(free))), out[1]

    compiled = jax.jit(jax.jacfwd(both, has_aux=True), compiler_options=quick("cpu"))
    (objective, limits, logs), excess = jax.tree.map(np.asarray, compiled(free))
    scale, moves = np.diag(logs), np.array([not path.startswith("plan.") for path in paths])
    names = [name for name, _ in keep.limits]

    def name_limits(point: Point) -> float:  # as they are traced: jit sorts them
        for phase in problem.evaluation.phases(point, estimate_at(point)).values():
            names.extend(phase.limits)
        return 0.0

    jax.eval_shape(name_limits, relaxed.start_point(values))
    names += [
        c.value or " x ".join(c.product) for c in spec.space.where if isinstance(c, Constraint)
    ]
    active = np.flatnonzero(excess > -ACTIVE)
    columns = [((limits[i] / scale)[moves], names[i]) for i in active]
    for i in np.flatnonzero(moves):
        for end, sign in ((inside[i] < AT_END, -1.0), (inside[i] > 1 - AT_END, 1.0)):
            if end:
                columns.append((sign * np.eye(len(paths))[i][moves], f"{paths[i]}, end of axis"))
    weights, _ = nnls(np.array([c for c, _ in columns]).T, -(objective / scale)[moves])
    found: dict[str, float] = {}
    for (_, name), weight in zip(columns, weights, strict=True):
        found[name] = found.get(name, 0.0) + float(weight)
    return dict(sorted(found.items(), key=lambda x: -x[1]))
