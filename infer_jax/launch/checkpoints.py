"""The repository that holds a plan's weights in the plan's format."""

import os

from infer_jax.catalog import Model, load_model
from infer_jax.catalog.models import HUB
from infer_jax.engines import ModelCheckpoint
from infer_jax.specs import Architecture

CACHE = "; KV cache "  # between the formats of weights and cache in ``Model.quantisation``

# Repositories of the same publisher that hold a model in another format, by our name of it. Qwen's
# FP8 builds are scaled in blocks of 128 (qwen.readthedocs.io, "Quantization"; their model cards:
# "fine-grained fp8, block size 128"), its AWQ builds in groups of 128.
STORED: dict[str, dict[str, str]] = {
    "Qwen/Qwen3-0.6B": {"fp8_block": "Qwen/Qwen3-0.6B-FP8"},
    "Qwen/Qwen3-1.7B": {"fp8_block": "Qwen/Qwen3-1.7B-FP8"},
    "Qwen/Qwen3-8B": {"fp8_block": "Qwen/Qwen3-8B-FP8", "awq": "Qwen/Qwen3-8B-AWQ"},
    "Qwen/Qwen3-32B": {"fp8_block": "Qwen/Qwen3-32B-FP8", "awq": "Qwen/Qwen3-32B-AWQ"},
    "Qwen/Qwen3-30B-A3B": {"fp8_block": "Qwen/Qwen3-30B-A3B-FP8"},
    "Qwen/Qwen3-235B-A22B": {"fp8_block": "Qwen/Qwen3-235B-A22B-FP8"},
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": {"fp8_block": "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"},
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {"fp8_block": "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8"},
}
# Repositories whose model cards ask for their own code when they are served.
NO_NAME = "the model is given as numbers: its name or config.json says which weights to load"
CODE = ("moonshotai/", "XiaomiMiMo/MiMo-V2-Flash")


def checkpoint(
    config: str | os.PathLike[str] | Model | Architecture,
    quant: str | None = None,
    kv_dtype: str | None = None,
) -> ModelCheckpoint:
    """The weights of a model (a name, or a config.json) in the formats of a plan.

    It is the repository that the name stands for, or another one of the same publisher that holds
    the same weights in the requested format.

    >>> checkpoint("qwen3-32b", "fp8_block").repository
    'Qwen/Qwen3-32B-FP8'
    >>> checkpoint("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8").repository
    'Qwen/Qwen3-235B-A22B-Instruct-2507-FP8'
    >>> found = checkpoint("llama-3.1-8b", "fp8", "fp8")
    >>> found.repository, found.cast, found.cache, found.missing, found.code
    ('meta-llama/Meta-Llama-3.1-8B', 'fp8', 'fp8', '', False)
    >>> checkpoint("deepseek-r1", "nvfp4").missing.partition(", and ")[2]
    'no repository of it in nvfp4 is known here'
    """
    if isinstance(config, Model | Architecture):
        return ModelCheckpoint("", missing=NO_NAME)
    own, given = load_model(config), load_model(config, quant=quant, kv_dtype=kv_dtype)
    name = own.repository
    if not name:
        return ModelCheckpoint("", missing=_unknown(own, str(config)))
    stored, cached = own.quantisation.split(CACHE)
    wanted, cache = given.quantisation.split(CACHE)
    coded = any(word.startswith(CODE) for word in (name, own.source.removeprefix(HUB)))
    asked = ModelCheckpoint(name, cache="" if cache == cached else cache, code=coded)
    if quant is None or _same(wanted, stored):
        return asked
    known = STORED.get(name, {}).get(quant)
    if known:
        return asked._replace(repository=known)
    form = stored.split(" (")[0]
    if form in ("bfloat16", "float16"):
        return asked._replace(cast=quant)
    return asked._replace(
        missing=f"{name} is stored in {form}, and no repository of it in {quant} is known here"
    )


def _unknown(own: Model, config: str) -> str:
    """Why no repository is known: the weights are not public, or the name has no publisher."""
    if own.source.startswith(HUB):
        return f"{config} names no publisher: give the model's whole id on Hugging Face"
    return f"no public weights of {own.name} are known"


def _same(wanted: str, stored: str) -> bool:
    """Whether two formats of weights are one: "bfloat16 (2 bytes...); the rest bfloat16" is one."""
    first, _, rest = wanted.partition(" (")
    return wanted == stored or (first == stored and rest.endswith(f"the rest {stored}"))
