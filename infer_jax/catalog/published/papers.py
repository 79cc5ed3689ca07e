"""Models, chips and constants of the economics and partitioning papers, and of InferSim.

InferSim's reading of a config.json differs from ours (see ``catalog/huggingface``): all layers are
experts where the config has ``num_routed_experts`` or ``num_experts``, none where it spells the
count otherwise; embedding, head, norms, router, shared expert widths and output gates are not seen.
"""

import math
import os
from typing import NamedTuple

from infer_jax.catalog.foreign import read_json
from infer_jax.catalog.huggingface.attention import LATENT, RECURRENT
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.catalog.models import load_model
from infer_jax.catalog.published.tables import hardware_of, row_of, tables
from infer_jax.errors import InputError
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


def economics_model(name: str, *, multi_query: bool = False) -> Architecture:
    """A model of the paper by its name; ``multi_query`` gives it one KV head.

    Raises:
        InputError: the paper has no such model.
    """
    row = row_of("economics", "models", name)
    if "scaled_from" in row:
        row = _scaled(tables("economics")["models"][row["scaled_from"]], row["scale"])
    weights = Format.of(bytes=row["weight_bytes"], bits=8.0 * row["weight_bytes"])
    # The paper multiplies attention at the weights' precision and stores the cache at the
    # activations'.
    held = Format.of(bytes=row["activation_bytes"], bits=8.0 * row["weight_bytes"])
    head = row["head_width"]
    shared = {"query_heads": row["query_heads"], "value_width": head, "weights": weights}
    if "kv_rank" in row:
        ranks = {name: row[name] for name in ("kv_rank", "query_rank")}
        attention = Latent.of(**shared, **ranks, nope_width=head, rope_width=0.0)
    else:
        groups = 1.0 if multi_query else row["query_heads"] / row["group"]
        attention = GroupedQuery.of(**shared, kv_heads=groups, head_width=head)
    shape = {"width": row["feedforward_width"], "inward": row["inward"], "weights": weights}
    if row.get("experts", 1) > 1:
        feedforward: Dense | Experts = Experts.of(
            experts=row["experts"], active=row["active"], router=0.0, **shape
        )
    else:
        feedforward = Dense.of(**shape)
    block = Block.of(count=row["layers"], attention=attention, feedforward=feedforward)
    return Architecture.of(
        width=row["width"],
        vocabulary=row["vocabulary"],
        tied=0.0,
        blocks=(block,),
        parallel=row.get("parallel", 0),
        embedding=weights,
        head=weights,
        activations=held,
        cache=held,
    )


def economics_hardware(name: str) -> tuple[Hardware, dict[str, float]]:
    """A chip of the paper by its name, and the coefficients the paper gives it.

    Raises:
        InputError: the paper has no such chip.
    """
    row = row_of("economics", "hardware", name)
    known = ("flop_cap", "memory_cap", "launch", "protocol_base")
    return hardware_of(row), {key: row[key] for key in known if key in row}


def _scaled(row: dict[str, float], scale: float) -> dict[str, float]:
    """A model scaled to ``scale`` times its parameters as the paper's program scales it."""
    wide, heads = scale ** (1 / 3), scale ** (1 / 6)
    count = math.ceil(row["query_heads"] * heads)
    return row | {
        "width": row["width"] * wide,
        "feedforward_width": row["feedforward_width"] * wide,
        "layers": math.floor(row["layers"] * wide),
        "query_heads": count,
        "group": count / (row["query_heads"] / row["group"]),
        "head_width": row["head_width"] * heads,
    }


BYTES = {"bf16": 2.0, "int8": 1.0}


def partitioning_parameters(name: str) -> float:
    """Parameters that the paper's MFU counts: padded heads are not among them.

    Raises:
        InputError: the paper has no such model.
    """
    return row_of("partitioning", "models", name)["parameters"]


def partitioning_model(
    name: str,
    *,
    weights: str = "bf16",
    multihead: bool = False,
    parallel: bool | None = None,
    layers: float | None = None,
) -> Architecture:
    """A model of the paper, or the variant of it that a section studies.

    Args:
        name: of the table of models; PaLM_540B has its heads padded from 48 to 64.
        weights: bf16 or int8; either is multiplied in 16 bits (Section 3.6).
        multihead: a key-value head a query head, of half the width (Section 4.2).
        parallel: attention beside the feedforward, or after it (Section 4.3).
        layers: another number of layers (Figure 8 has 8).

    Raises:
        InputError: the paper has no such model or format.
    """
    if weights not in BYTES:
        raise InputError("partitioning paper", "weights", weights, " or ".join(BYTES))
    arch = load_model(row_of("partitioning", "models", name)["model"]).architecture
    stored = Format.of(bytes=BYTES[weights], bits=16.0)
    (block,) = arch.blocks
    attention = block.attention
    assert isinstance(attention, GroupedQuery)
    if multihead:
        half = attention.head_width / 2.0
        attention = attention.with_(
            kv_heads=attention.query_heads, head_width=half, value_width=half
        )
    block = block.with_(
        attention=attention.with_(weights=stored),
        feedforward=block.feedforward.with_(weights=stored),  # pyright: ignore[reportOptionalMemberAccess]
        count=block.count if layers is None else layers,
    )
    wide = arch.with_(blocks=(block,), embedding=stored, head=stored)
    return wide if parallel is None else wide.with_(parallel=float(parallel))


def partitioning_hardware(name: str) -> Hardware:
    """A chip as the paper describes it: tpu_v4, or a100 of the FasterTransformer benchmarks.

    Raises:
        InputError: the paper has no such chip.
    """
    return hardware_of(row_of("partitioning", "hardware", name))


FP8, BF16 = Format.of(bytes=1.0, bits=8.0), Format.of(bytes=2.0, bits=16.0)
NESTED = ("qwen3_5", "qwen3_5_moe")
ROUTED = ("num_routed_experts", "num_experts")


class PublishedChip(NamedTuple):
    """A device of the tool's table: its hardware and the MFU taken where no table has one."""

    hardware: Hardware
    default_mfu: float


def kernels_constants() -> dict[str, float]:
    """The tool's constants by name: shares, gigas (over 1e9), scheduling times in s, reserve."""
    return dict(tables("kernels")["constants"])


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
