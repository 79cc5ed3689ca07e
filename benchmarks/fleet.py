"""How long do a thousand autoscalers take over a week, in one program and one after the other?

    python -m benchmarks.fleet [--policies 1000] [--days 7] [--json]

Kubernetes' rule with targets from one request in flight to many, over steps of 15 s of a rate that
goes up and down by the day, on a replica with four exponential servers. ``together``: the program
that ``infer-jax fleet`` tunes with; ``one by one``: the same law of each alone, compiled once, as
long as all take at the pace of the first few; ``sweep``: as points of a sweep in float64 that keeps
the frontier of cost and good requests, with compilation and the last decisions.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import infer_jax as ij
from infer_jax.fleets import (
    Conditions,
    FleetEstimator,
    Horizontal,
    Lifecycle,
    ServiceLimits,
    depth_of,
    lanes,
)
from infer_jax.sweeps import Axis, Pareto, Space
from tests.unit.fleets.toys import exponential_replica
from tests.unit.sweeps import toy

STEP, DAY, FEW = 15.0, 86_400.0, 3


def conditions(days: float) -> Conditions:
    """A replica under a rate that goes up and down by the day, on this program's devices."""
    steps = int(days * DAY / STEP)
    rates = 20.0 - 15.0 * np.cos(2.0 * np.pi * np.arange(steps) * STEP / DAY)
    life, limits = Lifecycle.of(start_delay=120.0), ServiceLimits.of(ttft=5.0)
    numbers = {"rates": rates, "seconds": STEP, "first": 10.0, "pue": 1.0, "grid": 0.3,
               "dispersion": 2.0}  # fmt: skip
    arrays: Any = {name: jnp.asarray(x) for name, x in numbers.items()}
    return Conditions(exponential_replica(), life, limits, **arrays)


def seconds(work: Callable[[], Any]) -> float:
    """The time of a call, until its arrays are there."""
    begun = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - begun


def measure(policies: int, days: float) -> dict[str, Any]:
    """Seconds of each way, and how far the ways differ."""
    given = conditions(days)
    steps = len(given.rates)
    depth, hour = depth_of(given.life, STEP), steps if steps < 240 else 240
    law = jax.jit(partial(lanes, depth, hour, devices=jax.devices()))
    targets = jnp.linspace(1.0, 60.0, policies)
    every = Horizontal.of().replace(target=targets)
    every = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (policies,)), every)
    first = seconds(lambda: law(every, given))
    together = seconds(lambda: law(every, given))
    usd = np.asarray(law(every, given)[0])

    def alone(i: int) -> Any:
        return law(jax.tree.map(lambda x: x[i : i + 1], every), given)[0]

    alone(0)
    by_one = seconds(lambda: [alone(i) for i in range(FEW)]) / FEW
    policy = Horizontal.of().replace(target=Axis.linear(1.0, 60.0, policies))
    estimator = FleetEstimator(policy=policy, given=given, chips=np.ones(1), depth=depth,
                               steps=hour)  # fmt: skip
    point = Space(toy.arch(), toy.hardware(), toy.workload(), toy.plan())
    keep = Pareto("usd_per_day", "goodput")
    options = {"precision": "float64", "keep": keep, "legal": False, "estimator": estimator}
    swept = seconds(lambda: ij.sweep(point, **options).index)
    return {
        "device": str(jax.devices()[0].device_kind),
        "policies": policies,
        "steps": steps,
        "first_s": first,
        "together_s": together,
        "steps_per_s": policies * steps / together,
        "one_by_one_s": policies * by_one,
        "sweep_s": swept,
        "difference": float(max(abs(float(alone(i)[0]) / usd[i] - 1.0) for i in range(FEW))),
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    result = measure(asked.policies, asked.days)
    if asked.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:16} {value if isinstance(value, str) else f'{value:,.6g}'}")


if __name__ == "__main__":
    main()
