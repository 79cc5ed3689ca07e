"""Parameters of an architecture, counted from the shapes of its matrices.

Written apart from the laws of the package, which the tests here do not lean on.
"""

from typing import Any

from infer_jax.specs import (
    Architecture,
    Compressed,
    Dense,
    Experts,
    GroupedQuery,
    Latent,
    Linear,
    Sparse,
    StateSpace,
)


def attention_elements(spec: Any, width: float) -> Any:
    """Elements of an attention layer's matrices, counted from their shapes."""
    match spec:
        case None:
            return 0.0
        case GroupedQuery():
            queries = spec.query_heads * spec.head_width * (1 + spec.query_gate)
            value = spec.value_width if spec.kv_matrices == 2 else 0.0
            key = spec.head_width if spec.kv_matrices >= 1 else 0.0
            into = queries + spec.kv_heads * (key + value)
            return width * (into + spec.query_heads * spec.value_width)
        case Latent():
            head = spec.nope_width + spec.rope_width
            if spec.query_rank:
                queries = spec.query_rank * (width + spec.query_heads * head)
            else:
                queries = width * spec.query_heads * head
            up = spec.kv_rank * spec.query_heads * (spec.nope_width + spec.value_width)
            down = width * (spec.kv_rank + spec.rope_width)
            return queries + down + up + spec.query_heads * spec.value_width * width
        case Sparse():
            queries = spec.index_query_input * spec.index_heads * spec.index_width
            keys = width * (spec.index_width + spec.index_heads)
            return attention_elements(spec.base, width) + queries + keys
        case Compressed():
            inner = spec.query_heads * spec.head_width
            pools = 2 * spec.overlap if spec.ratio else 0.0
            keys = spec.query_rank + spec.head_width + pools * (spec.head_width + spec.index_width)
            out = spec.output_rank * (inner + spec.output_groups * width)
            queries = spec.query_rank * (inner + spec.index_heads * spec.index_width)
            return width * (keys + spec.index_heads) + queries + out
        case Linear():
            keys = spec.key_heads * spec.key_width
            values = spec.value_heads * spec.value_width
            into = width * (2 * keys + 2 * values + spec.head_gates * spec.value_heads)
            return into + (2 * keys + values) * spec.conv_width + values * width
        case StateSpace():
            inner = 3 * width + spec.conv_width + 2 * spec.state_width + 2 * spec.step_rank
            return spec.channels * inner
    raise TypeError(type(spec))


def feedforward_elements(spec: Any, width: float, active: bool) -> Any:
    """Elements of a feedforward's matrices; of a mixture, all experts or the active ones."""
    match spec:
        case None:
            return 0.0
        case Dense():
            return (spec.inward + 1) * width * spec.width
        case Experts():
            outer = spec.outer_width or width
            routed = (spec.active if active else spec.experts) * (spec.inward + 1)
            shared = feedforward_elements(spec.shared, width, active)
            return routed * outer * spec.width + width * spec.experts * spec.router + shared
    raise TypeError(type(spec))


def parameters(arch: Architecture, active: bool = False) -> float:
    """All parameters of an architecture, or those one token uses."""
    width = float(arch.width)
    total = arch.vocabulary * width * (2 - arch.tied) + arch.vectors
    for block in arch.blocks:
        total += block.count * (
            attention_elements(block.attention, width)
            + feedforward_elements(block.feedforward, width, active)
            + block.vectors
        )
    return float(total)
