"""Rows of aiconfigurator-core: of one pool, and of two, of which no TTFT is fitted.

Beside the rules of `silicon_cleaning`, two of our own leave out rows: those that do not say how
many requests were in flight (their TTFT is up to a minute, or far below what their batch explains),
and those of an erratic build.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import permutations

from infer_jax.calibration.pooled.readers import silicon_cleaning as cleaning
from infer_jax.calibration.pooled.readers.inferencex import (
    DRAFTS,
    POLLING,
    WAVES,
    balance_timeout,
    started_as,
)
from infer_jax.calibration.pooled.readers.silicon_cleaning import SiliconPools, SiliconRun
from infer_jax.calibration.pooled.rows import (
    PooledRow,
    RowsRead,
    ServedModel,
    UnusableRowError,
    prefill_batches,
    rows_of,
)
from infer_jax.catalog.measurements import silicon
from infer_jax.errors import InputError
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment, ServingWorkload

# families whose published scripts start SGLang with --scheduler-recv-interval (InferenceX,
# benchmarks/single_node: dsr1_* and qwen3.5_* on b200 and b300; the others leave it at 1)
POLLING_FAMILIES = ("DeepSeek-R1/V3", "Qwen3.5-397B-A17B")
QWEN_DRAFTING_DAYS = ("2026-03-20", "2026-04-03")
REPEATED = "a second entry of one measurement, or no single server"
UNSTATED = "requests in flight are not stated"
ERRATIC = "a build that often answers less at a higher load"
HIGHER = 1.9  # a load over another that counts as higher
OFTEN = 0.1  # of pairs of loads


def is_installed() -> bool:
    """Whether the package with these rows is there."""
    try:
        silicon.package_folder()
    except InputError:
        return False
    return True


def read() -> RowsRead:
    """The clean rows; the others are counted by what is wrong with them."""
    single = cleaning.aggregated()
    erratic = erratic_builds([run for run in single if run.unique])

    def one_pool(run: SiliconRun) -> PooledRow:
        _refuse(run, ERRATIC if _build(run) in erratic else "")
        return _row(run)

    pools, unknown = cleaning.disaggregated()
    result = rows_of(single, one_pool)
    result.skipped["pools whose workers are not known"] += len(unknown)
    result.add(rows_of(pools, _pools))
    return result


def _refuse(run: SiliconRun, other: str = "") -> None:
    """Leave a run out for the first reason there is: those of all runs, then ``other``.

    Raises:
        UnusableRowError: there is one.
    """
    stated = silicon.stated_load(run.published) is not None
    reasons = ("" if run.unique else REPEATED, run.anomaly, "" if stated else UNSTATED, other)
    if reason := next(filter(None, reasons), ""):
        raise UnusableRowError(reason.replace("_", " "))


def erratic_builds(runs: Sequence[SiliconRun]) -> set[Hashable]:
    """Builds of which more than a tenth of pairs of loads give fewer tokens a second at the higher.

    TPOT then grows faster than the requests in flight, which no sharing of a chip explains. A pair
    is two runs of one server that differ in load alone, one at 1.9 times the other's or more.
    """
    servers: dict[tuple, list[SiliconRun]] = defaultdict(list)
    for run in runs:
        servers[(_build(run), run.configuration, run.published.precision)].append(run)
    pairs: dict[Hashable, list[bool]] = defaultdict(list)
    for (build, _, _), own in servers.items():
        for less, more in permutations(own, 2):
            load = more.concurrency / less.concurrency
            if load >= HIGHER:
                pace = more.published.tpot_ms / less.published.tpot_ms
                pairs[build].append(pace > load)
    return {build for build, fewer in pairs.items() if sum(fewer) > OFTEN * len(fewer)}


def _build(run: SiliconRun) -> tuple[str, str, str]:
    row = run.published
    return row.backend, row.version, row.fact("image")


def drafts(run: SiliconRun) -> float:
    """Tokens that a server drafted without its row saying so.

    Beside the DeepSeek runs of `SiliconRun.hidden_drafts`: Qwen3.5's on SGLang with tp 4 and no
    expert parallelism of two days. With 4 requests in flight TPOT is 0.6 times that of the same
    server on another day, with 256 it is 1.3 times, and TTFT grows: as a server that drafts. The
    published script drafts 3 (InferenceX, benchmarks/single_node/qwen3.5_fp8_b200_mtp.sh, 2ecc5ce).
    """
    row, grid = run.published, run.layout
    assert grid is not None
    if run.model_family == "Qwen3.5-397B-A17B" and row.date in QWEN_DRAFTING_DAYS:
        drafting = row.backend == "sglang" and row.precision == "fp8"
        return DRAFTS[False] if drafting and grid.tp == 4.0 and grid.moe_ep == 1.0 else 0.0
    return DRAFTS[grid.dp > 1] if run.hidden_drafts else 0.0


def polling_passes(run: SiliconRun) -> float:
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
        drafts=drafts(run),
        polling=polling_passes(run),
        balance_timeout=0.0 if row.fixed_length else balance_timeout(row.backend, run.model),
    )
    return PooledRow(
        **_common(run),  # pyright: ignore[reportArgumentType]
        dataset="silicon (fitted)",
        workload=_workload(run, run.concurrency),
        plan=plan,
        group=f"{run.model_family} {row.system} {row.backend}",
    )


def _pools(run: SiliconPools) -> PooledRow:
    _refuse(run)
    row = run.published
    prefill, decode = (
        Deployment.of(tp=p.layout.tp, attention_dp=p.layout.dp, ep=p.layout.moe_ep)
        for p in (run.prefill, run.decode)
    )
    plan = Pools.of(
        prefill=prefill,
        decode=decode,
        prefill_copies=run.prefill.count,
        decode_copies=run.decode.count,
        **prefill_batches(run.prefill.layout.dp, float(row.isl)),
    )
    if row.backend == "trtllm" and not row.fixed_length:
        sizes = row.isl, row.osl
        plan = started_as(plan, run.system, run.model, row.precision, sizes, run.concurrency)
    return PooledRow(
        **_common(run),  # pyright: ignore[reportArgumentType]
        dataset="silicon pools",
        workload=_workload(run, run.concurrency / run.decode.count),
        plan=plan,
        group=f"{run.model_family} {row.system} {row.backend} pools",
        mode="pools",
    )
