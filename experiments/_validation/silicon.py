"""Rows of aiconfigurator-core: of one pool, which were fitted, and of two, which no fit saw."""

from experiments._silicon import clean, rows as reading, split
from experiments._silicon.served import DRAFTS, WAVES, polling
from experiments._validation.row import Formats, Read, Row, Served
from infer_jax.catalog.measurements import silicon
from infer_jax.errors import InputError
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment, ServingWorkload


def there() -> bool:
    """Whether the package is installed."""
    try:
        silicon.package_folder()
    except InputError:
        return False
    return True


def read() -> Read:
    """The clean rows; the others are counted by what is wrong with them."""
    found = Read()
    for row in reading.aggregated():
        if not row.unique:
            found.skipped["a second entry of one measurement, or no single server"] += 1
        elif row.anomaly:
            found.skipped[row.anomaly.replace("_", " ")] += 1
        else:
            found.rows.append(_row(row))
    every, left = split.disaggregated()
    found.skipped["pools whose workers are not known"] += len(left)
    for row in every:
        if row.unique:
            found.rows.append(_pools(row))
        else:
            found.skipped["a second entry of one measurement, or no single server"] += 1
    return found


def _formats(f: clean.Formats) -> Formats:
    return Formats(
        (f.attention, f.attention_bits),
        (f.feedforward, f.feedforward_bits),
        (f.shared, f.feedforward_bits),
        f.cache,
        f.dynamic,
    )


def _load(row: reading.Row | split.Split, batch: float) -> ServingWorkload:
    fixed = float(row.source == "fixed_length")
    return ServingWorkload.of(
        isl=row.isl, osl=row.osl, batch=batch, nominal=1.0 - fixed, fixed=fixed
    )


def _row(row: reading.Row) -> Row:
    assert row.formats is not None and row.layout is not None and row.concurrency is not None
    grid = row.layout
    return Row(
        id=row.id,
        dataset="silicon (fitted)",
        served=Served(row.model, _formats(row.formats)),
        system=row.profile,
        engine=row.engine,
        work=_load(row, row.concurrency).with_(waves=WAVES),
        plan=Deployment.of(
            tp=grid.tp,
            attention_dp=grid.dp,
            ep=grid.moe_ep,
            drafts=DRAFTS[grid.dp > 1] if row.hidden_mtp else 0.0,
            polling=polling(row),
        ),
        # which of mean and median these times are is not said
        measured={"tpot": row.tpot, "ttft": row.ttft},
        group=f"{row.family} {row.system} {row.engine}",
        fitted=True,
        date=row.date,
    )


def _pools(row: split.Split) -> Row:
    assert row.formats is not None
    prefill, decode = (
        Deployment.of(tp=p.layout.tp, attention_dp=p.layout.dp, ep=p.layout.moe_ep)
        for p in (row.prefill, row.decode)
    )
    return Row(
        id=row.id,
        dataset="silicon pools",
        served=Served(row.model, _formats(row.formats)),
        system=row.profile,
        engine=row.engine,
        work=_load(row, max(row.concurrency / row.decode.count, 1.0)),
        plan=Pools.of(
            prefill=prefill,
            decode=decode,
            prefill_copies=row.prefill.count,
            decode_copies=row.decode.count,
            prefill_batch=row.prefill.layout.dp,  # a prompt on every attention rank
        ),
        measured={"tpot": row.tpot, "ttft": row.ttft},
        group=f"{row.family} {row.system} {row.engine} pools",
        asked="pools",
        date=row.date,
    )
