"""Questions to a point that a buyer asks: half the bytes, more bandwidth, points of a frontier."""

import re
from collections.abc import Sequence

import numpy as np

from infer_jax.design.curvature import Curvature, curvatures
from infer_jax.design.sensitivity import Change, Elasticity, outputs
from infer_jax.estimators import Economics
from infer_jax.estimators.economics import GridInputs, evaluate_layouts
from infer_jax.estimators.economics.grid import BATCHES, gpu_counts, searched_layouts
from infer_jax.estimators.serving import shape
from infer_jax.results.problems import refuse
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.specs import Architecture, Experts, Hierarchy, Plan, leaves
from infer_jax.sweeps.paths import Point

ONE_BYTE = 0.8  # mean stored bytes of a weight from which on most weights have 8 bits
# numbers that a kind of block sets, of which nobody buys 10 % more
FIXED = ("feedforward.inward", "shared.inward", "attention.kv_matrices")


def stored_bytes(arch: Architecture) -> float:
    """Mean stored bytes of a weight of the layers."""
    layers = shape(arch).layers
    kinds = (
        (layers.projections, 1.0),
        (layers.routed, layers.experts),
        (layers.shared, 1.0),
    )
    elements = np.asarray([layers.count * w.elements * copies for w, copies in kinds])
    stored = np.asarray([w.bytes for w, _ in kinds])
    return float(np.sum(elements * stored) / np.sum(elements))


def worth(
    slopes: Sequence[Elasticity], arch: Architecture, coefficients: bool = False
) -> list[Elasticity]:
    """The numbers that this model, its hardware or its plan has, and an estimator's if asked."""
    mixed = any(isinstance(block.feedforward, Experts) for block in arch.blocks)
    left_out = () if mixed else ("plan.ep", "plan.attention_dp")
    return [
        e
        for e in slopes
        if e.path not in left_out and (coefficients or not e.path.startswith("estimator."))
    ]


def curvatures_at(point: Point, slopes: Sequence[Elasticity]) -> list[Curvature]:
    """How the leading elasticities at a point move, of numbers that somebody sets."""
    kept = [e for e in worth(slopes, point.arch) if not e.path.endswith(FIXED)]
    return curvatures(outputs, point, kept)


def what_ifs(point: Point) -> dict[str, Change]:
    """The what-ifs: half the weights' bytes, a rack-wide fast domain, shorter launches.

    Weights that are stored in fewer than 8 bits in the mean have no half.
    """
    weights = (path for path, _, _ in leaves(point.arch) if path.endswith("weights.bytes"))
    formats = {re.sub(r"\.\d+\.", ".*.", path) for path in weights}  # those of all blocks as one
    questions, mean = dict[str, Change](), stored_bytes(point.arch)
    if mean >= ONE_BYTE:
        bits = 8 if mean >= 2.0 * ONE_BYTE else 4
        halves: Change = {f"arch.{path}": _half for path in sorted(formats)}
        questions[f"weights at half the bytes: {bits} bits"] = halves
    if isinstance(point.hardware, Accelerator):
        questions["one stack more"] = {"hardware.stacks": lambda x: x + 1.0}
    elif isinstance(point.hardware.network, Hierarchy):
        questions["fast domain of 72 chips"] = {"hardware.network.domain": 72.0}
    if isinstance(point.estimator, Economics):
        questions["kernel launch half as long"] = {"estimator.launch": _half}
    if not isinstance(point.hardware, Accelerator):
        bandwidth = {"hardware.chip.memory_bandwidth": lambda x: 1.5 * x}
        questions["1.5 times the memory bandwidth"] = bandwidth
    return questions


def _half(x: float) -> float:
    return 0.5 * x


def frontier_of(point: Point, count: int) -> list[Point]:
    """Points of the frontier of speed and cost of what was changed, evenly spaced in speed."""
    if not point.estimator.searches:
        raise refuse("along", count, "an estimator that searches the split: economics")
    shared = GridInputs(point.estimator, point.arch, point.hardware, point.workload)
    layouts = searched_layouts(gpu_counts(point.hardware))
    front = evaluate_layouts(shared, layouts, BATCHES).frontier()
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
