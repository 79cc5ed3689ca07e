"""Tables of runs that send all requests at once: TensorRT-LLM's, ROCm's and MLPerf's.

TensorRT-LLM: NVIDIA/TensorRT-LLM docs/source/performance/perf-overview.md (@00f3768), maximum
throughput at equal lengths. trtllm-bench runs an engine with room for 0.90 to 0.95 of the free
memory and batches up to 8192. A mixture shown on several GPUs as TP ran attention data parallel
(``dep`` in the transcription, which has TP on RTX PRO 6000 and of Llama 4 Scout), by the options
that the page prints for mixtures: read so, predictions spread by 9 % within a server, as TP by 15.

gpt-oss is MXFP4 under any label, and multiplied in 16 bits on Hopper, 8 on Blackwell.

ROCm: docs/dev-docker/README.md of ROCm/vllm (@040de12), MI300X (another chip: ``system``), FP8
checkpoints by Quark with a scale a tensor. Throughput: all prompts at once, ``--max-num-seqs`` as
many, 8-bit cache; in output tokens a second of all GPUs. Latency: one batch from start to end,
16-bit cache.

MLPerf Inference, closed division, datacenter: summaries of mlcommons/inference_results_v5.1
(@965182b). Only ``Offline`` is an answer of one number: the other scenarios search for the rate at
which percentiles of latency hold. Layouts are not in the summaries: assumed is the smallest power
of two of chips of which the weights fill at most half, and a mixture that one chip does not hold so
is wide over all. Prompts are those of the data sets; outputs are TOKENS_PER_SAMPLE. A run that was
handed in at two accuracies is one run, the first.
"""

import re

from infer_jax.calibration.pooled.rows import (
    AMD,
    BLOCKS,
    FP8,
    Cells,
    PooledRow,
    RowsRead,
    ServedModel,
    StoredFormats,
    UnusableRowError,
    architecture_named,
    gpt_oss_formats,
    is_mixture,
    lookup,
    number,
    nvfp4_formats,
    rows_of,
    system_named,
    text,
)
from infer_jax.catalog import list_models
from infer_jax.estimators.serving import Deployment, ServingWorkload
from infer_jax.physics import decoder

Lines = list[dict[str, str | None]]
PER_TENSOR = StoredFormats(FP8, FP8, FP8, 1.0, 0.0)

TRTLLM_COLUMNS = ("model", "system", "shown_layout", "gpus", "weights", "requests")
TRTLLM_COLUMNS += ("output_tok_s_per_gpu",)
TRTLLM_SYSTEMS = {
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "gb200": "gb200_nvl72",
    "rtx": "rtx_pro_6000",
}
ROCM_COLUMNS = ("kind", "model", "tp", "batch", "isl", "osl", "value")
ROCM_SYSTEMS = {"": "mi300x", **{name: name for name in AMD}}
MLPERF_COLUMNS = ("submitter", "model", "scenario", "accelerator", "accelerators", "weights")
MLPERF_COLUMNS += ("result",)
# mean tokens of a prompt: mlcommons.org/2025/04/llm-inference-v5 (405B), /2025/09/small-llm-
# inference-5-1 (8B: CNN/DailyMail, outputs of at most 128), /2025/09/deepseek-inference-5-1; of
# OpenOrca's no mean is printed there, and as many as the reference's outputs are assumed; a third
# of Mixtral's are OpenOrca's, and the others, of which no mean is printed either, count as long
PROMPTS = {
    "llama2-70b-99": ("llama-2-70b", 294.0),
    "llama2-70b-99.9": ("llama-2-70b", 294.0),
    "llama3.1-405b": ("llama-3.1-405b", 9400.0),
    "llama3.1-8b": ("llama-3.1-8b", 778.0),
    "deepseek-r1": ("deepseek-r1", 800.0),
    "mixtral-8x7b": ("mixtral-8x7b", 294.0),
}
OUTPUT = {"llama3.1-8b": 128.0}  # where the accuracy is in characters
MLPERF_SYSTEMS = {
    "NVIDIA B200-SXM-180GB": "b200_sxm",
    "NVIDIA H200-SXM-141GB": "h200_sxm",
    "Virtualized NVIDIA H200-SXM-141GB": "h200_sxm",
    "NVIDIA H100-SXM-80GB": "h100_sxm",
    "AMD Instinct MI300X 192GB HBM3": "mi300x",
    "AMD Instinct MI325X 256GB HBM3e": "mi325x",
    "AMD Instinct MI355X 288GB HBM3e": "mi355x",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx_pro_6000",
    "NVIDIA L40S": "l40s",
    "NVIDIA GB200": "gb200_nvl72",
    "NVIDIA GB300": "gb300_nvl72",
}
HOPPER = ("h100_sxm", "h200_sxm")
SEQUENCES = 2048.0  # that a server runs at once at most
WAVES = 8.0  # of prompts that wait beside those that run: a run of ten minutes has no start or end
MAX_WEIGHTS = 0.5  # of a chip's memory, which weights fill at most


def read_mlperf(lines: Lines) -> RowsRead:
    """MLPerf's offline rows, each run once."""
    seen: set[tuple[str, str]] = set()

    def row(cells: Cells) -> PooledRow:
        one = _mlperf(cells)
        if (run := (text(cells, "id"), one.model)) in seen:
            raise UnusableRowError("a run that was handed in at another accuracy, too")
        seen.add(run)
        return one

    return rows_of(lines, row)


def _model(cells: Cells) -> str:
    """The bundled model in a cell, of at most as many kinds of layers as are stacked."""
    model = text(cells, "model")
    if model not in list_models():
        raise UnusableRowError(f"model {model!r} is not bundled" if model else "model is missing")
    if len(architecture_named(model).blocks) > BLOCKS:
        raise UnusableRowError(f"model {model!r} has more than {BLOCKS} kinds of layers")
    return model


def _at_once(cells: Cells, requests: str) -> ServingWorkload:
    """All requests at once, of equal lengths."""
    lengths = {"isl": number(cells, "isl"), "osl": number(cells, "osl")}
    return ServingWorkload.of(**lengths, batch=number(cells, requests), fixed=1.0, waves=1.0)


def trtllm(cells: Cells) -> PooledRow:
    """A row of TensorRT-LLM's maximum throughput."""
    model = _model(cells)
    system = lookup(TRTLLM_SYSTEMS, cells, "system")
    weights, shown = text(cells, "weights"), text(cells, "shown_layout")
    formats = _formats(model, system, weights)
    return PooledRow(
        id=" ".join(str(cells.get(k)) for k in ("model", "system", "shown_layout", "isl", "osl")),
        dataset="trtllm max throughput",
        served=ServedModel(model, formats),
        system=system,
        engine="trtllm",
        workload=_at_once(cells, "requests"),
        plan=_layout(shown, number(cells, "gpus"), is_mixture(model)),
        measured={"throughput": number(cells, "output_tok_s_per_gpu")},
        group=f"{model} {system} {cells.get('shown_layout')}",
        date="2025-09",
    )


def _formats(model: str, system: str, weights: str) -> StoredFormats:
    """Formats of a checkpoint by its label; of gpt-oss, which is MXFP4 under any, by the chip."""
    if weights not in ("fp8", "fp4", "mx"):
        raise UnusableRowError(f"weights {weights!r} are not known here")
    if model.startswith("gpt-oss"):
        return gpt_oss_formats(16.0 if system in HOPPER else 8.0)
    if weights == "mx":
        raise UnusableRowError("weights in MXFP4 of a model whose other formats are not said")
    return PER_TENSOR if weights == "fp8" else nvfp4_formats(model)


def _layout(shown: str, gpus: float, mixture: bool) -> Deployment:
    """The plan of a layout such as ``tp4pp2`` or ``dep8``; tp of a mixture as attention groups."""
    match = re.fullmatch(r"(?:tp(\d+)(?:pp(\d+))?|dep(\d+))", shown)
    if match is None:
        raise UnusableRowError(f"shown_layout {shown!r} is not known here")
    tp, pp, groups = (float(x or 1.0) for x in match.groups())
    if tp * pp * groups != gpus:
        raise UnusableRowError("shown_layout and gpus differ")
    if mixture:
        tp, groups = 1.0, tp * groups
    return Deployment.of(tp=tp, pp=pp, attention_dp=groups, ep=groups)


def rocm(cells: Cells) -> PooledRow:
    """A row of ROCm's throughput, or of the latency of a batch."""
    kind = text(cells, "kind")
    if kind not in ("thr", "lat"):
        raise UnusableRowError(f"kind {kind!r} is neither thr nor lat")
    model, tp, value = _model(cells), number(cells, "tp"), number(cells, "value")
    system = lookup(ROCM_SYSTEMS, cells, "system")
    if text(cells, "weights") not in ("", "fp8"):
        raise UnusableRowError("weights are not FP8")
    loop = kind == "thr"
    return PooledRow(
        id=" ".join(str(cells.get(k)) for k in ROCM_COLUMNS[:-1]),
        dataset="rocm vllm throughput" if loop else "rocm vllm latency",
        served=ServedModel(model, PER_TENSOR._replace(cache=1.0 if loop else 2.0)),
        system=system,
        engine="vllm",
        workload=_at_once(cells, "batch"),
        plan=Deployment.of(tp=tp),
        measured={"throughput": value / tp} if loop else {"latency": value},
        group=f"{model} {system} vllm {kind}",
        mode="loop" if loop else "batch",
        date="2025-08",
    )


def _mlperf(cells: Cells) -> PooledRow:
    scenario = text(cells, "scenario") or "missing"
    if scenario != "Offline":
        raise UnusableRowError(f"scenario {scenario}: found by a search under limits on latency")
    name = text(cells, "model")
    model, isl = lookup(PROMPTS, cells, "model")
    system = lookup(MLPERF_SYSTEMS, cells, "accelerator")
    formats = _formats(model, system, text(cells, "weights"))
    chips, nodes = number(cells, "accelerators"), number(cells, "nodes")
    make = "amd" if system.startswith("mi") else "nvidia"
    software = text(cells, "software").lower()
    engine = "vllm" if make == "amd" or "vllm" in software else "trtllm"
    if engine == "trtllm" and "tensorrt" not in software:
        raise UnusableRowError("software is neither vLLM nor TensorRT")
    served = ServedModel(model, formats)
    plan = _assumed_plan(served, system, chips)
    batch = WAVES * SEQUENCES * float(plan.attention_dp)
    return PooledRow(
        id=f"{cells.get('id')} {name}",
        dataset=f"mlperf offline {make}",
        served=served,
        system=system,
        engine=engine,
        workload=ServingWorkload.of(isl=isl, osl=_output_tokens(cells, name), batch=batch),
        plan=plan,
        measured={"throughput": number(cells, "result") / (chips * nodes)},
        group=f"{model} {system} {engine} {cells.get('weights')}",
        date="2025-09",
    )


def _output_tokens(cells: Cells, model: str) -> float:
    """Mean output tokens: TOKENS_PER_SAMPLE of the accuracy run."""
    match = re.search(r"TOKENS_PER_SAMPLE: *([0-9.]+)", cells.get("accuracy") or "")
    value = float(match[1]) if match else OUTPUT.get(model)
    if not value:
        raise UnusableRowError("TOKENS_PER_SAMPLE is missing")
    return value


def _assumed_plan(served: ServedModel, system: str, chips: float) -> Deployment:
    """Few tensor ranks, and a mixture that is larger than one chip holds wide over all."""
    memory = float(system_named(system).hardware.chip.memory)
    weights = sum(map(float, decoder.weight_bytes(served.architecture()).values()))
    if is_mixture(served.model) and weights > MAX_WEIGHTS * memory:
        return Deployment.of(attention_dp=chips, ep=chips, max_sequences=SEQUENCES)
    tp = 1.0
    while weights / tp > MAX_WEIGHTS * memory and tp < chips:
        tp *= 2.0
    if weights / tp > MAX_WEIGHTS * memory or chips % tp:
        raise UnusableRowError("weights fill more than half of the memory")
    return Deployment.of(tp=tp, max_sequences=SEQUENCES)
