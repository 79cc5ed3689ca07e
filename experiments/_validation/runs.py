"""Results of benchmark clients as rows: vLLM's, SGLang's, AIPerf's, as ``calibrate`` reads them.

A file says model, engine, lengths, load and times. What it may lack: the chip, which is then the
one that its folder or its own name has (``h200_gpt_oss/``), degrees, which are then one chip's, and
formats, which are then those of the model's name. A run that drafted without saying how many is
left out, and so is one that an open loop or two pools served.
"""

import re
from pathlib import Path

from experiments._replay.server import profile
from infer_jax.calibration.pooled import rows
from infer_jax.calibration.pooled.rows import BF16, FP8, PooledRow, StoredFormats, UnusableRowError
from infer_jax.catalog import System, list_models
from infer_jax.catalog.measurements import Run, read_runs
from infer_jax.catalog.models import model_named
from infer_jax.catalog.names import format_of
from infer_jax.estimators.serving import ENGINES, GENERATIONS, Deployment, ServingWorkload

SUFFIXES = (".json", ".jsonl")
DRAFTING = {"spec", "mtp", "eagle", "eagle3", "medusa", "ngram"}  # words of a file's name


def read(path: Path) -> rows.RowsRead:
    """The closed loops of a file.

    Raises:
        InputError: a file that no client wrote, or a malformed value.
    """
    return rows.rows_of(read_runs(path), _row)


def _row(run: Run) -> PooledRow:
    if run.loop != "closed" or not run.isl or not run.osl:
        raise UnusableRowError("no closed loop of known lengths")
    words = re.split(r"[^a-z0-9]+", " ".join(Path(run.file).parts[-2:]).casefold())
    if run.pools or run.speculation or DRAFTING & set(words):
        raise UnusableRowError("two pools, or drafts whose number is not said")
    model = model_named(run.model)
    if model not in list_models():
        raise UnusableRowError(f"model {run.model!r} is not bundled")
    if run.engine not in ENGINES:
        raise UnusableRowError(f"engine {run.engine!r} is not known here")
    system = _system(run, words)
    degrees = {"tp": run.tp, "pp": run.pp, "attention_dp": run.dp, "ep": run.ep}
    plan = Deployment.of(**{name: x or 1.0 for name, x in degrees.items()})
    load, completed = run.concurrency or 1.0, run.completed or 0.0
    waves = max(completed / load, 1.0)
    formats = _formats(model, run, system)
    return PooledRow(
        id=run.place,
        dataset="benchmark files",
        served=rows.ServedModel(model, formats),
        system=system.name,
        engine=run.engine,
        workload=ServingWorkload.of(isl=run.isl, osl=run.osl, batch=load, waves=waves),
        plan=plan,
        measured=_measured(run, float(plan.instance)),
        group=f"{model} {system.name} {run.engine} {run.version or ''}".strip(),
        date=(run.date or "")[:10],
    )


def _system(run: Run, words: list[str]) -> System:
    """The chip that a run says, or the one word of its path that means one."""
    for name in [run.system] if run.system else words:
        try:
            return profile(name)
        except ValueError:
            continue
    raise UnusableRowError("the chip is not said, or has no profile")


def _formats(model: str, run: Run, system: System) -> StoredFormats:
    named = run.precision or format_of(run.model or "") or "bf16"
    if model.startswith("gpt-oss"):
        own = system.coefficients.get("serving", {}).get("generation", 0.0)
        return rows.gpt_oss_formats(8.0 if GENERATIONS[int(own)] == "blackwell" else 16.0)
    if named in ("fp4", "nvfp4"):
        return rows.nvfp4_formats(model)
    if named in ("fp8", "fp8_block"):
        dynamic = 2.0 if rows.is_mixture(model) or named == "fp8_block" else 0.0
        return StoredFormats(FP8, FP8, FP8, 2.0, dynamic)
    if named in ("bf16", "fp16", "bfloat16", "float16"):
        return StoredFormats(BF16, BF16, BF16, 2.0, 0.0)
    raise UnusableRowError(f"precision {named!r} is not known here")


def _measured(run: Run, chips: float) -> dict[str, float]:
    """Means where a file has them, else medians; throughput per chip."""
    found = {"tpot": run.tpot.typical, "ttft": run.ttft.typical, "e2e": run.e2el.typical}
    found |= {"ttft_mean": run.ttft.mean, "ttft_median": run.ttft.at(50.0), "power": run.power}
    found["throughput"] = run.output_throughput and run.output_throughput / chips
    if not found["tpot"]:
        raise UnusableRowError("TPOT is missing")
    return {name: float(x) for name, x in found.items() if x}
