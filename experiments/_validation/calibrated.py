"""After five runs of a server: calibrated as `infer-jax calibrate` does, its other rows predicted.

Five rows of each server (``group``) of ten or more are drawn at random. The problem is that of
`infer_jax.calibration.calibrate_server`: its coefficients, priors, loss and solver. One program
gives the slopes of all servers, where the command compiles one for each.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._validation.estimates import answers
from infer_jax.calibration.linearised import Linearised
from infer_jax.calibration.pooled.answers import (
    TRACES,
    RowInputs,
    closed_loop,
    inputs,
    shipped,
)
from infer_jax.calibration.pooled.rows import PooledRow
from infer_jax.calibration.problem import FitProblem
from infer_jax.calibration.runs import InstanceLoad
from infer_jax.calibration.server import (
    SCALES,
    STEPS,
    TOLERANCE,
    coefficients_to_fit,
    priors,
)
from infer_jax.calibration.uncertainty import rows_by_label
from infer_jax.estimators.serving import ENGINES, Deployment, Serving

RUNS, MIN_ROWS = 5, 10  # runs that are fitted; rows of a server from which on it is scored
CHUNK = 64  # rows of a server that are predicted at once
OUTPUTS = ("tpot", "ttft")


def five_runs(rows: Sequence[PooledRow], seed: int = 0) -> dict[str, np.ndarray]:
    """Each metric of the rows that were not seen, NaN of the five that were and of other servers.

    Left out are drafts, whose acceptance an offset would stand for, as the command does.
    """
    random, programs = np.random.default_rng(seed), {}
    found: dict[str, np.ndarray] = {}
    for members in servers(rows).values():
        drawn = random.permutation(members)
        few, rest = drawn[:RUNS], drawn[RUNS:]
        model = calibrated([rows[i] for i in few], programs)
        padded = np.resize(rest, -(-len(rest) // CHUNK) * CHUNK)
        for start in range(0, len(padded), CHUNK):
            part = padded[start : start + CHUNK]
            for metric, values in answers([rows[i] for i in part], model).items():
                found.setdefault(metric, np.full(len(rows), np.nan))[part] = values
    return found


def servers(rows: Sequence[PooledRow]) -> dict[str, list[int]]:
    """Indices of the rows of each server that has enough, with both times and no drafts."""

    def is_usable(row: PooledRow) -> bool:
        timed = row.mode == "loop" and all(name in row.measured for name in OUTPUTS)
        return timed and isinstance(row.plan, Deployment) and not float(row.plan.drafts)

    usable = [i for i, row in enumerate(rows) if is_usable(row)]
    groups = rows_by_label(rows[i].group for i in usable)
    enough = {name: own for name, own in groups.items() if len(own) >= MIN_ROWS}
    return {name: [usable[k] for k in own] for name, own in enough.items()}


def calibrated(rows: Sequence[PooledRow], programs: dict[tuple, dict] | None = None) -> Serving:
    """The shipped fit with the coefficients that these rows of one server fit best.

    ``programs``: those compiled for earlier servers, by names of coefficients.
    """
    first = rows[0]
    given = [inputs(row, shipped()) for row in rows]
    facts = given[0].facts
    base = shipped().with_(engine=ENGINES.index(first.engine), generation=facts["generation"])
    times = np.asarray([[row.measured[name] for row in rows] for name in OUTPUTS])
    assert first.served is not None
    loads = [InstanceLoad(g.workload, g.plan) for g in given]  # pyright: ignore[reportArgumentType]
    names = coefficients_to_fit(base, first.served.architecture(), loads, times)
    problem = Linearised.of(
        lambda model: model.vllm.layer_gap,  # only its slopes are needed, which `_slopes` has
        times.ravel(),
        base,
        names,
        priors=priors(base, names),
        scale=np.repeat(SCALES, len(rows)),
        tolerance=TOLERANCE,
    )
    shared = {} if programs is None else programs.setdefault(names, {})
    stacked = jax.tree.map(lambda *x: np.stack([np.asarray(v, float) for v in x]), *given)
    problem.programs.update(shared)
    problem.programs["slope"] = functools.partial(_slopes, problem, stacked)
    ends, _ = problem.solve(problem.starts(1, 0.0, 0), np.ones(times.size), STEPS)
    shared.update({k: v for k, v in problem.programs.items() if k != "slope"})
    return problem.chosen.insert(base, jnp.asarray(ends[0]))


def _slopes(problem: FitProblem, given: RowInputs, free: Array) -> tuple[Array, Array]:
    """Logarithms of both times of all rows, and their Jacobian, rows x parameters."""
    parameters, base = problem.chosen, problem.tree
    flat = jnp.stack(
        [jnp.asarray(x, float) for x in jax.tree.leaves(parameters.insert(base, free))]
    )
    steps = np.diag(np.asarray(jax.jacfwd(parameters.values)(free)))
    basis = np.zeros((2 * RUNS, len(flat)))
    for k, (indices, step) in enumerate(zip(parameters.indices, steps, strict=True)):
        basis[k, list(indices)] = step
    logs, slopes = _pushed(jax.tree.structure(base), flat, jnp.asarray(basis), given)
    return logs, slopes[: len(steps)].T


@functools.partial(jax.jit, static_argnums=0)
def _pushed(structure: Any, flat: Array, basis: Array, given: RowInputs) -> tuple[Array, Array]:
    TRACES.append("slopes")

    def logs(flat: Array) -> Array:
        model = jax.tree.unflatten(structure, list(flat))
        found = jax.vmap(closed_loop, in_axes=(None, 0))(model, given)
        return jnp.log(jnp.concatenate([found[name] for name in OUTPUTS]))

    here, push = jax.linearize(logs, flat)
    return here, jax.vmap(push)(basis)
