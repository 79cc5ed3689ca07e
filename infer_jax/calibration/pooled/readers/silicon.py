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
from infer_jax.calibration.pooled.readers.silicon_cleaning import SiliconRun, WorkerGroup
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
    single, (pools, unknown) = cleaning.aggregated(), cleaning.disaggregated()
    erratic = erratic_builds([run for run in single if run.unique])

    def clean(run: SiliconRun) -> PooledRow:
        stated = silicon.stated_load(run.published) is not None
        reasons = {
            REPEATED: not run.unique,
            run.anomaly.replace("_", " "): bool(run.anomaly),
            UNSTATED: not stated,
            ERRATIC: run.pools is None and _build(run) in erratic,
        }
        if reason := next((text for text, holds in reasons.items() if holds), ""):
            raise UnusableRowError(reason)
        return _row(run)

    result = rows_of((*single, *pools), clean)
    result.skipped["pools whose workers are not known"] += len(unknown)
    return result


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


def _row(run: SiliconRun) -> PooledRow:
    row, pools, fixed = run.published, run.pools, float(run.published.fixed_length)
    lengths = {"isl": row.isl, "osl": row.osl, "nominal": 1.0 - fixed, "fixed": fixed}
    batch = run.concurrency / (pools[1].count if pools else 1.0)
    return PooledRow(
        id=row.id,
        dataset="silicon pools" if pools else "silicon (fitted)",
        # which of mean and median these times are is not known
        measured={"tpot": row.tpot_ms / 1e3, "ttft": row.ttft_ms / 1e3},
        group=f"{run.model_family} {row.system} {row.backend}{' pools' * bool(pools)}",
        system=run.system,
        engine=row.backend,
        served=ServedModel(run.model, cleaning.formats(row)),
        # rows of equal lengths do not say how many requests they sent: as many as the others
        workload=ServingWorkload.of(**lengths, batch=batch, waves=WAVES),
        plan=_pools(run, *pools) if pools else _server(run),
        mode="pools" if pools else "loop",
        date=row.date,
    )


def _server(run: SiliconRun) -> Deployment:
    """The plan of a run of one pool."""
    grid, row = run.layout, run.published
    assert grid is not None
    return Deployment.of(
        tp=grid.tp,
        attention_dp=grid.dp,
        ep=grid.moe_ep,
        drafts=drafts(run),
        polling=polling_passes(run),
        balance_timeout=0.0 if row.fixed_length else balance_timeout(row.backend, run.model),
    )


def _pools(run: SiliconRun, *pools: WorkerGroup) -> Pools:
    """The plan of a run of two pools."""
    row, grids = run.published, [pool.layout for pool in pools]
    prefill, decode = (Deployment.of(tp=x.tp, attention_dp=x.dp, ep=x.moe_ep) for x in grids)
    plan = Pools.of(
        prefill=prefill,
        decode=decode,
        prefill_copies=pools[0].count,
        decode_copies=pools[1].count,
        **prefill_batches(grids[0].dp, float(row.isl)),
    )
    if row.backend == "trtllm" and not row.fixed_length:
        sizes = row.isl, row.osl
        return started_as(plan, run.system, run.model, row.precision, sizes, run.concurrency)
    return plan
