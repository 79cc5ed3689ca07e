"""Writes a design as a Hugging Face config.json that can be built and read back.

The source model's own config is the template: only keys whose numbers changed are rewritten, and
the result is read back by the catalog and compared with the design.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from infer_jax.catalog import Model, load_model
from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import json_of
from infer_jax.catalog.huggingface.attention import LATENT
from infer_jax.catalog.models import BUNDLED, LARGEST
from infer_jax.errors import InputError
from infer_jax.specs import UNBOUNDED, Architecture, Experts, GroupedQuery, Latent, Sparse, leaves

EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
COUNTED = ("size", "dim", "rank", "experts", "heads", "layers", "window")  # ends of their keys


def config_of(arch: Architecture, base: Mapping[str, Any]) -> dict[str, object]:
    """``base`` with the keys that spell the shape of ``arch``; text_config is looked into."""
    if "text_config" in base:
        return {**base, "text_config": config_of(arch, base["text_config"])}
    new: dict[str, object] = dict(base)
    new["hidden_size"] = arch.width
    new["vocab_size"] = arch.vocabulary
    new["num_hidden_layers"] = sum(float(b.count) for b in arch.blocks)
    if "num_nextn_predict_layers" in base or float(arch.draft_layers):
        new["num_nextn_predict_layers"] = arch.draft_layers
    for block in arch.blocks:
        attention = block.attention.base if isinstance(block.attention, Sparse) else block.attention
        if isinstance(attention, GroupedQuery):
            new["num_attention_heads"] = attention.query_heads
            new["num_key_value_heads"] = attention.kv_heads
            new["head_dim"] = attention.head_width
            if "sliding_window" in base and float(attention.window) < UNBOUNDED:
                new["sliding_window"] = attention.window
        elif isinstance(attention, Latent):
            new |= {key: getattr(attention, name) for name, key in LATENT.items()}
            new["q_lora_rank"] = attention.query_rank
            new["num_key_value_heads"] = attention.query_heads
        layer = block.feedforward
        if isinstance(layer, Experts):
            new[next(k for k in EXPERTS if k in base)] = layer.experts
            new["num_experts_per_tok"] = layer.active
            has_own = "moe_intermediate_size" in base
            new["moe_intermediate_size" if has_own else "intermediate_size"] = layer.width
            if "n_shared_experts" in base:
                new["n_shared_experts"] = float(layer.shared.width) / float(layer.width)
            if "shared_expert_intermediate_size" in base:
                new["shared_expert_intermediate_size"] = layer.shared.width
        elif layer is not None:
            new["intermediate_size"] = layer.width
    return {k: _plain(k, v) for k, v in new.items()}


def _plain(key: str, value: object) -> object:
    """Counts as whole numbers; everything else as it was."""
    if not isinstance(value, np.ndarray | np.generic | float):
        return value
    number = float(value)
    if not number.is_integer() and key.endswith(COUNTED):
        raise InputError("config.json", key, number, "a whole number")
    return int(number) if number.is_integer() else number


def template(model: Model | str) -> dict[str, object]:
    """The config.json of a bundled model by name, or of a file or folder."""
    name = model.source if isinstance(model, Model) else model
    bundled = BUNDLED / f"{(model.name if isinstance(model, Model) else model).casefold()}.json"
    if bundled.is_file():
        return json_of(str(bundled), read_text(bundled, LARGEST))["config"]
    path = Path(name) / "config.json" if Path(name).is_dir() else Path(name)
    return json_of(str(path), read_text(path, LARGEST), LARGEST)


def export(
    arch: Architecture, base: Mapping[str, object], **formats: str
) -> tuple[dict[str, object], Architecture]:
    """(config.json, the architecture it is read back as) of a design.

    Raises:
        InputError: the family of the template cannot spell the design.
    """
    config = config_of(arch, base)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        try:
            read = load_model(path, **formats).architecture
        except InputError as error:
            where = f"config.json of family {config.get('model_type')}"
            raise InputError(where, error.field, error.value, error.allowed) from None
    # the two may differ in the counts of norms and biases alone
    family = str(config.get("model_type"))
    if jax.tree.structure(arch) != jax.tree.structure(read):
        raise InputError("config.json", "family", family, "one that has layers of this structure")
    for (path, _, x), (_, _, y) in zip(leaves(arch), leaves(read), strict=True):
        if not path.endswith("vectors") and not np.isclose(float(x), float(y), rtol=1e-12):
            allowed = f"{float(y):.12g}, which is what a config of family {family} can say"
            raise InputError("config.json", path, float(x), allowed)
    return config, read
