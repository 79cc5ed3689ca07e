"""ML.ENERGY: power of H100 and B200 under vLLM in a steady state, long outputs.

``tests/golden/ml_energy_power.csv`` has rows of GPQA with models that are bundled, transcribed to
four digits from ml-energy/leaderboard, public/data/tasks/gpqa.json at 0ea52b6 (The ML.ENERGY
Benchmark v3.0, December 2025; Chung et al. 2026, arXiv 2601.22076). Power is that of all GPUs.
Prompts are questions of GPQA, whose lengths are not published: 300 tokens are assumed, beside 1,600
to 11,900 of output. What is no expert-parallel mixture is tensor parallel.
"""

from infer_jax.calibration.pooled.rows import (
    BF16,
    FP8,
    Cells,
    PooledRow,
    RowsRead,
    ServedModel,
    StoredFormats,
    lookup,
    number,
    rows_of,
)
from infer_jax.estimators.serving import Deployment, ServingWorkload

COLUMNS = ("gpu_model", "weight_precision", "num_gpus", "avg_batch_size", "avg_power_watts")
SYSTEMS = {"h100": "h100_sxm", "b200": "b200_sxm"}
MODELS = {
    "qwen3-235b": "qwen3-235b-a22b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-32b": "qwen3-32b",
    "qwen3-8b": "qwen3-8b",
    "gpt-oss-120b": "gpt-oss-120b",
    "gpt-oss-20b": "gpt-oss-20b",
    "deepseek-r1": "deepseek-r1",
    "deepseek-v3.1": "deepseek-v3",
}
PROMPT = 300.0  # tokens, assumed
WAVES = 10.0  # requests for each one in flight, assumed: a run is long enough for a steady state


def read(lines: list[dict[str, str | None]]) -> RowsRead:
    """The rows of a file's lines."""
    return rows_of(lines, _row)


def _formats(precision: str, system: str) -> StoredFormats:
    if precision == "fp8":
        return StoredFormats(FP8, FP8, FP8, 2.0, 2.0)
    if precision == "mxfp4":  # Hopper multiplies in 16 bits, Blackwell in 8
        return StoredFormats(BF16, (0.53, 16.0 if system == "h100_sxm" else 8.0), BF16, 2.0, 0.0)
    return StoredFormats(BF16, BF16, BF16, 2.0, 0.0)


def _row(cells: Cells) -> PooledRow:
    system = lookup(SYSTEMS, cells, "gpu_model")
    model = lookup(MODELS, cells, "model")
    precision = (cells.get("weight_precision") or "").strip()
    chips, load = number(cells, "num_gpus"), number(cells, "avg_batch_size")
    osl = number(cells, "avg_output_len")
    return PooledRow(
        id=f"{model} {system} {precision} {chips:g} {load:g}",
        dataset=f"ml.energy {system.partition('_')[0]}",
        served=ServedModel(model, _formats(precision, system)),
        system=system,
        engine="vllm",
        workload=ServingWorkload.of(isl=PROMPT, osl=osl, batch=load, waves=WAVES),
        plan=Deployment.of(tp=chips, ep=number(cells, "expert_parallel")),
        measured={
            "tpot": number(cells, "median_itl_ms") / 1e3,
            "power": number(cells, "avg_power_watts") / chips,
        },
        group=f"{model} {system} {precision} {chips:g}",
        date="2025-12",
    )
