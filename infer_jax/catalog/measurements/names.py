"""The bundled model and system that a name in a measured file refers to."""

from infer_jax.catalog.models import list_models
from infer_jax.catalog.names import shape_of
from infer_jax.catalog.systems import list_systems


def model_named(name: str | None) -> str | None:
    """The bundled model of a Hugging Face name, or None where none has its shape.

    >>> model_named("meta-llama/Llama-3.1-8B-Instruct"), model_named("nvidia/Qwen3-32B-NVFP4")
    ('llama-3.1-8b', 'qwen3-32b')
    >>> model_named("someone/unheard-of") is None
    True
    """
    if name is None:
        return None
    return shape_of(name, list_models())


def system_named(name: str | None) -> str | None:
    """The bundled profile that a hardware name means, or the name as it is.

    >>> system_named("H200"), system_named("gb200-nv"), system_named("abacus")
    ('h200_sxm', 'gb200_nvl72', 'abacus')
    """
    if name is None:
        return None
    known = list_systems()
    plain = name.casefold().replace("-", "_")
    for stem in (plain, plain.partition("_")[0]):
        for candidate in (stem, f"{stem}_sxm", f"{stem}_nvl72"):
            if candidate in known:
                return candidate
    return name
