"""One process of a sweep that others compare, kill or join: settings in, the answer out."""

import json
import sys
from typing import Any

import jax
import numpy as np

from infer_jax.compiling import once
from infer_jax.estimators import Estimator
from infer_jax.physics.memory import tiers
from infer_jax.sweeps import Axis, Pareto, Space, engine, prepare, start
from tests.unit.fleets.toys import autoscalers
from tests.unit.sweeps.toy import Toy, arch, hardware, plan, workload


def space(count: int) -> Space:
    """108 count^2 points."""
    return Space(
        arch(),
        [hardware(b, price=1 + b / 3, memory=1e4) for b in (1.0, 2.3, 4.1)],
        workload(batch=Axis.log2(1, 700, count), isl=Axis.linear(0.1, 3, count)),
        plan(tp=Axis.values(1, 2, 4, 8), pp=Axis.values(1, 2, 3, 5, 6, 7, 8, 9, 11)),
    )


def question(subject: str) -> tuple[Estimator, Space, Pareto, str]:
    """Estimator, space, what is kept, and the precision."""
    if subject == "autoscalers":
        one = Space(arch(), hardware(), workload(), plan())
        return autoscalers(), one, Pareto("usd_per_day", "goodput"), "float64"
    return Toy.of(), space(40), Pareto("ttft", "cost", "max decode.mfu"), "float32"


def main(settings: dict[str, Any]) -> None:
    """Run one sweep and print its answer."""
    jax.config.update("jax_num_cpu_devices", settings.get("devices", 1))
    events: list[str] = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    if "processes" in settings:
        jax.distributed.initialize(
            f"localhost:{settings['port']}", settings["processes"], settings["process"]
        )
    engine.TARGET = settings.get("target", 1.0)
    estimator, points, keep, precision = question(settings.get("subject", ""))
    result = start(
        prepare(estimator, points, keep, precision=precision),
        chunk=settings.get("chunk", None if estimator.lanes else 4096),
        checkpoint=settings.get("checkpoint"),
        every=settings.get("every", 30.0),
        progress=(lambda p: print(p.done, file=sys.stderr, flush=True)),
    )
    names = [term.removeprefix("max ") for term in keep.terms]
    values = [result.columns[n].tobytes().hex() for n in names]
    counts, devices = result.provenance["counts"], len(result.provenance["devices"])
    output = {"index": result.index, "values": values, "counts": counts}
    misses = events.count("/jax/compilation_cache/cache_misses")
    half = float(once(tiers.seconds, np.asarray(1.0), np.asarray(2.0)))
    facts = {"devices": devices, "notes": result.notes, "misses": misses, "half": half}
    print(json.dumps({"answer": output, **facts}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
