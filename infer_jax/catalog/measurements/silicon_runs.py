"""Runs of aiconfigurator's measured rows, with wrong layouts and loads corrected.

The importer of those rows wrote two fields in ways that cannot be used: parallel degrees, which
`layout` corrects, and the load, which `concurrency` corrects. Some disaggregated runs are listed
as aggregated ones (`is_flattened_pair`).
"""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from infer_jax.catalog.measurements import run, silicon
from infer_jax.catalog.measurements.cells import Cells
from infer_jax.catalog.measurements.names import model_named, system_named
from infer_jax.catalog.measurements.run import Run, Statistic
from infer_jax.catalog.measurements.silicon import Published, PublishedPool
from infer_jax.catalog.models import load_model
from infer_jax.errors import InputError
from infer_jax.specs import Experts

LOAD = "silicon_concurrency"  # in the provenance


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


def runs(path: str | os.PathLike[str] | None = None) -> Iterator[Run]:
    """The rows whose deployment is known, as runs with corrected layouts and concurrency.

    Left out: flattened rows, disaggregated ones without worker counts, and those on GB200
    without a precision (two runs of one label differ fivefold).

    Raises:
        InputError: as ``published_rows``.
    """
    path = path or silicon.package_folder() / silicon.TABLE
    for row in silicon.published_rows(path):
        pools = not row.disaggregated or (row.prefill.workers and row.decode.workers)
        labelled = row.precision or row.system != "gb200"
        if pools and labelled and not is_flattened_pair(row):
            yield _run(str(path), row)


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
    fields: dict[str, Any] = {}
    if row.disaggregated:
        fields["concurrency"] = stated_load(row)
        fields["pools"] = (_pool("prefill", row.prefill), _pool("decode", row.decode))
    else:
        grid = layout(row, mixture(row.model_path))
        fields |= {"tp": grid.tp, "dp": grid.dp, "ep": grid.moe_ep}
        fields["concurrency"] = concurrency(row, grid.dp)
    if not row.fixed_length:
        fields["notes"] = ("lengths are nominal: drawn from 80 to 100 % of them",)
    return Run(
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
        **fields,
    )


def _pool(role: str, pool: PublishedPool) -> run.WorkerPool:
    tp, dp, moe_ep = pool.degrees[0], pool.degrees[1] or 1.0, pool.degrees[3]
    chips = tp * dp * pool.workers if tp and pool.workers else None
    return run.WorkerPool(role, pool.workers, chips, tp, 1.0, dp, moe_ep or 1.0)


@cache
def mixture(model_path: str) -> bool:
    """True where a model is bundled as a mixture of experts."""
    name = model_named(model_path)
    blocks = load_model(name).architecture.blocks if name else ()
    return any(isinstance(block.feedforward, Experts) for block in blocks)
