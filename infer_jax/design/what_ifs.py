"""Questions to a point that a buyer asks: half the bytes, more bandwidth, points of a frontier."""

import dataclasses
import re
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.compiling import once
from infer_jax.design.sensitivity import (
    Change,
    Elasticity,
    Outputs,
    leaves_of,
    log_or_nothing,
    outputs,
    scaled,
)
from infer_jax.estimators import Economics
from infer_jax.estimators.economics import GridInputs
from infer_jax.estimators.economics.grid import searched_grid
from infer_jax.estimators.serving import shape
from infer_jax.results.problems import refuse
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.specs import Architecture, Experts, Hierarchy, Plan, leaves
from infer_jax.sweeps.paths import Point
from infer_jax.typed_jax import trees

Tree = TypeVar("Tree")
LEADING = 8  # numbers of each output
Matrix = Float[np.ndarray, "numbers numbers"]


@dataclasses.dataclass(frozen=True)
class Curvature:
    """Of one output: the elasticities that count most, and how each moves with each number.

    ``matrix``: d^2 log(output) / (d log(number) d log(other)), so 1 % more of the other moves the
    elasticity by a hundredth of it. Numbers at a kink have no such derivative and are left out.
    """

    output: str
    paths: tuple[str, ...]
    slopes: tuple[float, ...]
    matrix: Matrix

    def strongest(self, path: str) -> tuple[str, float]:
        """The other number that moves an elasticity most, and by how much for all of it."""
        row = self.matrix[self.paths.index(path)].copy()
        row[self.paths.index(path)] = 0.0
        at = int(np.argmax(np.abs(row)))
        return self.paths[at], float(row[at])

    @property
    def extremes(self) -> list[tuple[str, str, float]]:
        """The pair with the most negative cross term and that with the most positive, if any."""
        first, second = np.triu_indices(len(self.paths), 1)
        terms = self.matrix[first, second]
        found: list[tuple[str, str, float]] = []
        for sign in (1.0, -1.0) if len(terms) else ():
            at = int(np.argmin(sign * terms))
            if sign * terms[at] < 0:
                found.append((self.paths[first[at]], self.paths[second[at]], float(terms[at])))
        return found


def curvatures(
    function: Outputs[Tree], tree: Tree, slopes: Sequence[Elasticity], leading: int = LEADING
) -> list[Curvature]:
    """The curvature of each output in its leading numbers, of which ``slopes`` has the first ones.

    ``slopes``: elasticities of the same function at the same point, the largest first.
    """
    own: dict[str, list[Elasticity]] = {}
    for e in slopes:
        known = own.setdefault(e.output, [])
        if not e.is_kinked and e.slope != 0 and len(known) < leading:
            known.append(e)
    names = tuple(output for output, known in own.items() if len(known) > 1)
    chosen = list(dict.fromkeys(e.path for name in names for e in own[name]))
    if not chosen:
        return []
    places = {leaf.path: leaf.places for leaf in leaves_of(tree)}
    fixed = (function, tuple(places[path] for path in chosen), names)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), tree)
        rows = once(_rows, wide, fixed=fixed)
    found: list[Curvature] = []
    for i, name in enumerate(names):
        at = [chosen.index(e.path) for e in own[name]]
        matrix = np.asarray(rows)[np.ix_(at, [i], at)][:, 0]
        paths = tuple(e.path for e in own[name])
        found.append(Curvature(name, paths, tuple(e.slope for e in own[name]), matrix))
    return found


def _rows(
    function: Outputs[Tree], places: tuple[tuple[int, ...], ...], names: tuple[str, ...], tree: Tree
) -> Float[Array, "rows outputs numbers"]:
    """Hessian-vector products of the logarithm of each output, a row for each direction."""

    def logs(moved: Array) -> Array:
        found = function(scaled(tree, places, jnp.exp(moved)))
        return jnp.stack([log_or_nothing(found[name]) for name in names])

    here, along = jnp.zeros(len(places)), jnp.eye(len(places))
    return trees.one_by_one(lambda way: jax.jvp(jax.jacrev(logs), (here,), (way,))[1], along)


ONE_BYTE = 0.8  # mean stored bytes of a weight from which on most weights have 8 bits
# numbers that a kind of block sets, of which nobody buys 10 % more
FIXED = ("feedforward.inward", "shared.inward", "attention.kv_matrices")


def stored_bytes(arch: Architecture) -> float:
    """Mean stored bytes of a weight of the layers."""
    layers = shape(arch).layers
    kinds = ((layers.projections, 1.0), (layers.routed, layers.experts), (layers.shared, 1.0))
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
    front = searched_grid(shared)[0].frontier()
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
