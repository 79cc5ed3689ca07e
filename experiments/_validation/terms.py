"""What each term of the estimator explains: the loss on left-out rows of a fit without it.

A term is without effect where its coefficients have the values of ``WITHOUT``; the others are
fitted again. Rows of a server and pair of lengths are left out together, by the linearised fit.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments import _report
from infer_jax.calibration.pooled import likelihood
from infer_jax.calibration.pooled.likelihood import PooledTimes, problem
from infer_jax.calibration.pooled.rows import PooledRow
from infer_jax.calibration.statistics import left_out_log_errors
from infer_jax.catalog.foreign import read_toml

# coefficients of a term, with values at which it does nothing
WITHOUT: Any = read_toml(Path(__file__).with_name("terms.toml"))


def table(rows: list[PooledRow]) -> dict[str, Any]:
    """Print what each term gains, the shipped fit against one without it; the figures."""
    times, begin = PooledTimes.of(rows), time.perf_counter()
    groups = times.labels(lambda row: (row.dataset, row.group, row.lengths)).tolist()
    whole = losses(times, {}, groups)
    _report.say(f"fit of {len(times.seconds)} times: {whole[0]:.0f}, {whole[1]:.0f}", begin)
    gains = {}
    for name, values in WITHOUT.items():
        found = losses(times, values, groups)
        count = sum(own in likelihood.NAMES for own in values)
        fitted, left_out = (x - y for x, y in zip(found, whole, strict=True))
        gains[name] = {"coefficients": count, "fitted": fitted, "left_out": left_out}
        _report.say(f"without {name}: {left_out:+.0f}", begin)
    lines = [
        (name, x["coefficients"], f"{x['fitted']:.0f}", f"{x['left_out']:.0f}")
        for name, x in sorted(gains.items(), key=lambda item: -item[1]["left_out"])
    ]
    note = "Loss: half the sum of squares of all times, each counted as in the fit."
    columns = ("without", "coefficients", "loss of the fit", "of left-out rows")
    _report.show("By how much losses rise without a term", columns, lines, note)
    return gains


def losses(
    times: PooledTimes, values: Mapping[str, float], groups: list[str]
) -> tuple[float, float]:
    """Half the sums of squares of a fit with fixed ``values``: of all, and of left-out ones."""
    fit = likelihood.solve_starts(problem(times, fixed=values), times, 1)
    used = fit.weights > 0

    def loss(errors: np.ndarray) -> float:
        roots = np.asarray(fit.loss.root(jnp.asarray(errors / fit.scale)))
        return 0.5 * float(np.sum(fit.weights[used] * roots[used] ** 2))

    return loss(fit.residuals), loss(left_out_log_errors(fit, groups, used))
