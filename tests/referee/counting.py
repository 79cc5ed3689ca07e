"""What do the laws say of a pass, and what does a compiled pass really multiply?"""

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from infer_jax import specs
from infer_jax.physics import attention as att, feedforward as ffn, matmul
from infer_jax.specs import Architecture, Attention, Feedforward

from .attending import Weights
from .decoder import Decoder


def projected(feedforward: Feedforward, width, tokens: float) -> float:
    """FLOP of a feedforward by the laws: active experts, shared ones and the router."""
    routed = ffn.routed_elements(feedforward, width) / ffn.sparsity(feedforward)
    common = ffn.common_elements(feedforward, width) + ffn.router_elements(feedforward, width)
    return float(2.0 * tokens * (routed + common))


def mixed(attention: Attention, width, sequences: float, new: float, cached: float) -> float:
    """FLOP of an attention layer by the laws: projections and core."""
    through = matmul.flops(att.of(attention).matrices(width), jnp.asarray(sequences * new))
    core = att.of(attention).core_flops(jnp.asarray(float(new)), jnp.asarray(float(cached)))
    return float(through + sequences * core)


def law(arch: Architecture, sequences: int, new: int, cached: int) -> float:
    """FLOP of one pass by the laws: every block, and the head on every token."""
    total = 2.0 * float(arch.vocabulary * arch.width) * sequences * new
    for block in arch.blocks:
        count = float(block.count)
        if block.attention is not None:
            total += count * mixed(block.attention, arch.width, sequences, new, cached)
        if block.feedforward is not None:
            total += count * projected(block.feedforward, arch.width, sequences * new)
    return total


class Program:
    """One pass of a decoder over a cache of ``cached`` tokens, never run: shapes only."""

    def __init__(self, arch: Architecture, sequences: int, new: int, cached: int, **choices: bool):
        self.weights, self.states = Weights(), state_shapes(arch, sequences)
        decoder = Decoder(arch, self.weights, **choices)
        self.caches = jax.eval_shape(lambda: decoder.empty(sequences, cached))
        tokens = jax.ShapeDtypeStruct((sequences, new), jnp.int32)
        self.traced = jax.make_jaxpr(partial(decoder, first=cached))(tokens, self.caches)

    @property
    def parameters(self) -> int:
        """Parameters of the decoder."""
        return sum(x.size for x in self.weights.held.values())

    @property
    def cache_bytes(self) -> int:
        """Bytes of the caches before the pass."""
        return sum(prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(self.caches))

    def multiplied(self) -> int:
        """FLOP of all matrix products, and of elementwise work on recurrent states, exactly."""
        return sum(_flops(e, self.states) for e in _equations(self.traced.jaxpr))


def state_shapes(arch: Architecture, sequences: int) -> set[tuple[int, ...]]:
    """The shapes of the recurrent states, whose decay and write are work the laws count."""
    return {
        (sequences, *(int(n) for n in (a.value_heads, a.key_width, a.value_width)))
        for a in (b.attention for b in arch.blocks)
        if isinstance(a, specs.Linear)
    }


def _equations(jaxpr: Jaxpr) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        inner = [v for v in equation.params.values() if isinstance(v, Jaxpr | ClosedJaxpr)]
        if not inner:
            yield equation
        for part in inner:
            assert equation.primitive.name not in ("scan", "while", "cond"), "not counted"
            yield from _equations(part.jaxpr if isinstance(part, ClosedJaxpr) else part)


def _flops(equation: Any, states: set[tuple[int, ...]]) -> int:
    out = equation.outvars[0].aval
    match equation.primitive.name:
        case "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            return 2 * prod(out.shape) * prod(left[i] for i in contracted)
        case "mul" | "add" | "sub" if out.shape in states:
            return int(np.prod(out.shape))
        case "conv_general_dilated" | "ragged_dot_general" | "custom_call":
            raise AssertionError(f"{equation.primitive.name} is not counted")
    return 0
