"""Does our search of the block find at least what the released tool's search found?

Each row is a search of the released cost model: a model, lengths, headroom and memories. Theirs
stops at the first number of batches that does not help; ours solves the whole grid.
"""

import os
from typing import Any, NamedTuple

import jax

from experiments._columns import Input, Output, flag, positive, read_points
from experiments._offloading.machine import SHAPES, opt_model, t4
from infer_jax.errors import InputError
from infer_jax.estimators.offloading import Offload, Offloading
from infer_jax.estimators.offloading.search import Blocks, search
from infer_jax.specs import Architecture, Hardware, Workload

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


class Task(NamedTuple):
    """What is searched: the arguments of ``search``."""

    model: Offloading
    arch: Architecture
    hardware: Hardware
    work: Workload
    plan: Offload


class SearchedBlock(NamedTuple):
    """One search: theirs, the task, and the whole grid of ours."""

    line: int
    label: str
    theirs: float
    task: Task
    grid: Blocks

    @property
    def best(self) -> int | None:
        """The point of most throughput."""
        return self.grid.best()

    @property
    def ours(self) -> float:
        """Its throughput; 0 where nothing fits."""
        return 0.0 if self.best is None else float(self.grid.throughput[self.best])

    @property
    def block(self) -> str:
        """Its GPU batch and number of batches."""
        if self.best is None:
            return "none fits"
        return f"{self.grid.gpu_batch[self.best]:g} x {self.grid.batches[self.best]:g}"

    @property
    def reaches(self) -> bool:
        """Whether ours is at least theirs; where theirs found nothing, whether ours did not."""
        return self.ours >= self.theirs * (1.0 - TOLERANCE)


def searched_block(row: dict[str, Any], theirs: float, line: int) -> SearchedBlock:
    """The search of a row."""
    if row["model"] not in SHAPES:
        raise InputError(f"line {line}", "model", row["model"], ", ".join(SHAPES))
    task = Task(
        Offloading.released().with_(usable=row["alpha"]),
        opt_model(row["model"]),
        t4(row["gmem_GiB"], row["cmem_GiB"], row["nmem_GiB"]),
        Workload.of(isl=row["s"], osl=row["n"]),
        Offload.of(compress_weights=float(row["compress_w"])),
    )
    label = f"{row['model']} {row['s']:g}+{row['n']:g}" + (" 4-bit" * row["compress_w"])
    label += f" x{row['alpha']:g}"
    with jax.enable_x64(True):
        return SearchedBlock(line, label, theirs, task, search(*task))


def compare(path: str | os.PathLike[str]) -> list[SearchedBlock]:
    """Every row of a file of searches.

    Raises:
        InputError: unreadable, a required column missing, or a malformed cell.
    """
    read = read_points(path, INPUTS, {"throughput": Output(TOLERANCE)})
    return [searched_block(p.inputs, float(p.outputs["throughput"]), p.line) for p in read.points]
