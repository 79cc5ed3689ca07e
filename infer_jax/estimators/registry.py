"""Estimators and variants by the names that commands and files use."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from infer_jax.errors import InputError
from infer_jax.estimators.economics import Economics
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.offloading import Offloading
from infer_jax.estimators.partitioning import Partitioning
from infer_jax.estimators.serving import ENGINES, Serving


class Variant(NamedTuple):
    """A named way to make an estimator."""

    make: Callable[[], Estimator]
    summary: str
    source: str


ERDIL = "Erdil 2025, arXiv 2506.04645"
SHENG = "Sheng et al. 2023 (FlexGen), arXiv 2303.06865"
ALIBABA = "Alibaba 2025 (InferSim), github.com/alibaba/InferSim"
POPE = "Pope et al. 2022, arXiv 2211.05102"
MEASURED = "fitted to 2,762 measured rows, docs/theories/serving.md"

VARIANTS: dict[str, Variant] = {
    "economics": Variant(Economics.corrected, "level 4, corrected for users", ERDIL),
    "economics.planned": Variant(Economics.as_planned, "the layout you give, no search", ERDIL),
    "economics.level1": Variant(Economics.level1, "one chip, roofline", ERDIL),
    "economics.level2": Variant(Economics.level2, "infinite bandwidth, latency only", ERDIL),
    "economics.level3": Variant(Economics.level3, "2-D tensor parallelism", ERDIL),
    "economics.pipeline": Variant(Economics.pipeline, "level 3 with 1-D layouts and stages", ERDIL),
    "economics.level4": Variant(Economics.level4, "as published, all splits searched", ERDIL),
    "partitioning": Variant(
        Partitioning.searched, "layouts on a torus slice, the fastest in every phase", POPE
    ),
    "partitioning.planned": Variant(
        Partitioning.as_planned, "layouts on a torus slice, the one you give", POPE
    ),
    "kernels": Variant(Kernels.corrected, "a sum of kernels at fitted efficiencies", ALIBABA),
    "kernels.published": Variant(
        Kernels.as_published, "the authors' sum of kernels, its units and quirks", ALIBABA
    ),
    "offloading": Variant(
        Offloading.improved, "GPU, CPU and disk, with memory bandwidths and compression", SHENG
    ),
    "offloading.planned": Variant(Offloading.as_planned, "the places of tensors you give", SHENG),
    "offloading.paper": Variant(Offloading.paper, "Appendix A.3 as published", SHENG),
    "offloading.released": Variant(Offloading.released, "the authors' released model", SHENG),
    "serving": Variant(
        Serving.of, "measured engines; the engine of the profile, else vLLM", MEASURED
    ),
    "serving.vllm": Variant(Serving.vllm_engine, "vLLM as measured", MEASURED),
    "serving.sglang": Variant(Serving.sglang_engine, "SGLang as measured", MEASURED),
    "serving.trtllm": Variant(Serving.trtllm_engine, "TensorRT-LLM as measured", MEASURED),
    "serving.complete": Variant(
        Serving.complete, "with what measured servers were too few to see", MEASURED
    ),
}


def variant(name: str) -> Variant:
    """The variant of that name.

    Raises:
        InputError: no estimator has that name.
    """
    if name not in VARIANTS:
        raise InputError("estimator", "name", name, ", ".join(VARIANTS))
    return VARIANTS[name]


def make(name: str, coefficients: Mapping[str, Mapping[str, float]] | None = None) -> Estimator:
    """The estimator of that name, with a profile's coefficients for it.

    Raises:
        InputError: no estimator has that name, or the profile is calibrated to another engine.
    """
    estimator, tables = variant(name).make(), coefficients or {}
    own = tables.get(estimator.table, {})
    if isinstance(estimator, Serving) and name.rpartition(".")[2] in ENGINES:
        _refuse_another_engine(name, estimator, own)
    return estimator.fitted_to(tables)


def _refuse_another_engine(name: str, estimator: Serving, own: Mapping[str, float]) -> None:
    if own.get("engine", estimator.engine) != estimator.engine:
        allowed = "serving: the profile is calibrated to another engine"
        raise InputError("estimator", "name", name, allowed)
