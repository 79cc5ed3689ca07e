"""Estimators and variants by the names that commands and files use."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import NamedTuple

from infer_jax import engines
from infer_jax.errors import InputError
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.serving import Serving, fitted_engine


class Variant(NamedTuple):
    """A named way to make an estimator."""

    make: Callable[[], Estimator]
    summary: str
    source: str


def _of(file: str, constructor: str) -> Callable[[], Estimator]:
    """A constructor by name, whose file is imported when it is first called."""

    def construct() -> Estimator:
        name, _, variant = constructor.partition(".")
        return getattr(getattr(import_module(f"infer_jax.estimators.{file}"), name), variant)()

    return construct


def _measured(engine: str) -> str:
    """That an engine's own servers were measured, or whose coefficients it has, in words."""
    other = fitted_engine(engine)
    return (
        "as measured"
        if other == engine
        else f"at the coefficients of {engines.ENGINES[other].title}"
    )


ERDIL = "Erdil 2025, arXiv 2506.04645"
SHENG = "Sheng et al. 2023 (FlexGen), arXiv 2303.06865"
ALIBABA = "Alibaba 2025 (InferSim), github.com/alibaba/InferSim"
POPE = "Pope et al. 2022, arXiv 2211.05102"
MEASURED = "fitted to measured servers, docs/theories/serving.md"

VARIANTS: dict[str, Variant] = {
    "economics": Variant(
        _of("economics", "Economics.corrected"), "level 4, corrected for users", ERDIL
    ),
    "economics.planned": Variant(
        _of("economics", "Economics.as_planned"), "the layout you give, no search", ERDIL
    ),
    "economics.level1": Variant(_of("economics", "Economics.level1"), "one chip, roofline", ERDIL),
    "economics.level2": Variant(
        _of("economics", "Economics.level2"), "infinite bandwidth, latency only", ERDIL
    ),
    "economics.level3": Variant(
        _of("economics", "Economics.level3"), "2-D tensor parallelism", ERDIL
    ),
    "economics.pipeline": Variant(
        _of("economics", "Economics.pipeline"), "level 3 with 1-D layouts and stages", ERDIL
    ),
    "economics.level4": Variant(
        _of("economics", "Economics.level4"), "as published, all splits searched", ERDIL
    ),
    "partitioning": Variant(
        _of("partitioning", "Partitioning.searched"),
        "layouts on a torus slice, the fastest in every phase",
        POPE,
    ),
    "partitioning.planned": Variant(
        _of("partitioning", "Partitioning.as_planned"),
        "layouts on a torus slice, the one you give",
        POPE,
    ),
    "kernels": Variant(
        _of("kernels", "Kernels.corrected"), "a sum of kernels at fitted efficiencies", ALIBABA
    ),
    "kernels.published": Variant(
        _of("kernels", "Kernels.as_published"),
        "the authors' sum of kernels, its units and quirks",
        ALIBABA,
    ),
    "offloading": Variant(
        _of("offloading", "Offloading.improved"),
        "GPU, CPU and disk, with memory bandwidths and compression",
        SHENG,
    ),
    "offloading.planned": Variant(
        _of("offloading", "Offloading.as_planned"), "the places of tensors you give", SHENG
    ),
    "offloading.paper": Variant(
        _of("offloading", "Offloading.paper"), "Appendix A.3 as published", SHENG
    ),
    "offloading.released": Variant(
        _of("offloading", "Offloading.released"), "the authors' released model", SHENG
    ),
    "serving": Variant(
        Serving.of, "measured engines; the engine of the profile, else vLLM", MEASURED
    ),
    **{
        f"serving.{name}": Variant(
            partial(Serving.of, engine=float(engine.code)),
            f"{engine.title} {_measured(name)}",
            MEASURED,
        )
        for name, engine in engines.ENGINES.items()
    },
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
    """The estimator of that name, with its coefficients from a profile's tables.

    Raises:
        InputError: no estimator has that name, or the profile is calibrated to another engine.
    """
    estimator = variant(name).make()
    fitted = estimator.fitted_to(coefficients or {})
    # "serving" takes the engine of the profile, "serving.vllm" has one of its own
    if name.partition(".")[2] == estimator.engine_name != fitted.engine_name:
        allowed = "serving: the profile is calibrated to another engine"
        raise InputError("estimator", "name", name, allowed)
    return fitted
