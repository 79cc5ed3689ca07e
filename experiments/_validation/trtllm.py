"""TensorRT-LLM's own tables of maximum throughput: all requests at once, of equal lengths.

Columns as transcribed from NVIDIA/TensorRT-LLM docs/source/performance/perf-overview.md
(@00f3768). trtllm-bench runs an engine with room for 0.90 to 0.95 of the free memory and batches
up to 8192. A mixture shown on several GPUs as TP ran attention data parallel (``dep`` in the
transcription, which has TP on RTX PRO 6000 and of Llama 4 Scout), by the options that the page
prints for mixtures: so read, predictions spread by 9 % within a server, as TP by 15.
"""

import re

from experiments._validation.row import (
    BF16,
    BLOCKS,
    FP8,
    NVFP4,
    Cells,
    Formats,
    Read,
    Row,
    Served,
    UnusableError,
    bundled,
    known,
    mixture,
    number,
    rows_of,
)
from infer_jax.catalog import list_models
from infer_jax.estimators.serving import Deployment, ServingWorkload

COLUMNS = ("model", "system", "shown_layout", "gpus", "weights", "requests", "output_tok_s_per_gpu")
SYSTEMS = {
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "gb200": "gb200_nvl72",
    "rtx": "rtx_pro_6000",
}


def read(lines: list[dict[str, str | None]]) -> Read:
    """The rows of a file's lines."""
    return rows_of(lines, _row)


def formats(model: str, weights: str) -> Formats:
    """NVIDIA's checkpoints: scales per tensor in FP8, NVFP4 without the attention of mixtures."""
    if weights == "fp8":
        return Formats(FP8, FP8, FP8, 1.0, 0.0)
    if weights != "fp4":
        raise UnusableError(f"weights {weights!r} are not known here")
    if mixture(model):
        return Formats(BF16, NVFP4, NVFP4, 1.0, 1.0)
    return Formats(NVFP4, NVFP4, NVFP4, 1.0, 2.0)


def model_of(cells: Cells) -> str:
    """The bundled model in a cell.

    Raises:
        UnusableError: a model that is not bundled, or has more kinds of layers than are stacked.
    """
    model = (cells.get("model") or "").strip()
    if model not in list_models():
        raise UnusableError(f"model {model!r} is not bundled" if model else "model is missing")
    if len(bundled(model).blocks) > BLOCKS:
        raise UnusableError(f"model {model!r} has more than {BLOCKS} kinds of layers")
    return model


def layout(shown: str, gpus: float, wide: bool = False) -> Deployment:
    """The plan of a layout such as ``tp4pp2`` or ``dep8``; ``wide``: tp as attention groups.

    Raises:
        UnusableError: another spelling, or degrees that are not the GPUs.
    """
    found = re.fullmatch(r"(?:tp(\d+)(?:pp(\d+))?|dep(\d+))", shown)
    if found is None:
        raise UnusableError(f"shown_layout {shown!r} is not known here")
    tp, pp, groups = (float(x or 1.0) for x in found.groups())
    if tp * pp * groups != gpus:
        raise UnusableError("shown_layout and gpus differ")
    if wide:
        tp, groups = 1.0, tp * groups
    return Deployment.of(tp=tp, pp=pp, attention_dp=groups, ep=groups)


def _row(cells: Cells) -> Row:
    model = model_of(cells)
    system = known(SYSTEMS, cells, "system")
    weights = (cells.get("weights") or "").strip()
    gpus = number(cells, "gpus")
    work = ServingWorkload.of(
        isl=number(cells, "isl"),
        osl=number(cells, "osl"),
        batch=number(cells, "requests"),
        fixed=1.0,
        waves=1.0,
    )
    return Row(
        id=" ".join(str(cells.get(k)) for k in ("model", "system", "shown_layout", "isl", "osl")),
        dataset="trtllm max throughput",
        served=Served(model, formats(model, weights)),
        system=system,
        engine="trtllm",
        work=work,
        plan=layout((cells.get("shown_layout") or "").strip(), gpus, mixture(model)),
        measured={"throughput": number(cells, "output_tok_s_per_gpu")},
        group=f"{model} {system} {cells.get('shown_layout')}",
        date="2025-09",
    )
