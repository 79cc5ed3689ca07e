"""Which disaggregated rows can be scored: how many workers were there in each pool?

Some entries give the workers of both pools. Others are a second entry of the same measurement
(equal model family, system, engine, precision, lengths, load and both times), whose worker counts
are thereby recovered. The rest is left out, with the reason.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from experiments._silicon import clean
from experiments._silicon.rows import Measured, facts
from infer_jax.catalog.measurements import silicon
from infer_jax.catalog.measurements.silicon import Published, PublishedPool
from infer_jax.catalog.measurements.silicon_runs import ServerDegrees

NO_WORKERS = "worker counts are neither given nor in another entry of the same measurement"


class Workers(NamedTuple):
    """One pool: equal workers, each of ``layout``; ``batch`` is requests per attention rank."""

    count: float
    batch: float
    layout: ServerDegrees

    @property
    def gpus(self) -> float:
        """GPUs of the whole pool."""
        return self.count * self.layout.gpus


@dataclass(frozen=True, kw_only=True)
class Split(Measured):
    """One disaggregated row whose pools are known.

    ``first`` is the id of the first entry of the same measurement. ``recovered_from`` is the id
    of the entry that gives its worker counts, "" where it gives them itself. ``concurrency`` is of
    all pools.
    """

    first: str

    prefill: Workers
    decode: Workers
    concurrency: float
    recovered_from: str

    @property
    def unique(self) -> bool:
        """True for the first entry of a measurement."""
        return self.first == self.id

    @property
    def clean(self) -> bool:
        """True where the row counts among the clean ones; no rule finds anomalies here."""
        return self.unique

    @property
    def gpus(self) -> float:
        """GPUs of both pools."""
        return self.prefill.gpus + self.decode.gpus


class LeftOut(NamedTuple):
    """A disaggregated row that cannot be scored, and why."""

    id: str
    reason: str


def disaggregated(
    path: str | os.PathLike[str] | None = None,
) -> tuple[tuple[Split, ...], tuple[LeftOut, ...]]:
    """The disaggregated rows with known pools in file order, and those left out.

    Raises:
        InputError: the package is not installed, or its table is malformed.
    """
    published = [row for row in silicon.published_rows(path) if row.disaggregated]
    known = _known(published)
    first: dict[tuple, str] = {}
    scored, left = [], []
    for row in published:
        source = row if _counted(row) else known.get(_measurement(row))
        if source is None:
            left.append(LeftOut(row.id, NO_WORKERS))
        else:
            scored.append(_split(row, source, first.setdefault(_measurement(row), row.id)))
    return tuple(scored), tuple(left)


def _known(rows: Sequence[Published]) -> dict[tuple, Published]:
    """Entries that give both worker counts, by measurement."""
    return {_measurement(row): row for row in rows if _counted(row)}


def _counted(row: Published) -> bool:
    return all(pool.workers and pool.batch for pool in (row.prefill, row.decode))


def _measurement(row: Published) -> tuple:
    """Equal for two entries of one measurement; layouts, which importers differ on, left out."""
    family = clean.served(row).family
    times = (round(row.tpot_ms * 100.0), round(row.ttft_ms * 10.0))
    load = row.fact("silicon_concurrency")
    return (family, row.system, row.backend, row.precision, row.isl, row.osl, load, *times)


def _split(row: Published, source: Published, first: str) -> Split:
    prefill, decode = _workers(source.prefill), _workers(source.decode)
    said = row.fact("silicon_concurrency")
    slots = decode.count * decode.layout.dp * decode.batch
    return Split(
        **facts(row),
        formats=clean.formats(row),
        first=first,
        prefill=prefill,
        decode=decode,
        concurrency=float(said) if said else slots,
        recovered_from="" if source is row else source.id,
    )


def _workers(pool: PublishedPool) -> Workers:
    """A pool as run; where the expert grid does not cover the GPUs, the attention grid holds."""
    assert pool.workers and pool.batch
    tp, dp, moe_tp, moe_ep = (x or 1.0 for x in pool.degrees)
    if moe_tp * moe_ep != tp * dp:
        moe_tp, moe_ep = tp * dp, 1.0
    return Workers(pool.workers, pool.batch, ServerDegrees(tp, dp, moe_tp, moe_ep))
