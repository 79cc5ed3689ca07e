"""What does every legal layout answer at every batch? One compiled program, one table."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from infer_jax.estimators.serving import Deployment, Served, Serving, Shape, shape
from infer_jax.planning.layouts import Layout
from infer_jax.specs import Architecture, Hardware, Workload

# these programs run once: compiling them is what the time goes to
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
EVERY, GROWTH, MOST = 64, 1.05, 4096  # batches of a group: all up to 64, then 5 % apart


@dataclass(frozen=True)
class Table:
    """Rows of (layout, batch of one instance) and what the estimator says of each."""

    layouts: list[Layout]
    layout: np.ndarray
    batch: np.ndarray
    served: Served

    def at(self, i: int) -> Layout:
        """The layout of a row."""
        return self.layouts[int(self.layout[i])]

    @property
    def chips(self) -> np.ndarray:
        """Chips of one instance, by row."""
        return np.asarray(self.served.chips)


def batches() -> np.ndarray:
    """Requests in flight in one attention group that are tried."""
    octaves = np.log(MOST / EVERY) / np.log(GROWTH)
    beyond = EVERY * GROWTH ** np.arange(1, octaves + 1)
    return np.unique(np.round(np.r_[1 : EVERY + 1, beyond, MOST]))


def table(
    serving: Serving,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    legal: list[Layout],
    common: Deployment,
    tried: np.ndarray | None = None,
) -> Table:
    """Every layout at every batch (``tried``: of one attention group); ``common`` gives the rest.

    One evaluation of ``serving`` per row, all in one compiled program.
    """
    each = batches() if tried is None else tried
    index, batch = (x.ravel() for x in np.meshgrid(np.arange(len(legal)), each, indexing="ij"))
    degrees = np.asarray(legal, np.float64).reshape(-1, len(Layout._fields))[index]
    batch = batch * degrees[:, Layout._fields.index("attention_dp")]
    given = dict(zip(Layout._fields, degrees.T, strict=True))
    with jax.enable_x64():
        served = jax.device_get(_served(serving, shape(arch), hardware, work, common, given, batch))
    return Table(legal, index, batch, served)


@partial(jax.jit, compiler_options=QUICK)
def _served(
    serving: Serving,
    seen: Shape,
    hardware: Hardware,
    work: Workload,
    common: Deployment,
    given: Any,
    batch: Any,
) -> Served:
    def one(degrees: Any, requests: Any) -> Served:
        plan = common.replace(**degrees)
        return serving.serve(seen, hardware, work.replace(batch=requests), plan)

    return jax.vmap(one)(given, batch)
