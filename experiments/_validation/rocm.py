"""AMD's own tables of vLLM on MI300X: offline throughput, and the latency of one batch.

Columns as transcribed from ROCm/vllm docs/dev-docker/README.md (@040de12): FP8 checkpoints by
Quark with a scale a tensor. Throughput: all prompts at once, ``--max-num-seqs`` as many, 8-bit
cache; in output tokens a second of all GPUs. Latency: one batch from start to end, 16-bit cache.
"""

from experiments._validation.row import (
    FP8,
    Cells,
    Formats,
    Read,
    Row,
    Served,
    UnusableError,
    number,
    rows_of,
)
from experiments._validation.trtllm import model_of
from infer_jax.estimators.serving import Deployment, ServingWorkload

COLUMNS = ("kind", "model", "tp", "batch", "isl", "osl", "value")


def read(lines: list[dict[str, str | None]]) -> Read:
    """The rows of a file's lines."""
    return rows_of(lines, _row)


def _row(cells: Cells) -> Row:
    kind = (cells.get("kind") or "").strip()
    if kind not in ("thr", "lat"):
        raise UnusableError(f"kind {kind!r} is neither thr nor lat")
    model, tp, value = model_of(cells), number(cells, "tp"), number(cells, "value")
    whole = kind == "thr"
    formats = Formats(FP8, FP8, FP8, 1.0 if whole else 2.0, 0.0)
    work = ServingWorkload.of(
        isl=number(cells, "isl"),
        osl=number(cells, "osl"),
        batch=number(cells, "batch"),
        fixed=1.0,
        waves=1.0,
    )
    return Row(
        id=" ".join(str(cells.get(k)) for k in COLUMNS[:-1]),
        dataset="rocm vllm throughput" if whole else "rocm vllm latency",
        served=Served(model, formats),
        system="mi300x",
        engine="vllm",
        work=work,
        plan=Deployment.of(tp=tp),
        measured={"throughput": value / tp} if whole else {"latency": value},
        group=f"{model} mi300x vllm {kind}",
        asked="loop" if whole else "batch",
        date="2025-08",
    )
