"""Does our search of the block find at least what the released tool's search found?

Each row is a search of the released cost model: a model, lengths, headroom and memories. Theirs
stops at the first number of batches that does not help; ours solves the whole grid.
"""

import os
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments._columns import Input, Output, flag, positive, read_points
from experiments._offloading.machine import SHAPES, named, t4
from infer_jax.errors import InputError
from infer_jax.estimators.offloading import Offload, Offloading
from infer_jax.estimators.offloading.search import search
from infer_jax.specs import Workload

TOLERANCE = 1e-6

INPUTS = {
    "model": Input(),
    "s": Input(positive),
    "n": Input(positive),
    "compress_w": Input(flag, absent=False),
    "alpha": Input(positive, absent=0.8),
    "gmem_GiB": Input(positive, absent=16.0),
    "cmem_GiB": Input(positive, absent=200.0),
    "nmem_GiB": Input(positive, absent=1500.0),
}


class Found(NamedTuple):
    """One search: theirs, and the best block of ours."""

    line: int
    label: str
    theirs: float
    ours: float
    gpu_batch: float
    batches: float
    programs: int

    @property
    def reaches(self) -> bool:
        """Whether ours is at least theirs; where theirs found nothing, whether ours did not."""
        return self.ours >= self.theirs * (1.0 - TOLERANCE)


def one(row: dict[str, Any], theirs: float, line: int) -> Found:
    """The search of a row."""
    if row["model"] not in SHAPES:
        raise InputError(f"line {line}", "model", row["model"], ", ".join(SHAPES))
    model = Offloading.released().but(usable=row["alpha"])
    hardware = t4(row["gmem_GiB"], row["cmem_GiB"], row["nmem_GiB"])
    work = Workload.of(isl=row["s"], osl=row["n"])
    plan = Offload.of(compress_weights=float(row["compress_w"]))
    with jax.enable_x64(True):
        grid = search(model, named(row["model"]), hardware, work, plan)
    best = grid.best()
    label = f"{row['model']} {row['s']:g}+{row['n']:g}" + (" 4-bit" * row["compress_w"])
    label += f" x{row['alpha']:g}"
    if best is None:
        return Found(line, label, theirs, 0.0, np.nan, np.nan, len(grid.time))
    g, k = grid.gpu_batch[best], grid.batches[best]
    return Found(line, label, theirs, float(grid.throughput[best]), g, k, len(grid.time))


def compare(path: str | os.PathLike[str]) -> list[Found]:
    """Every row of a file of searches.

    Raises:
        InputError: unreadable, a required column missing, or a malformed cell.
    """
    read = read_points(path, INPUTS, {"throughput": Output(TOLERANCE)})
    return [one(p.inputs, float(p.outputs["throughput"]), p.line) for p in read.points]
