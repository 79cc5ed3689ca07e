"""MLPerf Inference, closed division, datacenter: tokens a second of whole systems, offline.

Columns as in the summaries of mlcommons/inference_results_v5.1 (@965182b). Only ``Offline`` is an
answer of one number: the other scenarios are found by searching for the rate at which percentiles
of latency are kept. Layouts are not in the summaries: taken is the smallest power of two of chips
of which the weights fill at most half. Prompts are those of the data sets; outputs are
TOKENS_PER_SAMPLE.
"""

import re

from experiments._validation.row import (
    FP8,
    NVFP4,
    Cells,
    Formats,
    Read,
    Row,
    Served,
    UnusableError,
    known,
    mixture,
    number,
    rows_of,
    system,
)
from infer_jax.estimators.serving import Deployment, ServingWorkload
from infer_jax.physics import decoder

COLUMNS = ("submitter", "model", "scenario", "accelerator", "accelerators", "weights", "result")
# mean tokens of a prompt: mlcommons.org/2025/04/llm-inference-v5 (405B), /2025/09/small-llm-
# inference-5-1 (8B: CNN/DailyMail, outputs of at most 128), /2025/09/deepseek-inference-5-1; of
# OpenOrca's no mean is printed there, and as many as the reference's outputs are assumed
PROMPTS = {
    "llama2-70b-99": ("llama-2-70b", 294.0),
    "llama2-70b-99.9": ("llama-2-70b", 294.0),
    "llama3.1-405b": ("llama-3.1-405b", 9400.0),
    "llama3.1-8b": ("llama-3.1-8b", 778.0),
    "deepseek-r1": ("deepseek-r1", 800.0),
}
OUTPUT = {"llama3.1-8b": 128.0}  # where the accuracy is in characters
SYSTEMS = {
    "NVIDIA B200-SXM-180GB": "b200_sxm",
    "NVIDIA H200-SXM-141GB": "h200_sxm",
    "Virtualized NVIDIA H200-SXM-141GB": "h200_sxm",
    "NVIDIA H100-SXM-80GB": "h100_sxm",
    "AMD Instinct MI300X 192GB HBM3": "mi300x",
    "AMD Instinct MI325X 256GB HBM3e": "mi325x",
    "AMD Instinct MI355X 288GB HBM3e": "mi355x",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx_pro_6000",
    "NVIDIA L40S": "l40s",
}
FORMATS = {"fp8": Formats(FP8, FP8, FP8, 1.0, 0.0), "fp4": Formats(NVFP4, NVFP4, NVFP4, 1.0, 2.0)}
SEQUENCES = 2048.0  # that a server runs at once at most
WAVES = 8.0  # of prompts that wait beside those that run: a run of ten minutes has no start or end
MOST = 0.5  # of a chip's memory that weights fill


def read(lines: list[dict[str, str | None]]) -> Read:
    """The rows of a file's lines."""
    return rows_of(lines, _row)


def output_tokens(cells: Cells, model: str) -> float:
    """Mean output tokens: TOKENS_PER_SAMPLE of the accuracy run.

    Raises:
        UnusableError: none given.
    """
    found = re.search(r"TOKENS_PER_SAMPLE: *([0-9.]+)", cells.get("accuracy") or "")
    value = float(found[1]) if found else OUTPUT.get(model)
    if not value:
        raise UnusableError("TOKENS_PER_SAMPLE is missing")
    return value


def ranks(served: Served, name: str, chips: float) -> Deployment:
    """The plan that is assumed: few tensor ranks, and a mixture wide over all chips.

    Raises:
        UnusableError: weights that the chips do not hold.
    """
    if mixture(served.model):
        return Deployment.of(attention_dp=chips, ep=chips, max_sequences=SEQUENCES)
    memory = float(system(name).hardware.chip.memory)
    weights = sum(map(float, decoder.weight_bytes(served.architecture()).values()))
    tp = 1.0
    while weights / tp > MOST * memory and tp < chips:
        tp *= 2.0
    if weights / tp > MOST * memory or chips % tp:
        raise UnusableError("weights fill more than half of the memory")
    return Deployment.of(tp=tp, max_sequences=SEQUENCES)


def _row(cells: Cells) -> Row:
    scenario = (cells.get("scenario") or "").strip()
    if scenario != "Offline":
        raise UnusableError(
            f"scenario {scenario or 'missing'}: found by a search under limits on latency"
        )
    name = (cells.get("model") or "").strip()
    model, isl = known(PROMPTS, cells, "model")
    profile = known(SYSTEMS, cells, "accelerator")
    formats = known(FORMATS, cells, "weights")
    if mixture(model) and formats.dynamic:
        formats = Formats((1.6, 16.0), NVFP4, NVFP4, 1.0, 1.0)
    chips, nodes = number(cells, "accelerators"), number(cells, "nodes")
    engine = "vllm" if "vllm" in (cells.get("software") or "").lower() else "trtllm"
    make = "amd" if profile.startswith("mi") else "nvidia"
    if make == "amd":
        engine = "vllm"
    served = Served(model, formats)
    plan = ranks(served, profile, chips)
    batch = WAVES * SEQUENCES * float(plan.attention_dp)
    return Row(
        id=f"{cells.get('id')} {name}",
        dataset=f"mlperf offline {make}",
        served=served,
        system=profile,
        engine=engine,
        work=ServingWorkload.of(isl=isl, osl=output_tokens(cells, name), batch=batch),
        plan=plan,
        measured={"throughput": number(cells, "result") / (chips * nodes)},
        group=f"{model} {profile} {engine} {cells.get('weights')}",
        date="2025-09",
    )
