"""Which bundled model and system does a name in a measured file mean?"""

import re

from infer_jax.catalog.models import list_models
from infer_jax.catalog.systems import list_systems

# what publishers append for a tuning, a format or a date without changing the shape
TAIL = re.compile(
    r"-(instruct|chat|base|it|hf|thinking|fp8|fp4|nvfp4|mxfp4|bf16|int4|int8|awq|gptq|w4a16|w8a8"
    r"|dynamic|block|v\d+|0\d{3}|2[4-9]\d{2})$"
)
SAME_SHAPE = {"deepseek-v3.1": "deepseek-v3", "kimi-k2.6": "kimi-k2.5"}


def model_named(name: str | None) -> str | None:
    """The bundled model of a Hugging Face name, or None where none has its shape.

    >>> model_named("meta-llama/Llama-3.1-8B-Instruct"), model_named("nvidia/Qwen3-32B-NVFP4")
    ('llama-3.1-8b', 'qwen3-32b')
    >>> model_named("someone/unheard-of") is None
    True
    """
    if name is None:
        return None
    known = list_models()
    plain = name.rstrip("/").rpartition("/")[2].casefold().removeprefix("meta-")
    while plain not in known and plain not in SAME_SHAPE:
        shorter = TAIL.sub("", plain)
        if shorter == plain:
            return None
        plain = shorter
    return SAME_SHAPE.get(plain, plain)


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
