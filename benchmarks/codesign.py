"""How fast is a design search? 1,024 restarts with compilation, and a gradient over a value.

``python benchmarks/codesign.py``; one table, in one run, on whatever machine it is.
"""

import sys
import time
from pathlib import Path

import numpy as np

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp

from benchmarks.design_spaces import BLOCK, ESTIMATORS, SYSTEM
from infer_jax.catalog import load_model, load_system
from infer_jax.compiling import of_gradients
from infer_jax.design import QualityWrapper, Search
from infer_jax.design.ascent import begin, lagrangian, with_slope
from infer_jax.design.problem import MIN_TEMPERATURE, DesignProblem
from infer_jax.estimators import make
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Axis, Best, Constraint, Space

RESTARTS, STEPS, LANES, ROUNDS = 1024, 160, 1024, 15
ALLOWED, DEAREST = 60.0, 4.0  # seconds, and a gradient over a value


def ten(estimator: str) -> Search:
    """A dense design of ten numbers under two limits and two constraints."""
    axes = {
        "arch.width": Axis.integers(2048, 8192, 128),
        f"{BLOCK}.count": Axis.integers(16, 80),
        f"{BLOCK}.attention.query_heads": Axis.integers(16, 96, 8),
        f"{BLOCK}.attention.kv_heads": Axis.values(1, 2, 4, 8, 16),
        f"{BLOCK}.attention.head_width": Axis.integers(64, 256, 64),
        f"{BLOCK}.feedforward.width": Axis.integers(4096, 32768, 128),
        "workload.batch": Axis.integers(1, 512),
        "plan.tp": Axis.values(1, 2, 4, 8),
        "plan.pp": Axis.values(1, 2, 4, 8),
        "arch.vocabulary": Axis.integers(32768, 262144, 1024),
    }
    system = load_system(SYSTEM)
    where = (
        Constraint(value="parameters", at_least=7.8e9, at_most=8.3e9),
        Constraint(value="aspect", at_least=64, at_most=160),
    )
    space = Space(
        load_model("llama-3.1-8b").architecture,
        system.hardware,
        Workload.of(isl=2048, osl=512),
        Plan.of(),
        axes=axes,
        where=where,
    )
    judged = QualityWrapper.of(target=make(estimator, system.coefficients))
    return Search.of(judged, space, Best("cost", under={"tpot": 0.012, "ttft": 0.5}))


def gradient_over_value(problem: DesignProblem, lanes: int) -> tuple[float, float]:
    """Processor seconds of a value, and of one with its gradient, of so many designs: least seen.

    The value is the augmented Lagrangian of the relaxed problem, its gradient what an ascent takes,
    both compiled as an ascent is; one design is not batched.
    """
    relaxed, limits = problem.relaxed, jnp.asarray(problem.limits)
    free, digits = relaxed.random(np.random.default_rng(0), lanes)
    given = (free[0], digits[0]) if lanes == 1 else (free, digits)

    def merit(u: jax.Array, d: jax.Array) -> jax.Array:
        objective, excess = problem.relaxation(u, d, jnp.asarray(MIN_TEMPERATURE), limits)
        return lagrangian(objective, excess, begin(excess.shape[0]))

    def sloped(u: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
        return with_slope(lambda x: (merit(x, d), None), u)[:2]

    options = of_gradients(jax.default_backend())
    both = [f if lanes == 1 else jax.vmap(f) for f in (merit, sloped)]
    runs = [jax.jit(f, compiler_options=options) for f in both]
    best = [np.inf, np.inf]
    for run in runs:
        jax.block_until_ready(run(*given))
    for _ in range(ROUNDS):
        for i, run in enumerate(runs):
            begun = time.process_time()
            jax.block_until_ready(run(*given))
            best[i] = min(best[i], time.process_time() - begun)
    return best[0], best[1]


def main() -> None:
    """Print a line for each estimator; exit 1 where a search or a gradient takes long."""
    good = True
    jax.config.update("jax_enable_x64", True)
    for estimator in sys.argv[1:] or ESTIMATORS:
        begun, used = time.perf_counter(), time.process_time()
        search = ten(estimator)
        result = search.run(restarts=RESTARTS, steps=STEPS)
        seconds, used = time.perf_counter() - begun, time.process_time() - used
        (problem,) = search.problems
        one, many = (gradient_over_value(problem, lanes) for lanes in (1, LANES))
        good &= seconds < ALLOWED and all(x[1] <= DEAREST * x[0] for x in (one, many))
        print(
            f"{estimator}: {RESTARTS} restarts of {len(problem.relaxed.moving)} numbers, "
            f"{len(result.paths[-1].objective)} steps, rounded, with compilation {seconds:.1f} s "
            f"({used:.1f} s of processor); a gradient costs "
            f"{one[1] / one[0]:.2f} values of {1e6 * one[0]:.0f} us one at a time, "
            f"{many[1] / many[0]:.2f} of {1e6 * many[0] / LANES:.2f} us in {LANES} lanes",
            flush=True,
        )
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
