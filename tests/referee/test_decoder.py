"""Do the laws of parameters, cache and FLOP say what a decoder holds and multiplies? Exactly.

FLOP: every ``dot_general`` of the traced program, 2 FLOP per multiply-add. Linear attention
also decays and writes its state elementwise; operations on arrays of the state's shape are
counted with it, one FLOP an element. Norms, softmax, gates and rotations are in no law.

A masked matrix product computes the full square, a causal law half of it. So the decoder
multiplies each query with exactly the keys it sees, one position at a time: the count of pairs
is that of a kernel with perfect tiles, and no allowance is made for a block diagonal. The head
is on every token of the pass. Experts' matrices are gathered for the tokens routed to them.

The decoder itself computes attention: cached passes are held to all tokens in one. Weights,
activations and caches are float64 there, so that the two agree to 1e-10 of the largest logit:
rounding of different summation orders, and nothing of a wrong mask, window or state.
"""

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

from infer_jax import specs
from infer_jax.physics import attention as att, decoder, feedforward as ffn, matmul
from infer_jax.specs import Architecture, Attention, Feedforward, Sparse

from . import cases
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


pytestmark = pytest.mark.usefixtures("x64")

# at the window of 5 and beyond; before it
CONTEXTS = (5, 19, *(pytest.param(x, marks=pytest.mark.slow) for x in (0, 2)))


def parameters(arch) -> float:
    """Parameters by the laws."""
    return float(sum(decoder.parameters(arch).values()))


@pytest.mark.parametrize("kind", cases.KINDS)
def test_parameters(kind):
    feeds = ("gated", "plain", "experts", "shared")
    arch = cases.decoder(kind, scale=3, feedforwards=feeds, layers=2)
    program = Program(arch, 1, 1, 0, head_norms=kind in cases.HEAD_NORMS)
    assert parameters(arch) == program.parameters


def test_parameters_of_a_hybrid_that_looks_up_words_by_its_head():
    arch = cases.hybrid(3)
    assert parameters(arch) == Program(arch, 1, 1, 0).parameters


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", cases.KINDS)
def test_cache(kind, context):
    arch = cases.decoder(kind, scale=3, layers=2)
    program = Program(arch, 3, 1, context, head_norms=kind in cases.HEAD_NORMS)
    held = float(decoder.cache_bytes(arch, jnp.asarray(float(context))))
    assert 3.0 * held == program.cache_bytes


@pytest.mark.parametrize("formats", [(2.0, 4.0, 1.0), (1.0, 2.0, 2.0), (4.0, 8.0, 4.0)])
def test_cache_of_a_hybrid_in_other_formats(formats):
    cache, state, index = formats
    arch = cases.hybrid(3, cache=cache, state=state, index=index)
    program = Program(arch, 2, 1, 9)
    assert 2.0 * float(decoder.cache_bytes(arch, jnp.asarray(9.0))) == program.cache_bytes


SHAPES = {  # sequences, new tokens, cached tokens
    "prefill": ((2, 8, 0), (3, 5, 0), (4, 3, 0)),
    "decode": ((1, 1, 16), (2, 1, 200), (5, 1, 63)),
    "chunk": ((1, 12, 1), (2, 6, 9), (1, 3, 40)),
}
# one shape of each every time: shapes are numbers of one program
FLAT = [
    pytest.param(phase, shape, marks=pytest.mark.slow if i else ())
    for phase, shapes in SHAPES.items()
    for i, shape in enumerate(shapes)
]
LATENT = ("latent", "direct", "sparse")


def program(kind: str, arch, shape, absorbed: bool = False) -> Program:
    """One pass of a kind, latent attention expanded or absorbed."""
    return Program(arch, *shape, absorbed=absorbed, head_norms=kind in cases.HEAD_NORMS)


@pytest.mark.parametrize("kind", cases.KINDS)
@pytest.mark.parametrize(("phase", "shape"), FLAT)
def test_products_exactly(kind, phase, shape):
    arch = cases.decoder(kind, scale=8, feedforwards=("plain", "shared"))
    forms = (False, True) if kind in LATENT else (False,)
    assert law(arch, *shape) == min(program(kind, arch, shape, f).multiplied() for f in forms)


def test_products_of_feedforwards_alone():
    block = cases.block
    feeds = [cases.feedforward(name, 2) for name in ("gated", "plain", "experts", "shared")]
    arch = cases.assembled([block(None, feed, 32, 1) for feed in feeds], 32)
    assert law(arch, 3, 5, 0) == Program(arch, 3, 5, 0).multiplied()


def test_sparse_chunk_expands_what_any_of_its_tokens_may_choose():
    """With a wide latent and narrow heads expansion is cheaper, of all the cache here."""
    sparse, vectors = cases.attention("sparse", 1, 5)
    assert isinstance(sparse, Sparse)
    base = sparse.base.with_(nope_width=1.0, value_width=1.0, kv_rank=16.0)
    arch = cases.assembled([cases.block(sparse.with_(base=base), None, vectors, 1)], 16)
    shape = (1, 12, 20)
    expanded, absorbed = (program("sparse", arch, shape, f).multiplied() for f in (False, True))
    assert expanded < absorbed
    assert law(arch, *shape) == expanded


PASSES = (3, 1, 2)  # prefill, a decode step, a chunk
TOKENS = sum(PASSES)
WINDOW = 2


def answers(kind: str, passes=PASSES, *, absorbed: bool = False, window: int = WINDOW):
    """Logits of two prompts in passes over the caches that the last one left, and these caches.

    Of one layer, everything in float64: if all its outputs agree, so do the inputs of any layer
    behind it. Compiled without the optimiser, for it runs once.
    """
    arch = cases.decoder(
        kind, scale=4, window=window, feedforwards=("shared",), cache=8.0, state=8.0, index=8.0
    )
    norms, weights = kind in cases.HEAD_NORMS, Weights(np.float64, drawn=True)
    decoder = Decoder(arch, weights, absorbed=absorbed, head_norms=norms)
    tokens = np.random.default_rng(1).integers(0, 50, (2, TOKENS))

    def run():
        caches, first, logits = decoder.empty(2), 0, []
        for size in passes:
            out, caches = decoder(tokens[:, first : first + size], caches, first)
            logits.append(out)
            first += size
        return jnp.concatenate(logits, 1), caches, decoder.empty(2, TOKENS)

    return jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})()


def agree(a, b):
    """The largest difference of logits is within 1e-10 of the largest."""
    np.testing.assert_allclose(a[0], b[0], rtol=0, atol=1e-10 * float(jnp.abs(b[0]).max()))


QUICK = ("window", "latent", "delta")  # of each way to remember one; all on each release


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in QUICK else pytest.mark.slow) for k in cases.KINDS]
)
def test_cached_equals_recomputed(kind):
    """And the caches that are left have the sizes that the laws are held to."""
    found = answers(kind)
    agree(found, answers(kind, (TOKENS,)))
    assert jax.tree.map(jnp.shape, found[1]) == jax.tree.map(jnp.shape, found[2])


@pytest.mark.parametrize("kind", ["latent", "sparse"])
def test_absorbed_equals_expanded_over_a_cache(kind):
    agree(answers(kind, absorbed=True), answers(kind, (TOKENS,)))


@pytest.mark.parametrize("kind", ["window", "sparse"])
def test_the_window_and_the_top_k_matter(kind):
    narrow, full = (answers(kind, (TOKENS,), window=window)[0] for window in (WINDOW, TOKENS))
    difference = np.abs(narrow - full).max(axis=(0, 2))
    assert np.all(difference[:WINDOW] < 1e-10) and np.all(difference[WINDOW:] > 1e-6)
