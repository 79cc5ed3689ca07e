"""Shapes in annotations are checked as the package runs: every axis of one name is of one size."""

import subprocess
import sys
import textwrap

BEGUN = """
from jaxtyping import install_import_hook

CHECKED = (
    "infer_jax.physics.pareto",
    "infer_jax.physics.layers",
    "infer_jax.estimators.serving.lowered",
    "infer_jax.estimators.serving.pass_terms",
    "infer_jax.calibration.statistics",
    "infer_jax.calibration.error_bands",
    "infer_jax.calibration.uncertainty",
)
with install_import_hook(CHECKED, "beartype.beartype"):
    import infer_jax as ij
    from infer_jax.calibration import statistics, uncertainty
    from infer_jax.calibration.error_bands import weighted_quantiles
    from infer_jax.estimators.serving import pass_terms
    from infer_jax.physics import pareto

import jax
import jax.numpy as jnp
import numpy as np

rows = np.linspace(1.0, 2.0, 5)
"""
GOOD = """
system, model = ij.load_system("h100_sxm"), ij.load_model("deepseek-v3")
work, plan = ij.Workload.of(isl=512, osl=64, batch=4), ij.Plan.of(tp=8)
estimator = ij.make("serving", system.coefficients)
jax.eval_shape(estimator.estimate, model.architecture, system.hardware, work, plan)
assert pareto.frontier_rows(rows, rows[::-1]).shape == (5,)
assert statistics.score(rows, rows, rows, rows).cover80 == 100.0
assert np.allclose(np.diag(uncertainty.correlation(np.eye(3))), 1.0)
assert weighted_quantiles(rows, np.ones(5), (0.5,)) == (1.5,)
"""
# what no annotation allows: too few values, no square, layers of two models
BAD = (
    "statistics.score(rows, rows[1:])",
    "uncertainty.correlation(np.ones((2, 3)))",
    "pass_terms._attended(jnp.ones(3), jnp.ones(3), jnp.ones(3), jnp.ones(2))",
    "pareto.descents(np.ones((2, 2)))",
    "weighted_quantiles(rows, rows[1:], (0.5,))",
)


def ran(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_shapes_hold_where_arrays_have_axes():
    """One process for what must pass and what must not: the import takes most of the time."""
    refused = "".join(
        f"""
        try:
            {call}
        except jaxtyping.TypeCheckError:
            print("refused")
        """
        for call in BAD
    )
    done = ran(BEGUN + GOOD + "import jaxtyping" + textwrap.dedent(refused))
    assert not done.returncode, done.stderr
    assert done.stdout.split() == ["refused"] * len(BAD)
