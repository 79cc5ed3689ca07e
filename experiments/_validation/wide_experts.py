"""Published nodes of wide expert parallelism: tokens a second of GPUs that only prefill or decode.

``wide_experts.csv`` has each figure with where it was printed (``SOURCES``) and what is known of a
pass: tokens of a GPU that prefills, requests of a GPU that decodes. Attention ran data parallel on
every GPU, and no pool was short of work.
"""

from experiments._report import GOLDEN
from infer_jax.calibration.pooled.rows import (
    FP8,
    NVFP4,
    Cells,
    PooledRow,
    RowsRead,
    ServedModel,
    StoredFormats,
    lookup,
    number,
    optional_number,
    rows_of,
)
from infer_jax.estimators.disaggregated import Disaggregated
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload, WideExperts

FILE = GOLDEN / "wide_experts.csv"
COLUMNS = ("phase", "ranks", "tokens", "context", "copies", "kernels", "two_batch", "balanced")
COLUMNS += ("pool",)
SOURCES = {
    "open-infra": "DeepSeek, DeepSeek-V3/R1 inference system overview, 1 March 2025, "
    "https://github.com/deepseek-ai/open-infra-index",
    "profile-data": "DeepSeek, https://github.com/deepseek-ai/profile-data at ae7fc07, README",
    "lmsys-h100": "https://lmsys.org/blog/2025-05-05-large-scale-ep, Evaluation",
    "lmsys-k2": "https://lmsys.org/blog/2025-07-20-k2-large-scale-ep, without copies of prefill",
    # requests and prompt tokens of a GPU are assumed but for the 1408 requests of the second
    "lmsys-gb200-1": "https://lmsys.org/blog/2025-06-16-gb200-part-1",
    "lmsys-gb200-2": "https://lmsys.org/blog/2025-09-25-gb200-part-2",
}
# bubbles between prompts of a pool that serves; decoding pools were always full
POOL_SHARE = float(Disaggregated.of(target=Serving.of()).prefill_share)
# attention and experts of DeepSeek's own checkpoint: scales by block; BF16 cache, or
# an FP8 cache and experts in NVFP4
FORMATS = {
    "fp8": StoredFormats(FP8, FP8, FP8, 2.0, 2.0),
    "fp4": StoredFormats(FP8, NVFP4, NVFP4, 1.0, 1.0),
}
PHASES = {"prefill": "prefill", "decode": "decode"}
KERNELS = {name: name for name in ("normal", "low_latency")}
ANSWERS = {"no": 0.0, "yes": 1.0}
NODES = 4.0  # that a token's experts are on at most: DeepSeek-V3, arXiv 2412.19437, Section 3.2.2


def read(lines: list[dict[str, str | None]]) -> RowsRead:
    """The rows of a file's lines."""
    return rows_of(lines, _row)


def _row(cells: Cells) -> PooledRow:
    phase, model = lookup(PHASES, cells, "phase"), (cells.get("model") or "").strip()
    ranks, tokens, context = (number(cells, name) for name in ("ranks", "tokens", "context"))
    gained = optional_number(cells, "yield")
    prompts = phase == "prefill"
    plan = Deployment.of(
        attention_dp=ranks,
        ep=ranks,
        drafts=optional_number(cells, "drafts", low=-1.0) or 0.0,
        wide=WideExperts.of(
            kernels=lookup(KERNELS, cells, "kernels"),
            nodes=NODES if model.startswith("deepseek") else ranks,
            copies=optional_number(cells, "copies", low=-1.0) or 0.0,
            two_batch=lookup(ANSWERS, cells, "two_batch"),
        ),
    )
    work = ServingWorkload.of(
        isl=context,
        osl=1.0,
        prefix=0.0 if prompts else context - 1.0,
        batch=ranks * (tokens / context if prompts else tokens),
    )
    return PooledRow(
        id=cells.get("id") or "",
        dataset=f"wide experts {phase}",
        served=ServedModel(model, lookup(FORMATS, cells, "formats")),
        system=(cells.get("system") or "").strip(),
        engine=(cells.get("engine") or "").strip(),
        workload=work,
        plan=plan,
        measured={"throughput": number(cells, "tokens_s_per_gpu")},
        group=f"{model} {cells.get('system')} {phase}",
        mode="pass",
        balanced=lookup(ANSWERS, cells, "balanced"),
        pool_share=POOL_SHARE if lookup(ANSWERS, cells, "pool") and prompts else 1.0,
        acceptance=None if gained is None else gained - 1.0,
        date="2025",
    )
