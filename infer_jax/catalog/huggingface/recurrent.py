"""Layers of a config.json that keep a state in place of a cache: spec, matrices and vectors."""

import math

from infer_jax.catalog.huggingface.attention import Piece, below
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.specs import Format, KimiDelta, Linear, StateSpace

# numbers of a spec by their keys
LINEAR = {
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_width": "linear_key_head_dim",
    "value_width": "linear_value_head_dim",
    "conv_width": "linear_conv_kernel_dim",
}
MAMBA = {
    "key_heads": "n_groups",
    "value_heads": "mamba_num_heads",
    "value_width": "mamba_head_dim",
    "key_width": "ssm_state_size",
}


def gated_delta(facts: Facts) -> Piece:
    """Gated DeltaNet: convolution, delta rule, gated norm (arXiv 2412.06464)."""
    width, n = facts.count("hidden_size"), facts.counts(LINEAR)
    facts.divided("linear_num_value_heads", n.value_heads, "linear_num_key_heads", n.key_heads)
    values = n.value_heads * n.value_width
    inner = 2 * n.key_heads * n.key_width + values
    sizes = {
        "in_proj_qkv": width * inner,
        "in_proj_z": width * values,
        "in_proj_a": width * n.value_heads,
        "in_proj_b": width * n.value_heads,
        "conv1d": inner * n.conv_width,
        "out_proj": values * width,
    }
    state = _state(facts, "mamba_ssm_dtype")
    spec = Linear.of(**vars(n), head_gates=2, delta=1, state=state)
    # decay, time-step bias, norm
    return Piece(spec, below("linear_attn", sizes), 2 * n.value_heads + n.value_width)


def mamba(facts: Facts) -> Piece:
    """Mamba-2: one gate a head, no delta rule (arXiv 2405.21060)."""
    width, n = facts.count("hidden_size"), facts.counts(MAMBA)
    facts.divided("mamba_num_heads", n.value_heads, "n_groups", n.key_heads)
    taps = facts.count("conv_kernel", default=4)
    inner = n.value_heads * n.value_width
    channels = inner + 2 * n.key_heads * n.key_width
    projected = channels + inner + n.value_heads
    sizes = {
        "in_proj": width * projected,
        "conv1d": channels * taps,
        "out_proj": inner * width,
    }
    state = _state(facts, "mamba_ssm_cache_dtype")
    spec = Linear.of(**vars(n), conv_width=taps, head_gates=1, delta=0, state=state)
    vectors = 3 * n.value_heads + inner  # decay, skip and time-step bias; gated norm
    vectors += facts.flag("use_conv_bias", default=True) * channels
    vectors += facts.flag("use_bias", default=False) * (projected + width)
    return Piece(spec, below("mixer", sizes), vectors)


def _state(facts: Facts, key: str) -> Format:
    dtype = facts.text(key, default="float32", allowed=("float32", "bfloat16", "float16"))
    return Format.of(bytes=4.0 if dtype == "float32" else 2.0, bits=16)


def selective(facts: Facts) -> Piece:
    """The first Mamba with norms of step, B and C; A, which is not multiplied, is a vector.

    States are kept in the format of activations, vLLM's default.
    """
    width = facts.count("hidden_size")
    channels = width * facts.count("mamba_expand", default=2)
    state, taps = facts.count("mamba_d_state", default=16), facts.count("mamba_d_conv", default=4)
    rank = math.ceil(width / 16)
    if facts.values.get("mamba_dt_rank") != "auto":
        rank = facts.count("mamba_dt_rank", default=rank)
    sizes = {
        "in_proj": width * 2 * channels,
        "conv1d": channels * taps,
        "x_proj": channels * (rank + 2 * state),
        "dt_proj": rank * channels,
        "out_proj": channels * width,
    }
    vectors = channels * state + 2 * channels + rank + 2 * state  # A, skip and step bias, norms
    vectors += facts.flag("mamba_conv_bias", default=True) * channels
    vectors += facts.flag("mamba_proj_bias", default=False) * (2 * channels + width)
    spec = StateSpace.of(channels=channels, state_width=state, step_rank=rank, conv_width=taps)
    return Piece(spec, below("mamba", sizes), vectors)


def kimi_delta(facts: Facts, own: Facts) -> Piece:
    """Kimi delta attention; decays and gates are projected through the width of a head.

    ``own``: the ``linear_attn_config`` of the file.
    """
    width = facts.count("hidden_size")
    count, head = own.count("num_heads"), own.count("head_dim")
    taps, inner = own.count("short_conv_kernel_size"), count * head
    sizes = {f"{name}_proj": width * inner for name in "qkvo"} | {"b_proj": width * count}
    sizes |= {f"{name}_a_proj": width * head for name in "fg"}
    sizes |= {f"{name}_b_proj": head * inner for name in "fg"}
    sizes |= {f"{name}_conv1d": inner * taps for name in "qkv"}
    spec = KimiDelta.of(heads=count, head_width=head, gate_rank=head, conv_width=taps)
    vectors = count + inner + head  # decay of a head, bias of the decays, norm of the outputs
    return Piece(spec, below("self_attn", sizes), vectors)
