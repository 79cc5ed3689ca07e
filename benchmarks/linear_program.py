"""How many placements a second, beside HiGHS and CBC? The same linear programs in one run.

``python -m benchmarks.linear_program`` takes jobs of OPT-30B with random blocks and headroom by
the released cost model (7 variables, 15 rows), as FlexGen's own search meets them. PuLP with CBC,
which that search calls, is timed where it is installed.
"""

import argparse
import os
import time
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
from scipy.optimize import linprog

from infer_jax.catalog import load_model, load_system
from infer_jax.estimators import Offload, Offloading
from infer_jax.estimators.offloading.placing import program
from infer_jax.physics.linear_program import minimise
from infer_jax.specs import Workload

NEAR = 2048  # programs of a batch
ONE_BY_ONE = 200  # programs timed for a solver that takes one at a time


def programs(count: int) -> Any:
    """Random jobs' programs: cost, rows, bounds and how rows give way."""
    rng = np.random.default_rng(0)
    model, system = Offloading.released(), load_system("t4_host").hardware
    arch, work = load_model("opt-30b").architecture, Workload.of(isl=512, osl=32)

    def one(g: Any, k: Any, usable: Any) -> Any:
        theory = model.replace(usable=usable)
        plan = Offload.of().replace(gpu_batch=g, batches=k)
        return program(theory, theory.job(arch, system, work, plan))[0]

    g, k = 2.0 ** rng.integers(0, 8, count), np.round(10 ** rng.uniform(0, 1.5, count))
    return jax.block_until_ready(jax.jit(jax.vmap(one))(g, k, rng.uniform(0.6, 1.2, count)))


def ours(made: Any, dtype: Any, rounds: int = 5) -> tuple[float, float, np.ndarray]:
    """(programs/s, seconds of compilation, optima; nan where infeasible)."""
    batch = [jax.numpy.asarray(x, dtype) for x in made]

    def best(cost: Any, *rest: Any) -> Any:
        found = minimise(cost, *rest)
        return jax.numpy.where(found.feasible, cost @ found.x, jax.numpy.nan)

    # a few megabytes at a time: what a core keeps near
    solve = jax.jit(lambda *all_of: jax.lax.map(lambda x: best(*x), all_of, batch_size=NEAR))
    begin = time.perf_counter()
    found = jax.block_until_ready(solve(*batch))
    compiled = time.perf_counter() - begin
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        jax.block_until_ready(solve(*batch))
        times.append(time.perf_counter() - begin)
    return len(found) / float(np.median(times)), compiled, np.asarray(found, float)


def highs(made: Any, count: int) -> tuple[float, np.ndarray]:
    """(programs/s, optima) of SciPy's HiGHS, one program at a time."""
    cost, rows, bounds, _ = (np.asarray(x[:count]) for x in made)
    scale = np.abs(rows).max(axis=2)
    begin, found = time.perf_counter(), []
    for c, a, b, r in zip(cost, rows, bounds, scale, strict=True):
        end = linprog(c, A_ub=-a / r[:, None], b_ub=-b / r, method="highs")
        found.append(end.fun if end.status == 0 else np.nan)
    return count / (time.perf_counter() - begin), np.array(found)


def cbc(made: Any, count: int) -> tuple[float, np.ndarray]:
    """(programs/s, optima) of PuLP with CBC, one process a program."""
    import pulp

    cost, rows, bounds, _ = (np.asarray(x[:count]) for x in made)
    scale = np.abs(rows).max(axis=2)
    begin, found = time.perf_counter(), []
    for c, a, b, r in zip(cost, rows, bounds, scale, strict=True):
        problem = pulp.LpProblem("placement", pulp.LpMinimize)
        x = [pulp.LpVariable(f"x{i}", lowBound=0) for i in range(len(c))]
        problem += pulp.lpSum(float(u) * v for u, v in zip(c, x, strict=True))
        for row, bound, size in zip(a, b, r, strict=True):
            terms = pulp.lpSum(float(u / size) * v for u, v in zip(row, x, strict=True))
            problem += terms >= float(bound / size)
        status = problem.solve(pulp.PULP_CBC_CMD(msg=False))
        found.append(pulp.value(problem.objective) if status == 1 else np.nan)
    return count / (time.perf_counter() - begin), np.array(found)


def worst(found: np.ndarray, referee: np.ndarray) -> tuple[int, float]:
    """(verdicts that differ, largest relative difference of the optima)."""
    found = found[: len(referee)]
    differ = int(np.sum(np.isnan(found) != np.isnan(referee)))
    return differ, float(np.nanmax(np.abs(found / referee - 1.0)))


def main() -> None:
    """Print programs per second of every solver that is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=5 * NEAR)
    batch = parser.parse_args().batch
    jax.config.update("jax_enable_x64", True)
    made = programs(batch)
    speed, referee = highs(made, ONE_BY_ONE)
    print(f"{batch} programs of {made.rows.shape[2]} variables and {made.rows.shape[1]} rows; "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    print(f"{'SciPy HiGHS':<24}{speed:>12,.0f} programs/s")
    if find_spec("pulp"):
        rate, found = cbc(made, ONE_BY_ONE // 4)
        differ, error = worst(found, referee[: ONE_BY_ONE // 4])
        print(f"{'PuLP and CBC':<24}{rate:>12,.0f} programs/s; {differ} verdicts differ from "
              f"HiGHS, optima by {error:.0e}")  # fmt: skip
    else:
        print("PuLP and CBC: not installed (pip install pulp)")
    for dtype in (np.float64, np.float32):
        rate, compiled, found = ours(made, dtype)
        differ, error = worst(found, referee)
        print(
            f"{'ours, ' + dtype.__name__:<24}{rate:>12,.0f} programs/s, compiled in "
            f"{compiled:.1f} s; {differ} verdicts differ from HiGHS, optima by {error:.0e}"
        )


if __name__ == "__main__":
    main()
