"""Measured serving runs in aiconfigurator's optional package, as published and corrected.

``silicon_sample.csv`` inside the package ``aiconfigurator-core`` (NVIDIA, Apache-2.0) holds
measured serving runs, aggregated and disaggregated. It is read where it is installed and never
copied. The importer of those rows wrote two fields in ways that cannot be used: parallel degrees,
which `layout` corrects, and the load, which `concurrency` corrects. Some disaggregated runs are
listed as aggregated ones (`is_flattened_pair`).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from infer_jax.catalog.cells import Cells, Statistic, read_rows
from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import Parsed
from infer_jax.catalog.measurements.run import Run, WorkerPool
from infer_jax.catalog.models import load_model, model_named
from infer_jax.catalog.systems import system_named
from infer_jax.errors import InputError
from infer_jax.specs import Experts

TABLE = "silicon_sample.csv"
FIXED = "gap-analysis/data"  # in the provenance of runs whose prompts all have one length
DEGREES = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
# columns by the fields of a row: texts, and numbers above 0
TEXTS = {
    "id": "id",
    "provenance": "silicon_data_source",
    "backend": "backend",
    "version": "backend_version",
    "model_path": "model_path",
    "system": "system",
    "precision": "precision",
}
POSITIVE = {"isl": "isl", "osl": "osl", "ttft_ms": "silicon_ttft_ms", "tpot_ms": "silicon_tpot_ms"}
COLUMNS = (*TEXTS.values(), *POSITIVE.values(), "mode", "batch_size", *DEGREES, "pp_size")
LOAD = "silicon_concurrency"  # in the provenance


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
    return tuple(_published(str(path), read_text(path)))


def is_table(text: str) -> bool:
    """True for the package's table of rows."""
    return {"silicon_ttft_ms", "silicon_tpot_ms"} <= set(text.partition("\n")[0].strip().split(","))


def _published(file: str, text: str) -> Iterator[Published]:
    """The rows of a table."""
    _, header, rows = read_rows(file, text)
    if missing := [name for name in COLUMNS if name not in header]:
        allowed = f"a header with {', '.join(COLUMNS)}"
        raise InputError(file, "header", f"without {missing[0]}", allowed)
    for cells in rows:
        mode, pp = cells.value("mode") or "", cells.number("pp_size")
        if mode not in ("agg", "disagg"):
            raise cells.error("mode", mode, "agg or disagg")
        if pp not in (None, 1.0):
            allowed = "1: pipelined rows are not understood"
            raise cells.error("pp_size", cells.value("pp_size"), allowed)
        numbers: Parsed = {field: cells.number(name) for field, name in POSITIVE.items()}
        if wrong := [name for field, name in POSITIVE.items() if not numbers[field]]:
            raise cells.error(wrong[0], cells.value(wrong[0]) or "", "a number above 0")
        yield Published(
            **{field: str(cells.value(name) or "") for field, name in TEXTS.items()},
            **numbers,
            line=cells.line,
            disaggregated=mode == "disagg",
            batch=cells.number("batch_size"),
            degrees=tuple(map(cells.number, DEGREES)),
            prefill=_published_pool(cells, "prefill"),
            decode=_published_pool(cells, "decode"),
        )


def _published_pool(cells: Cells, stage: str) -> PublishedPool:
    names = ("num_workers", "batch_size", *DEGREES)
    workers, batch, *degrees = (cells.number(f"{stage}_{name}") for name in names)
    return PublishedPool(workers, batch, tuple(degrees))


class ServerDegrees(NamedTuple):
    """Parallel degrees of one server (or one worker of a pool); tp x dp GPUs."""

    tp: float
    dp: float
    moe_tp: float
    moe_ep: float

    @property
    def gpus(self) -> float:
        """GPUs that the attention grid covers."""
        return self.tp * self.dp


def runs_of(file: str, text: str) -> Iterator[Run]:
    """The rows whose deployment is known, as runs with corrected layouts and concurrency.

    Left out: flattened rows, disaggregated ones without worker counts, and those on GB200
    without a precision (two runs of one label differ fivefold).

    Raises:
        InputError: as ``published_rows``.
    """
    for row in _published(file, text):
        pools = not row.disaggregated or (row.prefill.workers and row.decode.workers)
        labelled = row.precision or row.system != "gb200"
        if pools and labelled and not is_flattened_pair(row):
            yield _run(file, row)


def is_flattened_pair(row: Published) -> bool:
    """True for disaggregated GB200 runs that stand in the table as one server of 12 GPUs up."""
    deepseek = "deepseek" in row.model_path.casefold()
    return row.system == "gb200" and deepseek and (row.degrees[0] or 1.0) >= 12.0


def layout(row: Published, mixture: bool) -> ServerDegrees:
    """The parallel degrees that were run, from those published in an aggregated row.

    The importer multiplied tp or dp by the expert degree in some random-length rows, as rows
    that hold the same measurement twice prove. Expert degrees of a dense model (``mixture``
    False) mean nothing and are read as tensor parallelism.
    """
    tp, dp, moe_tp, moe_ep = (x or 1.0 for x in row.degrees)
    if not mixture:
        return ServerDegrees(tp, dp, tp * dp, 1.0)
    if not row.fixed_length:
        if moe_tp == moe_ep > 1.0 and tp * dp == moe_tp * moe_ep:
            tp, dp = (1.0, moe_ep) if dp > 1.0 else (moe_ep, 1.0)
            moe_tp = 1.0
        elif tp == dp > 1.0 and moe_ep == tp * dp:
            tp, moe_tp, moe_ep = 1.0, 1.0, dp
    if tp * dp != moe_tp * moe_ep and dp == 1.0 and (moe_tp * moe_ep) % tp == 0.0:
        dp = moe_tp * moe_ep / tp
    return ServerDegrees(tp, dp, moe_tp, moe_ep)


def concurrency(row: Published, dp: float) -> float:
    """Requests in flight of one server: by the provenance, else batch x dp.

    A fixed-length row may be of several replicas together; then batch x dp is the smaller.

    Raises:
        InputError: neither is given.
    """
    of_batch = None if row.batch is None else row.batch * dp
    loads = [x for x in (stated_load(row), of_batch) if x is not None]
    if not loads:
        raise InputError(row.id, "batch_size", "missing", "a number, or silicon_concurrency=")
    return min(loads) if row.fixed_length else loads[0]


def stated_load(row: Published) -> float | None:
    """Requests in flight by the provenance; None where it has none.

    Raises:
        InputError: not a number.
    """
    return Cells(row.id, row.line, {"concurrency": row.fact(LOAD)}).number("concurrency")


def _run(file: str, row: Published) -> Run:
    run = Run(
        file=file,
        line=row.line,
        source="silicon",
        engine=row.backend,
        version=row.version or None,
        model=row.model_path,
        system=system_named(row.system),
        date=row.date or None,
        precision=row.precision or None,
        isl=row.isl,
        osl=row.osl,
        ttft=Statistic(row.ttft_ms / 1e3),
        tpot=Statistic(row.tpot_ms / 1e3),
        notes=() if row.fixed_length else ("lengths are nominal: drawn from 80 to 100 % of them",),
    )
    if row.disaggregated:
        pools = (_pool("prefill", row.prefill), _pool("decode", row.decode))
        return run.replace(concurrency=stated_load(row), pools=pools)
    grid = layout(row, mixture(row.model_path))
    load = concurrency(row, grid.dp)
    return run.replace(tp=grid.tp, dp=grid.dp, ep=grid.moe_ep, concurrency=load)


def _pool(role: str, pool: PublishedPool) -> WorkerPool:
    tp, dp, moe_ep = pool.degrees[0], pool.degrees[1] or 1.0, pool.degrees[3]
    chips = tp * dp * pool.workers if tp and pool.workers else None
    return WorkerPool(role, pool.workers, chips, tp, 1.0, dp, moe_ep or 1.0)


@cache
def mixture(model_path: str) -> bool:
    """True where a model is bundled as a mixture of experts."""
    name = model_named(model_path)
    blocks = load_model(name).architecture.blocks if name else ()
    return any(isinstance(block.feedforward, Experts) for block in blocks)
