"""Decode time and cost of every (layout, batch) pair of a grid, and their frontier."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Bool, Float, Int, Real

from infer_jax.compiling import once, wide
from infer_jax.errors import InputError
from infer_jax.estimators.economics.model import Economics
from infer_jax.estimators.estimate import Limit, Phase, decode_context
from infer_jax.estimators.estimator import Estimator
from infer_jax.physics import decoder
from infer_jax.physics.cost import usd_per_million_tokens
from infer_jax.physics.feedforward import floored_sparsity
from infer_jax.physics.pareto import frontier_rows
from infer_jax.specs import (
    Architecture,
    Feedforward,
    ForwardPass,
    Hardware,
    Hierarchy,
    Plan,
    Workload,
    take_arguments,
)
from infer_jax.typed_jax import trees

POINTS = 400  # per axis of the paper's grid
CHUNK = 8192  # pairs evaluated together on a CPU, as many as fit its cache
MAX_CHUNK = 2**20  # and at most on other devices
LARGEST = 2.0**18  # chips, and sequences per active expert
Column = Float[np.ndarray, " pairs"]
Pairs = tuple[Array, Array]  # chips, batches
Columns = tuple[Array, Array, Array, Array]  # time, cost, feasibility, MFU


@dataclass(frozen=True)
class Grid:
    """Every evaluated (layout, batch) pair as arrays of one length; one decode pass of each.

    ``terms``, ``limits`` and ``layout`` are those of the pass, where they were asked for.
    """

    chips: Column
    batch: Column
    time: Column
    cost: Column
    feasible: Bool[np.ndarray, " pairs"]
    mfu: Column
    terms: dict[str, Column] = field(default_factory=dict[str, Column])
    limits: dict[str, Limit] = field(default_factory=dict[str, Limit])
    layout: dict[str, Column] = field(default_factory=dict[str, Column])

    def __len__(self) -> int:
        return len(self.time)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The columns by name, without those of terms, limits and layout."""
        return {name: x for name, x in vars(self).items() if isinstance(x, np.ndarray)}

    @property
    def speed(self) -> Column:
        """Tokens per second of one request."""
        return 1.0 / self.time

    def take(self, rows: Int[np.ndarray, " rows"] | Bool[np.ndarray, " pairs"]) -> "Grid":
        """The chosen rows."""
        return Grid(*trees.take(tuple(vars(self).values()), rows))

    def under(self, demand: float | None = None) -> "Grid":
        """The feasible rows with at most ``demand`` tokens/s over all requests."""
        kept = self.feasible
        if demand is not None:
            kept = kept & (self.batch / self.time <= demand)
        return self.take(kept)

    def frontier(self) -> "Grid":
        """The feasible rows no other row beats in both speed and cost, fastest first."""
        rows = self.under()
        return rows.take(frontier_rows(rows.time, rows.cost))

    def thresholds(self, count: int = 1000, decades: float = 2.0) -> "Grid":
        """The cheapest row within any of ``count`` latency limits, as the economics paper draws.

        Fastest first. Limits are evenly spaced in logarithm from the least time over ``decades``
        decades.
        """
        front = self.frontier()
        fastest = float(front.time[0])
        limits = fastest * np.logspace(0.0, decades, count)
        limits[0] = fastest
        return front.take(np.unique(front.time.searchsorted(limits, side="right") - 1))

    def row(self, i: int) -> dict[str, object]:
        """One row with its layout and the terms of its time, for JSON."""
        terms = {name: float(t[i]) for name, t in self.terms.items()}
        return {
            "speed_tokens_per_s": self.speed[i],
            "output_cost_per_mtok_usd": self.cost[i],
            "gpus": self.chips[i],
            "batch": self.batch[i],
            **{name: float(x[i]) for name, x in self.layout.items()},
            "mfu": self.mfu[i],
            "tpot_ms": 1e3 * self.time[i],
            "terms": {f"{name}_ms": 1e3 * t for name, t in terms.items()},
            "binds": max(terms, key=lambda name: terms[name]),
        }

    def preferred_row(self, preference: float = 3.0) -> int:
        """The row that maximises speed^preference / cost (Erdil 2025, Eq. 45)."""
        with np.errstate(divide="ignore"):  # at cost 0 the fastest
            return int(np.argmax(self.speed**preference / self.cost))


def paper_axes(
    least: float, sparsity: float
) -> tuple[Float[np.ndarray, " chips"], Float[np.ndarray, " batches"]]:
    """(chips, batches) of the economics paper's grid: 400 x 400, evenly spaced in logarithm.

    Chips from ``least``, the chips that hold the weights, to 2^18; batches from 1 to 2^18 S.
    """
    return _evenly(least, LARGEST), _evenly(1.0, LARGEST * sparsity)


def _evenly(first: float, last: float) -> Float[np.ndarray, " points"]:
    return np.logspace(float(np.log2(first)), float(np.log2(last)), POINTS, base=2.0)


class GridInputs(NamedTuple):
    """The inputs that all pairs of a grid share."""

    estimator: Estimator
    arch: Architecture
    hardware: Hardware
    workload: Workload


def decode(
    given: GridInputs, degrees: tuple[Array, Array, Array], batch: Array
) -> tuple[Phase, Array]:
    """One decode pass of ``batch`` requests at (TP, PP, EP); its USD per million tokens."""
    estimator, arch, hardware, workload = given
    tp, pp, ep = degrees

    def cast(number: Array) -> Array:
        return number.astype(batch.dtype)

    plan = jax.tree.map(cast, Plan.of()).replace(tp=tp, pp=pp, ep=ep)
    forward = ForwardPass(
        sequences=batch,
        new_tokens=jnp.ones_like(batch),
        cached_tokens=decode_context(workload),
    )
    phase = estimator.step(arch, hardware, forward, plan)
    return phase, usd_per_million_tokens(plan.instance, hardware.price, phase.time, batch)


def evaluate(
    estimator: Estimator,
    arch: Architecture,
    hardware: Hardware,
    workload: Workload,
    chips: Real[np.ndarray, " chips"] | Sequence[float],
    batches: Real[np.ndarray, " batches"] | Sequence[float],
) -> Grid:
    """Every (chips, batch) pair of two axes, in one compiled call over all local devices.

    Raises:
        InputError: an argument that is not of its class, or an axis without numbers.
    """
    known = isinstance(estimator, Estimator)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not (known and estimator.prices_passes):
        raise InputError("evaluate", "estimator", estimator, "an estimator: ij.make(name)")
    inputs = take_arguments("evaluate", arch=arch, hardware=hardware, workload=workload)
    for name, axis in (("chips", chips), ("batches", batches)):
        if not np.size(axis) or np.asarray(axis).dtype.kind not in "iuf":
            raise InputError("evaluate", name, axis, "an array of one number or more")
    n, b = (axis.ravel() for axis in np.meshgrid(chips, batches, indexing="ij"))
    platform, devices = jax.default_backend(), jax.local_device_count()
    chunk = CHUNK if platform == "cpu" else min(MAX_CHUNK, -(-n.size // devices))
    rows = -(-n.size // (chunk * devices)) * devices
    # the last pair is repeated to fill the last chunk
    filled = [np.pad(x, (0, rows * chunk - x.size), mode="edge") for x in (n, b)]
    pairs = tuple(x.reshape(rows, chunk) for x in filled)
    given = GridInputs(estimator, **inputs)  # pyright: ignore[reportArgumentType]
    results = _compiled(platform)(given, pairs)
    time, cost, feasible, mfu = (np.asarray(r).ravel()[: n.size] for r in results)
    double = partial(np.asarray, dtype=np.float64)
    return Grid(double(n), double(b), double(time), double(cost), feasible, double(mfu))


@lru_cache
def _compiled(platform: str) -> Callable[..., Columns]:
    return jax.jit(_columns, compiler_options=wide(platform))  # pyright: ignore[reportUnknownMemberType]


def _columns(given: GridInputs, pairs: Pairs) -> Columns:
    """Decode time, cost, feasibility and MFU of pairs of shape (chunks, pairs of one)."""

    def price(pair: Pairs) -> Columns:
        chips, batch = pair
        phase, cost = decode(given, (chips, jnp.ones_like(chips), jnp.ones_like(chips)), batch)
        return phase.time, cost, phase.feasible, phase.mfu

    def share(pairs: Pairs) -> Columns:
        # chunk by chunk, so that the intermediate arrays stay in the processor's cache
        return trees.one_by_one(jax.vmap(price), pairs)

    mesh = Mesh(np.array(jax.local_devices()), ("chunk",))
    rows = PartitionSpec("chunk")
    return jax.shard_map(share, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)(pairs)


def evaluate_layouts(
    given: GridInputs,
    layouts: Float[np.ndarray, "layouts 3"],
    batches: Float[np.ndarray, " batches"],
) -> Grid:
    """Every (layout, batch) pair with its terms and limits; a layout is a row of TP, PP, EP.

    The program is kept for the next process.
    """
    chips: Float[np.ndarray, " layouts"] = layouts.prod(axis=1)
    n, b = np.meshgrid(chips, batches, indexing="ij")
    answer = once(_phases, given, layouts, batches, points=n.size)
    phase, cost, feasible = jax.tree.map(np.asarray, answer)
    columns = (n.ravel(), b.ravel(), phase.time, cost, feasible, phase.mfu)
    return Grid(*columns, phase.terms, phase.limits, phase.layout)


def _phases(
    given: GridInputs, layouts: Float[Array, "layouts 3"], batches: Float[Array, " batches"]
) -> tuple[Phase, Array, Array]:
    def evaluated(layout: Float[Array, " 3"], batch: Array) -> tuple[Phase, Array, Array]:
        phase, cost = decode(given, (layout[0], layout[1], layout[2]), batch)
        return phase, cost, phase.feasible

    def flat(rows: Float[Array, "layouts batches"]) -> Float[Array, " pairs"]:
        return rows.reshape(len(layouts) * len(batches))

    rows = jax.vmap(jax.vmap(evaluated, (None, 0)), (0, None))(layouts, batches)
    return jax.tree.map(flat, rows)


DENSE = 16  # every number of GPUs up to this one is tried
LARGEST_INSTANCE = 1024  # GPUs of the largest instance that is tried where no total is given
PER_OCTAVE = 8  # GPUs tried per doubling beyond
Values = Float[np.ndarray, " values"]
# every whole number up to 64, then 24 per doubling
BATCHES: Values = np.unique(
    np.concatenate([np.arange(1.0, 65.0), np.round(np.geomspace(64, 2**18, 12 * 24 + 1))])
)


def searched_grid(
    given: GridInputs,
    layouts: Float[np.ndarray, "layouts 3"] | None = None,
    total: float | None = None,
    *,
    paper: bool = False,
) -> tuple[Grid, int, int]:
    """These layouts at every batch, how many layouts, and how many batches.

    None: those of numbers of GPUs up to ``total``, whose degrees the estimator's search finds;
    ``paper``: GPUs and batches are those of the economics paper.
    """
    batches = BATCHES
    if layouts is None and paper:
        economics = given.estimator.innermost
        assert isinstance(economics, Economics)
        chips, batches = paper_grid(economics, given.arch, given.hardware)
        layouts = searched_layouts(chips)
    elif layouts is None:
        layouts = searched_layouts(gpu_counts(given.hardware, total))
    return evaluate_layouts(given, layouts, batches), len(layouts), len(batches)


def searched_layouts(chips: Values) -> Float[np.ndarray, "layouts 3"]:
    """(TP, PP, EP) for an estimator that finds the split of each number of GPUs itself."""
    return np.stack([chips, np.ones_like(chips), np.ones_like(chips)], axis=1)


def gpu_counts(hardware: Hardware, total: float | None = None) -> Values:
    """Numbers of GPUs to try: whole ones up to ``total``, and whole fast domains."""
    total = float(LARGEST_INSTANCE if total is None else total)
    octaves = max(np.log2(total / DENSE), 0.0)
    steps: Values = np.arange(1.0, octaves * PER_OCTAVE + 1.0) / PER_OCTAVE
    counts: list[Values] = [np.arange(1.0, DENSE + 1.0), DENSE * 2.0**steps, np.array([total])]
    if isinstance(hardware.network, Hierarchy):  # whole domains: 72, 144, ... of an NVL72
        domain = float(hardware.network.domain)
        counts.append(domain * 2.0 ** np.arange(0.0, max(np.log2(total / domain), -1.0) + 1.0))
    chips: Values = np.unique(np.round(np.concatenate(counts)))
    return chips[chips <= total]


def paper_grid(
    economics: Economics, arch: Architecture, hardware: Hardware
) -> tuple[Values, Values]:
    """(GPUs, batches) of the economics paper: real numbers from the GPUs that hold the weights."""
    stored = once(_stored, economics, arch)
    feeds = [b.feedforward for b in arch.blocks if b.feedforward is not None]
    largest = max((float(s) for s in once(_sparsities, feeds)), default=1.0)
    return paper_axes(float(stored) / float(hardware.chip.memory), largest)


def _stored(economics: Economics, arch: Architecture) -> Array:
    """Bytes of the weights, as the estimator counts projections."""
    return decoder.total(decoder.weight_bytes(arch, economics.laws.projections).values())


def _sparsities(feeds: Sequence[Feedforward]) -> list[Array]:
    """Experts per active expert of each feedforward."""
    return [floored_sparsity(x) for x in feeds]
