"""What a sensitivity is of: points of a frontier, and the what-ifs of one point."""

import dataclasses
import re

import numpy as np

from infer_jax.design.sensitivity import Change
from infer_jax.estimators import Economics
from infer_jax.specs import Hierarchy, Plan, leaves
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import frontier_search as grids, inputs
from infer_jax.verbs.problems import refuse


def what_ifs(point: Point) -> dict[str, Change]:
    """The what-ifs: half the weights' bytes, a rack-wide fast domain, shorter launches."""
    weights = (path for path, _, _ in leaves(point.arch) if path.endswith("weights.bytes"))
    formats = {re.sub(r"\.\d+\.", ".*.", path) for path in weights}  # those of all blocks as one
    questions: dict[str, Change] = {
        "weights at half the bytes": {f"arch.{path}": _half for path in sorted(formats)}
    }
    if isinstance(point.hardware.network, Hierarchy):
        questions["fast domain of 72 chips"] = {"hardware.network.domain": 72.0}
    if isinstance(point.estimator, Economics):
        questions["kernel launch half as long"] = {"estimator.launch": _half}
    bandwidth = {"hardware.chip.memory_bandwidth": lambda x: 1.5 * x}
    return {**questions, "1.5 times the memory bandwidth": bandwidth}


def _half(x: float) -> float:
    return 0.5 * x


def frontier_of(point: Point, asked: inputs.Given, count: int) -> list[Point]:
    """Points of the frontier of speed and cost of what was changed, evenly spaced in speed."""
    if not point.estimator.searches:
        raise refuse("along", count, "an estimator that searches the split: economics")
    model = dataclasses.replace(asked.model, architecture=point.arch)
    given = dataclasses.replace(asked, model=model, hardware=point.hardware)
    chips, batches = grids.gpu_axes(given, None)
    layouts = grids.searched_layouts(chips)
    grid = grids.evaluate(point.estimator, given, point.workload, layouts, batches)
    front = grid.frontier()
    if not len(front):
        raise refuse("along", count, "a model that fits on some number of these chips")
    wanted = np.linspace(front.speed[-1], front.speed[0], count)
    at = dict.fromkeys(int(np.argmin(np.abs(front.speed - x))) for x in wanted)
    return [
        point._replace(
            workload=point.workload.with_(batch=front.batch[i]), plan=Plan.of(tp=front.chips[i])
        )
        for i in at
    ]
