"""Writes an architecture as a config.json that the readers of this package read."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from infer_jax.catalog.huggingface.attention import LATENT
from infer_jax.errors import InputError
from infer_jax.specs import UNBOUNDED, Architecture, Experts, GroupedQuery, Latent, Sparse

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
