"""Measured serving runs in aiconfigurator's optional package, as published.

``silicon_sample.csv`` inside the package ``aiconfigurator-core`` (NVIDIA, Apache-2.0) holds
measured serving runs, aggregated and disaggregated. It is read where it is installed and never
copied. Corrected layouts and loads are in `infer_jax.catalog.measurements.silicon_runs`.
"""

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import Parsed
from infer_jax.catalog.measurements.cells import Cells, read_rows
from infer_jax.errors import InputError

TABLE = "silicon_sample.csv"
FIXED = "gap-analysis/data"  # in the provenance of runs whose prompts all have one length
DEGREES = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
COLUMNS = ("id", "silicon_data_source", "backend", "backend_version", "model_path", "system")
COLUMNS += ("precision", "mode", "isl", "osl", "batch_size", *DEGREES, "pp_size")
COLUMNS += ("silicon_ttft_ms", "silicon_tpot_ms")
# texts and numbers above 0 of a row, by field
TEXTS = {
    "id": "id",
    "provenance": "silicon_data_source",
    "backend": "backend",
    "version": "backend_version",
    "model_path": "model_path",
    "system": "system",
    "precision": "precision",
}
POSITIVE = {
    "isl": "isl",
    "osl": "osl",
    "ttft_ms": "silicon_ttft_ms",
    "tpot_ms": "silicon_tpot_ms",
}


class PublishedPool(NamedTuple):
    """One half of a disaggregated deployment as published; None where a cell is empty."""

    workers: float | None
    batch: float | None
    degrees: tuple[float | None, ...]  # tp, attention dp, MoE tp, MoE ep


@dataclass(frozen=True)
class Published:
    """One row as published: texts stripped, times in milliseconds, empty cells None."""

    id: str
    line: int
    provenance: str
    backend: str
    version: str
    model_path: str
    system: str
    precision: str  # fp4, fp8, int4, bf16, or "" where the row does not say
    disaggregated: bool
    isl: float
    osl: float
    batch: float | None
    degrees: tuple[float | None, ...]
    prefill: PublishedPool
    decode: PublishedPool
    ttft_ms: float
    tpot_ms: float

    @property
    def fixed_length(self) -> bool:
        """True where all prompts have one length; else InferenceX's random lengths."""
        return FIXED in self.provenance

    @property
    def date(self) -> str:
        """The day of the measurement, yyyy-mm-dd, or ""."""
        return self.fact("measured")[:10]

    def fact(self, key: str) -> str:
        """The provenance's text after ``key=``, or ""."""
        match = re.search(rf"\b{key}=([^;]*)", self.provenance)
        return match[1].strip() if match else ""


def package_folder() -> Path:
    """The folder of aiconfigurator-core's tables.

    Raises:
        InputError: the package is not installed.
    """
    package = find_spec("aiconfigurator_core")
    if package is None or package.origin is None:
        allowed = "pip install 'infer_jax[silicon]'"
        raise InputError("measured serving rows", "aiconfigurator-core", "not installed", allowed)
    return Path(package.origin).parent / "systems"


def published_rows(path: str | os.PathLike[str] | None = None) -> tuple[Published, ...]:
    """Every row of ``silicon_sample.csv`` in file order; ``path`` instead of the installed one.

    Raises:
        InputError: not installed; no such table; a malformed cell, with its line and column.
    """
    path = path or package_folder() / TABLE
    _, header, rows = read_rows(str(path), read_text(path))
    if missing := [name for name in COLUMNS if name not in header]:
        allowed = f"a header with {', '.join(COLUMNS)}"
        raise InputError(str(path), "header", f"without {missing[0]}", allowed)
    return tuple(map(_published, rows))


def recognises(text: str) -> bool:
    """True for the package's table of rows."""
    return {"silicon_ttft_ms", "silicon_tpot_ms"} <= set(text.partition("\n")[0].strip().split(","))


def _published(cells: Cells) -> Published:
    """The row in the cells of a line."""
    mode, pp = str(cells.values.get("mode", "")), _number(cells, "pp_size")
    if mode not in ("agg", "disagg"):
        raise cells.error("mode", mode, "agg or disagg")
    if pp not in (None, 1.0):
        raise cells.error(
            "pp_size", cells.values["pp_size"], "1: pipelined rows are not understood"
        )
    numbers: Parsed = {}
    for field, name in POSITIVE.items():
        value = _number(cells, name)
        if not value:
            raise cells.error(name, cells.values.get(name, ""), "a number above 0")
        numbers[field] = value
    return Published(
        **{field: str(cells.values.get(name, "")) for field, name in TEXTS.items()},
        **numbers,
        line=cells.line,
        disaggregated=mode == "disagg",
        batch=_number(cells, "batch_size"),
        degrees=tuple(_number(cells, name) for name in DEGREES),
        prefill=_pool(cells, "prefill"),
        decode=_pool(cells, "decode"),
    )


def _pool(cells: Cells, stage: str) -> PublishedPool:
    names = ("num_workers", "batch_size", *DEGREES)
    workers, batch, *degrees = (_number(cells, f"{stage}_{name}") for name in names)
    return PublishedPool(workers, batch, tuple(degrees))


def _number(cells: Cells, name: str) -> float | None:
    value = cells.number(name)
    if value is not None and value >= 1e12:
        raise cells.error(name, value, "a number of at least 0, below 1e12")
    return value
