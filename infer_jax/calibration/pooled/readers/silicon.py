"""Rows of aiconfigurator-core: of one pool, and of two, of which no TTFT is fitted."""

from infer_jax.calibration.pooled.readers import silicon_cleaning as cleaning
from infer_jax.calibration.pooled.readers.inferencex import DRAFTS, POLLING, WAVES
from infer_jax.calibration.pooled.readers.silicon_cleaning import SiliconPools, SiliconRun
from infer_jax.calibration.pooled.rows import PooledRow, RowsRead, ServedModel, prefill_batches
from infer_jax.catalog.measurements import silicon
from infer_jax.errors import InputError
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment, ServingWorkload

# families whose published scripts start SGLang with --scheduler-recv-interval (InferenceX,
# benchmarks/single_node: dsr1_* and qwen3.5_* on b200 and b300; the others leave it at 1)
POLLING_FAMILIES = ("DeepSeek-R1/V3", "Qwen3.5-397B-A17B")
REPEATED = "a second entry of one measurement, or no single server"


def is_installed() -> bool:
    """Whether the package with these rows is there."""
    try:
        silicon.package_folder()
    except InputError:
        return False
    return True


def read() -> RowsRead:
    """The clean rows; the others are counted by what is wrong with them."""
    result = RowsRead()
    for run in cleaning.aggregated():
        if not run.unique:
            result.skipped[REPEATED] += 1
        elif run.anomaly:
            result.skipped[run.anomaly.replace("_", " ")] += 1
        else:
            result.rows.append(_row(run))
    pools, unknown = cleaning.disaggregated()
    result.skipped["pools whose workers are not known"] += len(unknown)
    for run in pools:
        if run.unique:
            result.rows.append(_pools(run))
        else:
            result.skipped[REPEATED] += 1
    return result


def polling(run: SiliconRun) -> float:
    """Passes from one look for new requests to the next, as the row's server was started."""
    row = run.published
    scripted = row.backend == "sglang" and not row.fixed_length
    if (
        not scripted
        or run.model_family not in POLLING_FAMILIES
        or not cleaning.is_blackwell(row.system)
    ):
        return 1.0
    return POLLING[run.concurrency >= 16]


def _workload(run: SiliconRun, batch: float) -> ServingWorkload:
    fixed, row = float(run.published.fixed_length), run.published
    lengths = {"isl": row.isl, "osl": row.osl, "nominal": 1.0 - fixed, "fixed": fixed}
    # rows of equal lengths do not say how many requests they sent: as many as the others
    return ServingWorkload.of(**lengths, batch=batch, waves=WAVES)


def _common(run: SiliconRun) -> dict[str, object]:
    row = run.published
    return {
        "id": row.id,
        "served": ServedModel(run.model, run.formats),
        "system": run.system,
        "engine": row.backend,
        # which of mean and median these times are is not known
        "measured": {"tpot": row.tpot_ms / 1e3, "ttft": row.ttft_ms / 1e3},
        "date": row.date,
    }


def _row(run: SiliconRun) -> PooledRow:
    grid, row = run.layout, run.published
    assert grid is not None
    plan = Deployment.of(
        tp=grid.tp,
        attention_dp=grid.dp,
        ep=grid.moe_ep,
        drafts=DRAFTS[grid.dp > 1] if run.hidden_drafts else 0.0,
        polling=polling(run),
    )
    return PooledRow(
        **_common(run),  # pyright: ignore[reportArgumentType]
        dataset="silicon (fitted)",
        workload=_workload(run, run.concurrency),
        plan=plan,
        group=f"{run.model_family} {row.system} {row.backend}",
    )


def _pools(run: SiliconPools) -> PooledRow:
    row = run.published
    prefill, decode = (
        Deployment.of(tp=p.layout.tp, attention_dp=p.layout.dp, ep=p.layout.moe_ep)
        for p in (run.prefill, run.decode)
    )
    return PooledRow(
        **_common(run),  # pyright: ignore[reportArgumentType]
        dataset="silicon pools",
        workload=_workload(run, run.concurrency / run.decode.count),
        plan=Pools.of(
            prefill=prefill,
            decode=decode,
            prefill_copies=run.prefill.count,
            decode_copies=run.decode.count,
            **prefill_batches(run.prefill.layout.dp, float(row.isl)),
        ),
        group=f"{run.model_family} {row.system} {row.backend} pools",
        mode="pools",
    )
