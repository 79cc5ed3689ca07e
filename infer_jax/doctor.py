"""Checks every device of this machine by computing stored answers again.

Compilers have had releases that return wrong numbers on one kind of device. Before a long
run, every device evaluates a small table whose answers another program computed.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby

import jax
import numpy as np
from jax import Array
from jax.tree_util import PyTreeDef

from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.compiling import cache_folder
from infer_jax.estimators import Economics
from infer_jax.results import Column, Notes, Result, Rows, Section
from infer_jax.specs import Architecture, ForwardPass, Hardware, Plan

TABLE = "golden/economics.csv"
# Relative errors that rounding alone explains: a few hundred operations of 1.2e-7 (float32) or
# 2.2e-16 (float64) each, of which fractional powers multiply the error of their exponent.
ALLOWED = {"float32": 1e-5, "float64": 1e-12}
WIDE = ("cpu", "gpu", "cuda", "rocm")  # platforms with float64 in hardware
DEVICES = (
    Column("device", "", "device"),
    Column("numbers", "", "dtype"),
    Column("rows", "", "rows"),
    Column("worst error", "relative", "worst_relative_error", lambda x: f"{x:.1e}"),
    Column("allowed", "relative", "allowed_relative_error", lambda x: f"{x:.0e}"),
    Column("agrees", "", lambda row: "yes" if row["agrees"] else "NO"),
)
# the arguments of a step: estimator, model, system, pass and plan
Case = tuple[Economics, Architecture, Hardware, ForwardPass, Plan]


@dataclass(frozen=True)
class Verdict:
    """How far one device's answers are from the table, in one precision."""

    device: str
    dtype: str
    worst: float  # relative error; infinite where only one of the two answers fits in memory
    row: str  # the row of the worst error
    rows: int

    @property
    def agrees(self) -> bool:
        """Whether every row is within what rounding explains."""
        return self.worst <= ALLOWED[self.dtype]

    def fields(self) -> dict[str, object]:
        """The verdict for JSON."""
        return {
            "device": self.device,
            "dtype": self.dtype,
            "rows": self.rows,
            "worst_relative_error": self.worst,
            "allowed_relative_error": ALLOWED[self.dtype],
            "worst_row": self.row,
            "agrees": self.agrees,
        }


@dataclass(frozen=True, repr=False)
class Verdicts(Result):
    """What every device computed, against the stored answers."""

    verdicts: Sequence[Verdict]

    @property
    def agrees(self) -> bool:
        """Whether every device computes what it should."""
        return all(v.agrees for v in self.verdicts)

    def sections(self) -> Iterator[Section]:
        """A row a device and number format, what to do, and where programs are stored."""
        folder = cache_folder()
        yield f"jax {jax.__version__}, jaxlib {version('jaxlib')}"
        yield {"jax": jax.__version__, "jaxlib": version("jaxlib"), "agrees": self.agrees}
        yield {"compilation_cache": str(folder) if folder else None}
        yield Rows("devices", [v.fields() for v in self.verdicts], DEVICES)
        wrong = [
            f"{v.device} is wrong in {v.dtype}: {v.row} is off by {v.worst:.2g}. "
            "Update jax and jaxlib, or run on another device."
            for v in self.verdicts
            if not v.agrees
        ]
        stored = folder or "no folder: none is writable by this user alone"
        yield Notes([*wrong, f"Compiled programs are kept in {stored}."])


def table() -> list[dict[str, str]]:
    """The stored rows: variant, model, chip, chips, batch, cached and new tokens, seconds."""
    text = files("infer_jax.catalog").joinpath(TABLE).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def examine(devices: Sequence[jax.Device] | None = None) -> list[Verdict]:
    """Evaluate the table on each device in float32, and in float64 where hardware has it."""
    verdicts = []
    for device in jax.devices() if devices is None else devices:
        for dtype in ALLOWED:
            if dtype == "float32" or device.platform in WIDE:
                verdicts.append(_examine(device, dtype))
    return verdicts


def _examine(device: jax.Device, dtype: str) -> Verdict:
    worst, where, rows = 0.0, "", table()
    with jax.enable_x64(dtype == "float64"), jax.default_device(device):
        for _, group in groupby(rows, key=_structure):
            batch = list(group)
            times, fits = _evaluate(batch, dtype)
            for row, time, fit in zip(batch, times, fits, strict=True):
                error = _error(float(time), bool(fit), float(row["seconds"]))
                if error > worst or not where:
                    worst, where = error, " ".join(list(row.values())[:-1])
    name = f"{device.platform}:{device.id} {device.device_kind}"
    return Verdict(name, dtype, worst, where, len(rows))


def _error(time: float, fits: bool, stored: float) -> float:
    """The relative error of a time; infinite for a NaN, or where only one of the two fits."""
    if fits != math.isfinite(stored):
        return math.inf
    error = abs(time / stored - 1.0) if fits else 0.0
    return error if math.isfinite(error) else math.inf


def _structure(row: dict[str, str]) -> tuple[str, PyTreeDef]:
    """Rows of equal structure are evaluated by one program."""
    arch, (hardware, _) = economics_model(row["model"]), economics_hardware(row["chip"])
    return row["variant"], jax.tree.structure((arch, hardware))


def _evaluate(rows: list[dict[str, str]], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    cases = [_case(row) for row in rows]
    stacked = jax.tree.map(lambda *x: np.stack(x).astype(dtype), *cases)

    def step(case: Case) -> tuple[Array, Array]:
        model, arch, hardware, forward, plan = case
        phase = model.step(arch, hardware, forward, plan)
        return phase.time, phase.feasible

    # one row at a time: what is tested is the program that single questions run
    run = partial(jax.lax.map, step)
    return jax.device_get(jax.jit(run)(stacked))


def _case(row: dict[str, str]) -> Case:
    hardware, coefficients = economics_hardware(row["chip"])
    model = getattr(Economics, row["variant"])().fitted(coefficients)
    forward = ForwardPass.of(
        sequences=float(row["batch"]),
        new_tokens=float(row["new_tokens"]),
        cached_tokens=float(row["cached_tokens"]),
    )
    return model, economics_model(row["model"]), hardware, forward, Plan.of(tp=float(row["chips"]))
