"""Which GPU, layout and batch for which prompt? A million deployments, a frontier for each length.

    python examples/massive_sweep.py [POINTS]

A point is a prompt length, a batch and a layout on one of three systems. The grid is never
stored: its points are evaluated chunk by chunk on every device of the machine, in float32, and
those near a frontier again in float64.
"""

import sys

import infer_jax as ij
from infer_jax.sweeps import Axis, Constraint, Pareto, Space

SYSTEMS = ("h100_sxm", "h200_sxm", "b200_sxm")
PROMPTS = (512, 2048, 8192, 32768)
TP, PP = (1, 2, 4, 8), (1, 2, 4)


def grid(points: float) -> Space:
    """About so many points; a layout has at most 16 GPUs."""
    batches = round(points / (len(SYSTEMS) * len(PROMPTS) * len(TP) * len(PP)))
    work = ij.Workload.of(osl=512)
    return Space(
        arch=ij.load_model("llama-3.1-70b", quant="fp8"),
        hardware=[ij.load_system(name) for name in SYSTEMS],
        workload=work.replace(isl=Axis.values(*PROMPTS), batch=Axis.log2(1, 1024, batches)),
        plan=ij.Plan.of().replace(tp=Axis.values(*TP), pp=Axis.values(*PP)),
        where=[Constraint(product=("plan.tp", "plan.pp"), at_most=16)],
    )


def main(points: float = 1e6) -> None:
    """Sweep, and print the fastest, the preferred and the cheapest for every prompt length."""
    keep = Pareto("speed", "cost", per="workload.isl")
    result = ij.sweep(grid(points), keep=keep, estimator="economics.planned")
    found = result.columns
    speed, cost = found["speed"], found["cost"]
    print(f"{int(result.provenance['points']):,} points, {len(result)} on a frontier")
    print(f"{'prompt':>6}{'tok/s':>8}{'$/Mtok':>9}  {'system':10}{'tp':>3}{'pp':>3}{'batch':>7}")
    for prompt in PROMPTS:
        rows = [i for i in range(len(result)) if found["workload.isl"][i] == prompt]
        fastest, cheapest = max(rows, key=lambda i: speed[i]), min(rows, key=lambda i: cost[i])
        preferred = max(rows, key=lambda i: speed[i] ** 3 / cost[i])
        for i in dict.fromkeys((fastest, preferred, cheapest)):
            layout = f"{found['plan.tp'][i]:3.0f}{found['plan.pp'][i]:3.0f}"
            print(f"{prompt:6}{speed[i]:8.1f}{cost[i]:9.3f}  {found['hardware'][i]:10}{layout}"
                  f"{found['workload.batch'][i]:7.0f}")  # fmt: skip


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]))
