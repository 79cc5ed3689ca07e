"""Which models and chips does InferSim see?

Its reading of a config.json differs from ours (see ``catalog/huggingface``): all layers are experts
where the config has ``num_routed_experts`` or ``num_experts``, none where it spells the count
otherwise; embedding, head, norms, router, shared expert widths and output gates are not seen.
"""

import os
from typing import NamedTuple

from infer_jax.catalog.foreign import read_json
from infer_jax.catalog.huggingface.attention import LATENT, RECURRENT
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.catalog.published.tables import hardware_of, row_of
from infer_jax.specs import (
    Architecture,
    Block,
    Dense,
    Experts,
    Format,
    GroupedQuery,
    Hardware,
    Latent,
    Linear,
)

FP8, BF16 = Format.of(bytes=1.0, bits=8.0), Format.of(bytes=2.0, bits=16.0)
NESTED = ("qwen3_5", "qwen3_5_moe")
ROUTED = ("num_routed_experts", "num_experts")


class PublishedChip(NamedTuple):
    """A device of the tool's table: its hardware and the MFU taken where no table has one."""

    hardware: Hardware
    default_mfu: float


def kernels_hardware(name: str) -> PublishedChip:
    """A device of the tool by its name; no price is known: 0.

    Raises:
        InputError: the tool has no such device.
    """
    row = row_of("kernels", "hardware", name)
    return PublishedChip(hardware_of(row), row["mfu"])


def kernels_model(
    path: str | os.PathLike[str], *, fp8_gemm: bool = True, fp8_kv: bool = False
) -> Architecture:
    """The architecture that the tool sees in a config.json.

    Args:
        path: the config.json.
        fp8_gemm: all weights in one byte and FP8 products, else bfloat16.
        fp8_kv: a cache of one byte per element, else two.

    Raises:
        InputError: unreadable, a key that it needs missing or wrong.
    """
    config = Facts(read_json(path), str(path))
    if config.values.get("model_type") in NESTED:
        nested = config.section("text_config")
        if nested is None:
            raise config.error("text_config", "missing", "the language model's object")
        config = nested
    weights = FP8 if fp8_gemm else BF16
    layers, width = config.count("num_hidden_layers"), config.count("hidden_size")
    attention, feedforward = _attention(config, weights), _feedforward(config, weights)
    if "full_attention_interval" in config:
        full = layers // config.count("full_attention_interval")
        linear = Linear.of(**vars(config.counts(RECURRENT)), weights=weights)
        blocks = (
            Block.of(count=full, attention=attention, feedforward=feedforward),
            Block.of(count=layers - full, attention=linear, feedforward=feedforward),
        )
    else:
        blocks = (Block.of(count=layers, attention=attention, feedforward=feedforward),)
    return Architecture.of(
        width=width, vocabulary=0.0, tied=1.0, blocks=blocks, cache=FP8 if fp8_kv else BF16
    )


def _attention(config: Facts, weights: Format) -> GroupedQuery | Latent:
    if "kv_lora_rank" in config:
        n, query_rank = config.counts(LATENT), config.count("q_lora_rank")
        return Latent.of(**vars(n), query_rank=query_rank, weights=weights)
    heads = config.count("num_attention_heads")
    head = config.count("head_dim", default=config.count("hidden_size") // heads, silent=True)
    return GroupedQuery.of(
        query_heads=heads,
        kv_heads=config.count("num_key_value_heads"),
        head_width=head,
        value_width=head,
        weights=weights,
    )


def _feedforward(config: Facts, weights: Format) -> Dense | Experts:
    if not any(key in config for key in ROUTED):
        return Dense.of(width=config.count("intermediate_size"), inward=2.0, weights=weights)
    width = config.count("moe_intermediate_size")
    shared = config.count("num_shared_experts", default=0, low=0, silent=True)
    return Experts.of(
        experts=config.count(*ROUTED),
        active=config.count("num_experts_per_tok"),
        width=width,
        inward=2.0,
        router=0.0,
        shared=Dense.of(width=width * shared, inward=2.0, weights=weights),
        weights=weights,
    )
