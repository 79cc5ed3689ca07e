"""What does every (chips, batch) pair of a small grid cost, and which are worth choosing?"""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.specs import Architecture, Hardware, Plan, Workload, check_arguments
from infer_jax.sweeps.program import OPTIONS

POINTS = 400  # per axis of the paper's grid
CHUNK = 8192  # pairs evaluated together
LARGEST = 2.0**18  # chips, and sequences per active expert


@dataclass(frozen=True)
class Grid:
    """Every evaluated (chips, batch) pair as flat float64 arrays of one length."""

    chips: np.ndarray
    batch: np.ndarray
    time: np.ndarray
    cost: np.ndarray
    feasible: np.ndarray
    mfu: np.ndarray

    @property
    def speed(self) -> np.ndarray:
        """Tokens per second of one request."""
        return 1.0 / self.time

    def take(self, index: Any) -> "Grid":
        """The chosen rows."""
        return Grid(*(column[index] for column in vars(self).values()))

    def under(self, demand: float | None) -> "Grid":
        """The feasible rows that serve at most ``demand`` tokens/s over all requests."""
        kept = self.feasible.copy()
        if demand is not None:
            kept &= self.batch / self.time <= demand
        return self.take(kept)


def paper_axes(least: float, sparsity: float) -> tuple[np.ndarray, np.ndarray]:
    """(chips, batches) of the economics paper's grid: 400 x 400, evenly spaced in logarithm.

    Chips from ``least``, the chips that hold the weights, to 2^18; batches from 1 to 2^18 S.
    """
    chips = np.logspace(np.log2(least), np.log2(LARGEST), POINTS, base=2.0)
    batches = np.logspace(0.0, np.log2(LARGEST * sparsity), POINTS, base=2.0)
    return chips, batches


@lru_cache
def _compiled(platform: str) -> Any:
    return jax.jit(_decode, compiler_options=OPTIONS.get(platform))


def _decode(world: tuple[Any, ...], pairs: Any) -> Any:
    """Decode time, cost, feasibility and MFU of pairs of shape (chunks, CHUNK)."""
    estimator, arch, hardware, workload = world

    def one(pair: Any) -> Any:
        chips, batch = pair
        plan = jax.tree.map(lambda x: x.astype(chips.dtype), Plan.of()).replace(tp=chips)
        life = estimator.estimate(arch, hardware, workload.replace(batch=batch), plan)
        return life.decode.time, life.cost, life.decode.feasible, life.decode.mfu

    def share(pairs: Any) -> Any:
        # chunk by chunk: what one layout needs of a chunk stays in the cache of the processor
        return jax.lax.map(jax.vmap(one), pairs)

    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ("chunk",))
    rows = jax.sharding.PartitionSpec("chunk")
    return jax.shard_map(share, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)(pairs)


def evaluate(
    estimator: Estimator,
    arch: Architecture,
    hardware: Hardware,
    workload: Workload,
    chips: np.ndarray,
    batches: np.ndarray,
) -> Grid:
    """Every (chips, batch) pair of two axes, in one compiled call over all local devices.

    Raises:
        InputError: an argument that is not of its class, or an axis without numbers.
    """
    if not isinstance(estimator, Estimator):
        raise InputError("evaluate", "estimator", estimator, "an estimator: ij.make(name)")
    check_arguments("evaluate", arch=arch, hardware=hardware, workload=workload)
    for name, axis in (("chips", chips), ("batches", batches)):
        if not np.size(axis) or np.asarray(axis).dtype.kind not in "iuf":
            raise InputError("evaluate", name, axis, "an array of one number or more")
    n, b = (axis.ravel() for axis in np.meshgrid(chips, batches, indexing="ij"))
    rows = -(-n.size // (CHUNK * jax.local_device_count())) * jax.local_device_count()
    # the last pair fills up what the last chunk lacks
    filled = [np.pad(x, (0, rows * CHUNK - x.size), mode="edge") for x in (n, b)]
    pairs = tuple(x.reshape(rows, CHUNK) for x in filled)
    results = _compiled(jax.default_backend())((estimator, arch, hardware, workload), pairs)
    time, cost, feasible, mfu = (np.asarray(r).ravel()[: n.size] for r in results)
    wide = partial(np.asarray, dtype=np.float64)
    return Grid(wide(n), wide(b), wide(time), wide(cost), feasible, wide(mfu))


def frontier(grid: Grid) -> Grid:
    """The rows no other row beats in both speed and cost, fastest first; one row a tie.

    Pass feasible rows: ``frontier(grid.under(demand=None))``.
    """
    order = np.lexsort((grid.cost, grid.time))
    ranked = grid.take(order)
    least = np.minimum.accumulate(ranked.cost)
    first = np.ones(len(least), bool)
    first[1:] = ranked.cost[1:] < least[:-1]
    return ranked.take(first)


def thresholds(grid: Grid, count: int = 1000, decades: float = 2.0) -> Grid:
    """The cheapest row within each of ``count`` latency limits, as the economics paper draws.

    Limits are evenly spaced in logarithm from the least time over ``decades`` decades.
    """
    front = frontier(grid)
    limits = front.time[0] * np.logspace(0.0, decades, count)
    limits[0] = front.time[0]
    return front.take(np.searchsorted(front.time, limits, side="right") - 1)


def preferred(front: Grid, preference: float = 3.0) -> int:
    """The row that maximises speed^preference / cost (Erdil 2025, Eq. 45)."""
    with np.errstate(divide="ignore"):  # where all is free, the fastest
        return int(np.argmax(front.speed**preference / front.cost))
