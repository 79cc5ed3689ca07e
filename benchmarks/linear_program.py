"""How many placements a second, beside HiGHS and CBC? The same linear programs in one run.

``python -m benchmarks.linear_program`` takes jobs of OPT-30B with random blocks and headroom by
the released cost model (7 variables, 15 rows), as FlexGen's own search meets them. PuLP with CBC,
which that search calls, is timed where it is installed. Then whole estimates of our model: each
reads off its program, solves it and prices the placement, in a batch and in a ``sweep``.
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
from infer_jax.sweeps import Axis, Best, Space, prepare, start

NEAR = 2048  # programs of a batch
ONE_BY_ONE = 200  # programs timed for a solver that takes one at a time


def programs(count: int) -> Any:
    """Random jobs' programs: cost, rows, bounds and how rows give way."""
    rng = np.random.default_rng(0)
    model, system = Offloading.released(), load_system("t4_host").hardware
    arch, work = load_model("opt-30b").architecture, Workload.of(isl=512, osl=32)

    def program_of(g: Any, k: Any, usable: Any) -> Any:
        estimator = model.replace(usable=usable)
        plan = Offload.of().replace(gpu_batch=g, batches=k)
        return program(estimator, estimator.job(arch, system, work, plan))[0]

    g, k = 2.0 ** rng.integers(0, 8, count), np.round(10 ** rng.uniform(0, 1.5, count))
    return jax.block_until_ready(jax.jit(jax.vmap(program_of))(g, k, rng.uniform(0.6, 1.2, count)))


def ours(lps: Any, dtype: Any) -> tuple[str, float, np.ndarray]:
    """(programs/s in words, seconds of compilation, optima; nan where infeasible)."""
    batch = [jax.numpy.asarray(x, dtype) for x in lps]

    def best(cost: Any, *rest: Any) -> Any:
        solutions = minimise(cost, *rest)
        return jax.numpy.where(solutions.feasible, cost @ solutions.x, jax.numpy.nan)

    # a few megabytes at a time: what a core keeps near
    solve = jax.jit(lambda *all_of: jax.lax.map(lambda x: best(*x), all_of, batch_size=NEAR))
    begin = time.perf_counter()
    solutions = jax.block_until_ready(solve(*batch))
    compiled = time.perf_counter() - begin
    rate = _rate(len(solutions), lambda: jax.block_until_ready(solve(*batch)))
    return rate, compiled, np.asarray(solutions, float)


def highs(lps: Any, count: int) -> tuple[float, np.ndarray]:
    """(programs/s, optima) of SciPy's HiGHS, one program at a time."""
    cost, rows, bounds, _ = (np.asarray(x[:count]) for x in lps)
    scale = np.abs(rows).max(axis=2)
    begin, solutions = time.perf_counter(), []
    for c, a, b, r in zip(cost, rows, bounds, scale, strict=True):
        end = linprog(c, A_ub=-a / r[:, None], b_ub=-b / r, method="highs")
        solutions.append(end.fun if end.status == 0 else np.nan)
    return count / (time.perf_counter() - begin), np.array(solutions)


def cbc(lps: Any, count: int) -> tuple[float, np.ndarray]:
    """(programs/s, optima) of PuLP with CBC, one process a program."""
    import pulp

    cost, rows, bounds, _ = (np.asarray(x[:count]) for x in lps)
    scale = np.abs(rows).max(axis=2)
    begin, solutions = time.perf_counter(), []
    for c, a, b, r in zip(cost, rows, bounds, scale, strict=True):
        problem = pulp.LpProblem("placement", pulp.LpMinimize)
        x = [pulp.LpVariable(f"x{i}", lowBound=0) for i in range(len(c))]
        problem += pulp.lpSum(float(u) * v for u, v in zip(c, x, strict=True))
        for row, bound, size in zip(a, b, r, strict=True):
            terms = pulp.lpSum(float(u / size) * v for u, v in zip(row, x, strict=True))
            problem += terms >= float(bound / size)
        status = problem.solve(pulp.PULP_CBC_CMD(msg=False))
        solutions.append(pulp.value(problem.objective) if status == 1 else np.nan)
    return count / (time.perf_counter() - begin), np.array(solutions)


def estimates(count: int, dtype: Any) -> str:
    """Whole estimates (every term, limit and rate) of random policies, in a batch."""
    rng = np.random.default_rng(1)
    model, system = Offloading.improved(), load_system("t4_host").hardware
    arch, work = load_model("opt-30b").architecture, Workload.of(isl=512, osl=32)

    def estimate(policy: Any) -> Any:
        g, k, prompt = policy
        plan = Offload.of().replace(gpu_batch=g, batches=k)
        return model.estimate(arch, system, work.replace(isl=prompt), plan)

    policies = [2.0 ** rng.integers(0, 8, count), np.round(10 ** rng.uniform(0, 1.5, count)),
                rng.uniform(128, 2048, count)]  # fmt: skip
    price = jax.jit(lambda p: jax.lax.map(estimate, p, batch_size=NEAR))
    given = [jax.numpy.asarray(x, dtype) for x in policies]
    return _rate(count, lambda: jax.block_until_ready(price(given)))


def swept(count: int, precision: str) -> str:
    """Whole estimates of a sweep of prompts and blocks that keeps the best one."""
    side = round(count ** (1 / 3))
    work = Workload.of(osl=32).replace(isl=Axis.log(128, 2048, side))
    plan = Offload.of().replace(gpu_batch=Axis.log(1, 128, side), batches=Axis.log(1, 32, side))
    arch, system = load_model("opt-30b").architecture, load_system("t4_host").hardware
    keep = Best("throughput", under={"time": 3600.0})
    ready = prepare(
        Offloading.improved(), Space(arch, system, work, plan), keep, precision=precision
    )
    return _rate(ready.size, lambda: start(ready, chunk=NEAR))


def _rate(count: int, run: Any, rounds: int = 4) -> str:
    """How many a second at best, and a second of processor time: other work takes none of that."""
    run()  # compiles, where nothing has before
    walls, busy = [], []
    for _ in range(rounds):
        begin = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - begin[0])
        busy.append(time.process_time() - begin[1])
    return f"{count / min(walls):,.0f} ({count / min(busy):,.0f} a second of one core)"


def worst(solutions: np.ndarray, referee: np.ndarray) -> tuple[int, float]:
    """(verdicts that differ, largest relative difference of the optima)."""
    solutions = solutions[: len(referee)]
    differ = int(np.sum(np.isnan(solutions) != np.isnan(referee)))
    return differ, float(np.nanmax(np.abs(solutions / referee - 1.0)))


def main() -> None:
    """Print programs per second of every solver that is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=5 * NEAR)
    batch = parser.parse_args().batch
    jax.config.update("jax_enable_x64", True)
    lps = programs(batch)
    speed, referee = highs(lps, ONE_BY_ONE)
    print(f"{batch} programs of {lps.rows.shape[2]} variables and {lps.rows.shape[1]} rows; "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    print(f"{'SciPy HiGHS':<24}{speed:>12,.0f} programs/s")
    if find_spec("pulp"):
        rate, solutions = cbc(lps, ONE_BY_ONE // 4)
        differ, error = worst(solutions, referee[: ONE_BY_ONE // 4])
        print(f"{'PuLP and CBC':<24}{rate:>12,.0f} programs/s; {differ} verdicts differ from "
              f"HiGHS, optima by {error:.0e}")  # fmt: skip
    else:
        print("PuLP and CBC: not installed (pip install pulp)")
    for dtype in (np.float64, np.float32):
        rate, compiled, solutions = ours(lps, dtype)
        differ, error = worst(solutions, referee)
        print(
            f"{'ours, ' + dtype.__name__:<24}{rate}, compiled in {compiled:.1f} s; "
            f"{differ} verdicts differ from HiGHS, optima by {error:.0e}"
        )
        print(f"{'':<12}whole estimates/s in a batch: {estimates(batch, dtype)}")
        print(f"{'':<12}whole estimates/s in a sweep: {swept(4 * batch, dtype.__name__)}")


if __name__ == "__main__":
    main()
