"""The estimate of every legal layout at every batch: one compiled program, one table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import numpy as np
from jax import Array
from jaxtyping import Int

from infer_jax.compiling import once
from infer_jax.estimators.serving import Deployment, ServerEstimate, Serving, Shape, shape
from infer_jax.planning.legal_layouts import Column, Layout
from infer_jax.specs import Architecture, Hardware, Workload
from infer_jax.typed_jax import trees

EVERY, GROWTH, MOST = 64, 1.05, 4096  # batches of a group: all up to 64, then 5 % apart
Answer = TypeVar("Answer")
Positions = Int[np.ndarray, " rows"]


@dataclass(frozen=True)
class LayoutEstimates:
    """Rows of (layout, batch of one instance) with the estimate of each."""

    layouts: Sequence[Layout]
    layout: Positions
    batch: Column
    estimates: ServerEstimate

    def at(self, i: int) -> Layout:
        """The layout of a row."""
        return self.layouts[int(self.layout[i])]

    @property
    def chips(self) -> Column:
        """Chips of one instance, by row."""
        return np.asarray(self.estimates.chips)

    @property
    def rate(self) -> Column:
        """Output tokens per second of one instance, by row."""
        return np.asarray(self.estimates.throughput) * self.chips


def batches() -> Column:
    """The numbers of requests in flight in one attention group that are tried."""
    octaves = np.log(MOST / EVERY) / np.log(GROWTH)
    beyond = EVERY * np.power(GROWTH, np.arange(1.0, octaves + 1.0))
    return np.unique(np.round(np.concatenate([np.arange(1.0, EVERY + 1.0), beyond, [MOST]])))


def shares(concurrency: float) -> Column:
    """Requests in flight in each replica where 1, 2, 3 ... replicas share ``concurrency``."""
    replicas = batches()
    return concurrency / replicas[replicas <= concurrency]


def table(
    serving: Serving,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    legal: Sequence[Layout],
    common: Deployment,
    tried: Column | None = None,
    draft: Architecture | None = None,
) -> LayoutEstimates:
    """Every layout at every batch; ``common`` gives the rest of the plan.

    ``draft``: the draft model of layouts with drafts; None: the model's own heads. ``tried``: the
    numbers of requests in flight in an instance, at least one in each attention group; None:
    ``batches()`` in each group. One evaluation of ``serving`` per row, all in one compiled
    program.
    """
    each = batches() if tried is None else tried
    index, batch = (x.ravel() for x in np.meshgrid(np.arange(len(legal)), each, indexing="ij"))
    given = degrees(legal, index)
    if tried is None:
        batch = batch * given["attention_dp"]
    else:
        kept = batch >= given["attention_dp"]
        index, batch = index[kept], batch[kept]
        given = {name: x[kept] for name, x in given.items()}
    fixed = (serving, *models(arch, draft), hardware, work, common)
    estimates = by_rows(_at_batches, fixed, given, batch)
    return LayoutEstimates(legal, index, batch, estimates)


def degrees(legal: Sequence[Layout], index: Positions) -> dict[str, Column]:
    """The degrees of rows of layouts, by name."""
    chosen = np.asarray(legal, np.float64).reshape(-1, len(Layout._fields))[index]
    return dict(zip(Layout._fields, chosen.T, strict=True))


def by_rows(program: Callable[..., Answer], fixed: Sequence[object], *rows: object) -> Answer:
    """The outputs of a program for ``rows``, padded to a power of two to save compilations."""
    count = len(jax.tree.leaves(rows)[0])
    last = 2 ** (count - 1).bit_length() - count

    def filled(x: Column) -> Column:
        return np.concatenate([x, np.repeat(x[-1:], last, axis=0)])

    return trees.take(once(program, *fixed, *jax.tree.map(filled, rows)), slice(count))


def models(arch: Architecture, draft: Architecture | None) -> tuple[Shape, Shape | None]:
    """A model and its draft model, as shapes of the serving estimator."""
    return once(shape, arch), None if draft is None else once(shape, draft)


def _at_batches(
    serving: Serving,
    arch: Shape,
    draft: Shape | None,
    hardware: Hardware,
    work: Workload,
    common: Deployment,
    given: dict[str, Array],
    batch: Array,
) -> ServerEstimate:
    def one(degrees: dict[str, Array], requests: Array) -> ServerEstimate:
        plan = common.replace(**degrees)
        return serving.serve(arch, hardware, work.replace(batch=requests), plan, draft)

    return jax.vmap(one)(given, batch)
