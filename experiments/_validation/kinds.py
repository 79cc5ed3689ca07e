"""The measured files of the scoreboard: those that are fitted, and others that are only scored.

What is assumed of ML.ENERGY's rows: prompts of 300 tokens, tensor parallel where it is no
expert-parallel mixture. Of wide experts: attention data parallel on every GPU, pools never short of
work. tests/golden/README.md has their sources.

Results of benchmark clients as rows: vLLM's, SGLang's, AIPerf's, as ``calibrate`` reads them.

A file says model, engine, lengths, load and times. What it may lack: the chip, which is then the
one that its folder or its own name has (``h200_gpt_oss/``), degrees, which are then one chip's, and
formats, which are then those of the model's name. A run that drafted without saying how many is
left out, and so is one that an open loop or two pools served.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from experiments._replay.server import profile
from experiments._report import GOLDEN, SHARED
from experiments._validation import replays
from infer_jax.calibration.pooled import readers, rows
from infer_jax.calibration.pooled.readers import TableReader
from infer_jax.calibration.pooled.rows import BF16, FP8, PooledRow, StoredFormats, UnusableRowError
from infer_jax.catalog import System, list_models
from infer_jax.catalog.measurements import Run, read_runs
from infer_jax.catalog.models import model_named
from infer_jax.catalog.names import format_of
from infer_jax.errors import InputError
from infer_jax.estimators.disaggregated import Disaggregated
from infer_jax.estimators.serving import (
    ENGINES,
    GENERATIONS,
    Deployment,
    Serving,
    ServingWorkload,
    WideExperts,
)

SUFFIXES = (".json", ".jsonl")
DRAFTING = {"spec", "mtp", "eagle", "eagle3", "medusa", "ngram"}  # words of a file's name


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
    formats = _formats_of_run(model, run, system)
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


def _formats_of_run(model: str, run: Run, system: System) -> StoredFormats:
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


MEASURED = SHARED / "data" / "measured"
WIDE_EXPERTS = GOLDEN / "wide_experts.csv"
SYSTEMS = {"h100": "h100_sxm", "b200": "b200_sxm"}
MODELS = ("qwen3-30b-a3b", "qwen3-32b", "qwen3-8b", "gpt-oss-120b", "gpt-oss-20b", "deepseek-r1")
BUNDLED = {"qwen3-235b": "qwen3-235b-a22b", "deepseek-v3.1": "deepseek-v3"}
BUNDLED |= {name: name for name in MODELS}
PROMPT = 300.0  # tokens, assumed
WAVES = 10.0  # requests for each one in flight, assumed: a run is long enough for a steady state


AS_STORED = rows.StoredFormats(rows.BF16, rows.BF16, rows.BF16, 2.0, 0.0)
BLOCKS = rows.StoredFormats(rows.FP8, rows.FP8, rows.FP8, 2.0, 2.0)  # scales by block


def _formats(precision: str, system: str) -> rows.StoredFormats:
    if precision == "mxfp4":  # Hopper multiplies in 16 bits, Blackwell in 8
        return rows.gpt_oss_formats(16.0 if system == "h100_sxm" else 8.0)
    return BLOCKS if precision == "fp8" else AS_STORED


def _power_row(cells: rows.Cells) -> rows.PooledRow:
    system = rows.lookup(SYSTEMS, cells, "gpu_model")
    model = rows.lookup(BUNDLED, cells, "model")
    precision = (cells.get("weight_precision") or "").strip()
    chips, load = rows.number(cells, "num_gpus"), rows.number(cells, "avg_batch_size")
    osl = rows.number(cells, "avg_output_len")
    return rows.PooledRow(
        id=f"{model} {system} {precision} {chips:g} {load:g}",
        dataset=f"ml.energy {system.partition('_')[0]}",
        served=rows.ServedModel(model, _formats(precision, system)),
        system=system,
        engine="vllm",
        workload=ServingWorkload.of(isl=PROMPT, osl=osl, batch=load, waves=WAVES),
        plan=Deployment.of(tp=chips, ep=rows.number(cells, "expert_parallel")),
        measured={
            "tpot": rows.number(cells, "median_itl_ms") / 1e3,
            "power": rows.number(cells, "avg_power_watts") / chips,
        },
        group=f"{model} {system} {precision} {chips:g}",
        date="2025-12",
    )


# bubbles between prompts of a pool that serves; decoding pools were always full
POOL_SHARE = float(Disaggregated.of(target=Serving.of()).prefill_share)
# attention and experts of DeepSeek's own checkpoint, or a cache in FP8 and experts in NVFP4
FORMATS = {"fp8": BLOCKS, "fp4": rows.StoredFormats(rows.FP8, rows.NVFP4, rows.NVFP4, 1.0, 1.0)}
PHASES = {"prefill": "prefill", "decode": "decode"}
KERNELS = {name: name for name in ("normal", "low_latency")}
ANSWERS = {"no": 0.0, "yes": 1.0}
NODES = 4.0  # that a token's experts are on at most: DeepSeek-V3, arXiv 2412.19437, Section 3.2.2


def _node_row(cells: rows.Cells) -> rows.PooledRow:
    phase, model = rows.lookup(PHASES, cells, "phase"), (cells.get("model") or "").strip()
    ranks, tokens, context = (rows.number(cells, name) for name in ("ranks", "tokens", "context"))
    gained = rows.optional_number(cells, "yield")
    prompts = phase == "prefill"
    plan = Deployment.of(
        attention_dp=ranks,
        ep=ranks,
        drafts=rows.optional_number(cells, "drafts", low=-1.0) or 0.0,
        wide=WideExperts.of(
            kernels=rows.lookup(KERNELS, cells, "kernels"),
            nodes=NODES if model.startswith("deepseek") else ranks,
            copies=rows.optional_number(cells, "copies", low=-1.0) or 0.0,
            two_batch=rows.lookup(ANSWERS, cells, "two_batch"),
        ),
    )
    work = ServingWorkload.of(
        isl=context,
        osl=1.0,
        prefix=0.0 if prompts else context - 1.0,
        batch=ranks * (tokens / context if prompts else tokens),
    )
    return rows.PooledRow(
        id=cells.get("id") or "",
        dataset=f"wide experts {phase}",
        served=rows.ServedModel(model, rows.lookup(FORMATS, cells, "formats")),
        system=(cells.get("system") or "").strip(),
        engine=(cells.get("engine") or "").strip(),
        workload=work,
        plan=plan,
        measured={"throughput": rows.number(cells, "tokens_s_per_gpu")},
        group=f"{model} {cells.get('system')} {phase}",
        mode="pass",
        balanced=rows.lookup(ANSWERS, cells, "balanced"),
        pool_share=POOL_SHARE if rows.lookup(ANSWERS, cells, "pool") and prompts else 1.0,
        acceptance=None if gained is None else gained - 1.0,
        date="2025",
    )


# local runs, of AlexsJones/llmfit (@3f44fd3), crowd-sourced: one request at a time
LOCAL = {"vllm": "vllm"}  # engines; llama.cpp and those that start it are not modelled here
# 4 bits and a scale of 16 bits for each 128, multiplied in 16
INT4 = rows.StoredFormats((0.516, 16.0), (0.516, 16.0), rows.BF16, 2.0, 0.0)
LOCAL_FORMATS = {
    "BF16": AS_STORED,
    "FP8": rows.StoredFormats(rows.FP8, rows.FP8, rows.FP8, 2.0, 0.0),
    **dict.fromkeys(("AWQ", "GPTQ", "INT4"), INT4),
}


def _local_row(cells: rows.Cells) -> rows.PooledRow:
    """One request at a time on a machine of one's own."""
    engine = rows.lookup(LOCAL, cells, "engine")
    try:
        system = profile(rows.text(cells, "gpu")).name
    except ValueError:
        raise rows.UnusableRowError(f"gpu {rows.text(cells, 'gpu')!r} has no profile") from None
    model = model_named(rows.text(cells, "model")) or ""
    if model not in list_models():
        raise rows.UnusableRowError("a model of a local run that is not bundled")
    if rows.number(cells, "batch") != 1.0 or rows.text(cells, "drafts") != "False":
        raise rows.UnusableRowError("drafts, or several requests at a time")
    word = rows.text(cells, "quantisation").upper()
    formats = rows.lookup(LOCAL_FORMATS, {"quantisation": word}, "quantisation")
    lengths = {"isl": rows.number(cells, "prompt"), "osl": rows.number(cells, "output")}
    return rows.PooledRow(
        id=cells.get("id") or "",
        dataset="local runs",
        served=rows.ServedModel(model, formats),
        system=system,
        engine=engine,
        workload=ServingWorkload.of(**lengths, batch=1.0),
        plan=Deployment.of(tp=rows.number(cells, "gpus")),
        measured={"tpot": 1.0 / rows.number(cells, "out_tok_s")},
        group=f"{model} {system} {engine} {word}",
        date=rows.text(cells, "created")[:10],
    )


COLUMNS = {
    "local runs": "quantisation engine hw_class gpu gpus prompt output out_tok_s",
    "ML.ENERGY": "gpu_model weight_precision num_gpus avg_batch_size avg_power_watts",
    "wide experts": "phase ranks tokens context copies kernels two_batch balanced pool",
}
TABLES = (
    *readers.TABLES,
    TableReader("rates on H100", replays.COLUMNS, replays.read_rates),
    *(TableReader.of(name, tuple(COLUMNS[name].split()), row)
      for name, row in zip(COLUMNS, (_local_row, _power_row, _node_row), strict=True)),
)  # fmt: skip


def read(path: Path) -> rows.RowsRead:
    """The rows of a table, of a benchmark client's result, or of the requests of one server.

    Raises:
        InputError: unreadable, or of no kind in ``TABLES``.
    """
    if not path.is_dir():
        if path.suffix in SUFFIXES:
            return rows.rows_of(read_runs(path), _row)
        return readers.read(path, TABLES)
    if not (path / replays.FILE).is_file():
        allowed = f"a folder with {replays.FILE}, config.json and requests.jsonl"
        raise InputError(str(path), "folder", "no measured server", allowed)
    return replays.read_requests(path)


def sources(folder: Path = MEASURED) -> dict[str, Callable[[], rows.RowsRead]]:
    """By name, readers of all that is beside the checkout and of aiconfigurator-core's rows."""
    found = readers.sources(folder, TABLES)
    others = [path.parent for path in folder.glob(f"*/*/{replays.FILE}")]
    others += [path for suffix in SUFFIXES for path in folder.glob(f"*/*{suffix}")]
    found |= {str(path.relative_to(folder)): partial(read, path) for path in sorted(others)}
    return found | {WIDE_EXPERTS.name: partial(read, WIDE_EXPERTS)}
