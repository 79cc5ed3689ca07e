"""The laws of ``Serving`` that a table of measured operators is fitted to, and its rows.

A law gives seconds of each row from coefficients; the formulas are those of the passes
(`estimators/serving/pass_terms.py`), for one operator, with a launch in front.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.catalog import load_model
from infer_jax.estimators.serving import Serving
from infer_jax.estimators.serving.pass_terms import STREAMED
from infer_jax.physics import attention, matmul, routing
from infer_jax.physics.attention import causal_pairs
from infer_jax.physics.attention.row import Row
from infer_jax.physics.network import switch_collectives
from infer_jax.physics.network.switch_collectives import Wire
from infer_jax.physics.numerics import maximum
from infer_jax.specs import UNBOUNDED, Attention, Format, Hardware
from infer_jax.specs.architecture import bf16

Columns = Mapping[str, np.ndarray]
Facts = dict[str, np.ndarray]
Numbers = Mapping[str, Array]  # by name: coefficients, or facts of rows

# stored bytes of an element and bits of its products; nvfp4 has a scale of a byte for 16 numbers
FORMATS = {"bfloat16": (2.0, 16.0), "fp8": (1.0, 8.0), "fp8_block": (1.0, 8.0),
           "nvfp4": (0.5625, 4.0)}  # fmt: skip
ACTIVATION = 2.0  # bytes
DEEPSEEK, QWEN = (
    cast("Attention", load_model(name).tree.blocks[0].attention)
    for name in ("deepseek-r1", "qwen3-8b")
)
MODEL = Serving.of()  # of its coefficients those that are not fitted: sharpness, size of a shot


class OperatorLaw(NamedTuple):
    """A law: the table, the column of its formats, and how a table becomes rows and seconds.

    ``numbers``, ``texts``: columns, beside those that older tables lack (``optional``); ``start``:
    the coefficients of a fit with where it begins. ``facts`` gives what a row is, and which rows
    count.
    """

    table: str
    format: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    start: dict[str, float]
    facts: Callable[[Columns], tuple[Facts, np.ndarray]]
    seconds: Callable[[Numbers, Numbers, Hardware], Array]
    optional: tuple[str, ...] = ()


def _products(c: Columns) -> tuple[Facts, np.ndarray]:
    """Matrices of four million elements and more: smaller ones are launches."""
    elements = c["n"] * c["k"]
    facts = {"rows": c["m"], "outputs": c["n"], "inputs": c["k"]}
    return facts, (elements >= 2**22) & (elements < 2**31)


def products(x: Numbers, row: Numbers, hardware: Hardware) -> Array:
    """Seconds of one product: a launch, the smooth larger of reading and computing, activations."""
    chip = hardware.chip
    elements = row["outputs"] * row["inputs"]
    read = elements * row["bytes"] / (chip.memory_bandwidth * x["weight_read"])
    computed = 2.0 * elements * row["rows"] / (matmul.rate(chip, row["bits"]) * x["share"])
    moved = row["rows"] * (row["outputs"] + row["inputs"]) * ACTIVATION / chip.memory_bandwidth
    return x["launch"] + _longer(read, computed) + x["moves"] * moved


def _experts(c: Columns) -> tuple[Facts, np.ndarray]:
    """Experts as servers deal them, of gated layers: of the others widths are in `UNGATED`."""
    held = c["num_experts"] / c["moe_ep_size"]
    inner = c["inter_size"] / c["moe_tp_size"]
    uses = c["num_tokens"] * c["topk"] / c["moe_ep_size"]
    facts = {"held": held, "uses": uses, "outer": c["hidden_size"], "inner": inner}
    keep = (c["distribution"] == "balanced") & (held >= 8) & (c["num_experts"] >= 64)
    return facts, keep & (inner >= 256) & ~np.isin(c["inter_size"], UNGATED)


UNGATED = (1856.0, 2688.0, 5120.0)  # widths of experts of two matrices, as TensorRT-LLM's rows say


def experts(x: Numbers, row: Numbers, hardware: Hardware) -> Array:
    """Seconds of the products of a chip's experts, all of which are used alike."""
    chip = hardware.chip
    elements = 3.0 * row["outer"] * row["inner"]
    visited = jnp.minimum(row["held"], row["uses"])
    read = visited * elements * row["bytes"] / (chip.memory_bandwidth * x["weight_read"])
    rows = routing.multiplied_rows(row["uses"], visited, x["expert_rows"])
    rate = matmul.rate(chip, row["bits"]) * row["dense"] * x["grouped"]
    computed = 2.0 * elements * rows / rate
    moved = routing.moved_bytes(row["uses"], row["outer"], row["inner"], ACTIVATION)
    moved = x["expert_moves"] * moved / chip.memory_bandwidth
    return x["launch"] + _longer(read, computed) + moved


def _grouped(row: Numbers) -> Row:
    """Attention of a rank's heads, some of which share a head of keys."""
    widths = {"head_width": row["width"], "value_width": row["width"]}
    own = QWEN.replace(query_heads=row["heads"], kv_heads=row["kv_heads"], **widths)
    return attention.of(own).numbers(Format.of(bytes=row["bytes"], bits=16.0), bf16())


def _latent(row: Numbers) -> Row:
    """Attention of a rank's heads with DeepSeek's latent."""
    own = DEEPSEEK.replace(query_heads=row["heads"])
    return attention.of(own).numbers(Format.of(bytes=row["bytes"], bits=16.0), bf16())


def _decoded(c: Columns) -> tuple[Facts, np.ndarray]:
    """Contexts that fill more than the caches of a chip, as those of a server's layers do."""
    tokens = c["batch_size"] * (c["isl"] + c["step"])
    facts = {"heads": c["num_heads"], "tokens": tokens}
    if "head_dim" not in c:
        return facts, tokens >= 2**17
    facts |= {"width": c["head_dim"], "kv_heads": c["num_key_value_heads"]}
    cached = 2.0 * tokens * facts["kv_heads"] * facts["width"]
    keep = (cached >= 2**27) & (facts["width"] <= 256) & (facts["heads"] <= 8 * facts["kv_heads"])
    return facts, keep & _unbounded(c)


def grouped_decode(x: Numbers, row: Numbers, hardware: Hardware) -> Array:
    """Seconds of grouped-query attention, one new token a sequence, the heads of one rank.

    Reading alone: measured times do not depend on how many of up to eight query heads share a head
    of keys.
    """
    read = row["tokens"] * _grouped(row).cache / hardware.chip.memory_bandwidth
    return x["launch"] + read / x["cache_read"]


def latent_decode(x: Numbers, row: Numbers, hardware: Hardware) -> Array:
    """Seconds of latent attention, one new token a sequence, the heads of one rank."""
    chip = hardware.chip
    layer = _latent(row)
    read = row["tokens"] * layer.cache / (chip.memory_bandwidth * x["cache_read"])
    fill = layer.tile_fill(1.0, jnp.asarray(1.0), row["tile"])
    computed = row["tokens"] * layer.absorbed / (chip.flops_16 * x["decode_share"] * fill)
    return x["launch"] + maximum(read, computed, jnp.asarray(STREAMED))


def _prompts(c: Columns) -> tuple[Facts, np.ndarray]:
    """Whole prompts of 4096 tokens and more, without a window."""
    facts = {"heads": c["num_heads"], "sequences": c["batch_size"], "new": c["isl"]}
    if "head_dim" in c:
        facts |= {"width": c["head_dim"], "kv_heads": c["num_key_value_heads"]}
    return facts, (c["isl"] >= 4096) & (c["step"] == 0) & _unbounded(c)


def _unbounded(c: Columns) -> np.ndarray:
    """Rows without a window; older tables have none."""
    return np.asarray(c.get("window_size", 0.0)) == 0.0


def prefill(layer: Callable[[Numbers], Row], x: Numbers, row: Numbers, hardware: Hardware) -> Array:
    """Seconds of causal attention of whole prompts; latent attention is expanded."""
    cached, window = jnp.zeros_like(row["new"]), jnp.asarray(UNBOUNDED)
    pairs = row["sequences"] * causal_pairs.mean_attended_pairs(row["new"], cached, window)
    rate = hardware.chip.flops_16 * x["prefill_attention"]
    return x["launch"] + pairs * layer(row).expanded / rate


def _sums(c: Columns) -> tuple[Facts, np.ndarray]:
    """Two to eight chips, replayed from a graph where rows say how; sizes are in elements."""
    facts = {"ranks": c["num_gpus"], "size": c["message_size"] * ACTIVATION}
    keep = c["num_gpus"] <= 8
    return facts, keep & ~np.char.endswith(c["kernel_source"].astype(str), "_eager")


def all_reduce(x: Numbers, row: Numbers, hardware: Hardware) -> Array:
    """Seconds of an all-reduce among the chips of one switch."""
    network = hardware.network
    domain, near, beyond = switch_collectives.reach(network)
    rates, pair = (near * x["link"], beyond * x["link"]), switch_collectives.pair_share(network)
    wire = Wire(x["hop"], rates[0], MODEL.one_shot, domain, rates[1], pair)
    return switch_collectives.all_reduce(row["ranks"], row["size"], wire)


def _longer(read: Array, computed: Array) -> Array:
    return maximum(read, computed, 1.0 / MODEL.overlap)


ATTENTION = ("num_heads", "batch_size", "isl", "step")
GROUPED = (*ATTENTION, "head_dim", "num_key_value_heads")
EXPERTS = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
PREFILL = {"launch": 1e-5, "prefill_attention": 0.5}
# a tile of 64 rows is half empty on average, and activations move once
LAWS = {
    "products": OperatorLaw(
        "gemm_perf", "gemm_dtype", ("m", "n", "k"), (),
        {"launch": 5e-6, "weight_read": 0.8, "share": 0.7, "moves": 1.0},
        _products, products,
    ),
    "experts": OperatorLaw(
        "moe_perf", "moe_dtype", (*EXPERTS, "moe_ep_size"), ("distribution",),
        {"launch": 2e-5, "weight_read": 0.8, "grouped": 0.7, "expert_rows": 32.0,
         "expert_moves": 1.0},
        _experts, experts,
    ),
    "grouped decode": OperatorLaw(
        "generation_attention_perf", "kv_cache_dtype", GROUPED, (),
        {"launch": 1e-5, "cache_read": 0.8}, _decoded, grouped_decode, ("window_size",),
    ),
    "latent decode": OperatorLaw(
        "generation_mla_perf", "kv_cache_dtype", ATTENTION, (),
        {"launch": 1e-5, "cache_read": 0.8, "decode_share": 0.7}, _decoded, latent_decode,
    ),
    "grouped prefill": OperatorLaw(
        "context_attention_perf", "attn_dtype", GROUPED, (), PREFILL, _prompts,
        partial(prefill, _grouped), ("window_size",),
    ),
    "latent prefill": OperatorLaw(
        "context_mla_perf", "kv_cache_dtype", ATTENTION, (), PREFILL, _prompts,
        partial(prefill, _latent),
    ),
    "all-reduce": OperatorLaw(
        "custom_allreduce_perf", "allreduce_dtype", ("num_gpus", "message_size"),
        ("kernel_source",), {"hop": 2e-6, "link": 0.7}, _sums, all_reduce,
    ),
}  # fmt: skip
# no kernel reads or computes faster than the data sheet says. Attention on 8 bits multiplies in 8;
# its share of the 16-bit peak stays below 2, where a coefficient of the pooled fit does not move
MOST = {"decode_share": 1.9} | dict.fromkeys(
    ("weight_read", "share", "grouped", "cache_read", "prefill_attention", "link"), 1.0
)
