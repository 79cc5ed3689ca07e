"""Does the referee itself compute attention? Cached passes against full recomputation.

Weights, activations and caches are float64, so that the two agree to 1e-10 of the largest
logit: rounding of different summation orders, and nothing of a wrong mask, window or state.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from . import cases
from .decoder import Decoder, drawn

pytestmark = pytest.mark.usefixtures("x64")

PASSES = (3, 1, 2)  # prefill, a decode step, a chunk
TOKENS = sum(PASSES)
WINDOW = 2
TOLERANCE = 1e-10


def model(kind: str, *, absorbed: bool = False, window: int = WINDOW) -> Decoder:
    """A decoder of one layer, everything in float64.

    One is enough: if all its outputs agree, so do the inputs of any layer behind it.
    """
    arch = cases.decoder(
        kind, scale=4, window=window, feedforwards=("shared",), cache=8.0, state=8.0, index=8.0
    )
    norms = kind in cases.HEAD_NORMS
    return drawn(arch, absorbed=absorbed, head_norms=norms, dtype=jnp.float64)


def compiled(function):
    """``function`` of a decoder, compiled without the optimiser: programs here run once."""

    def run(decoder: Decoder):
        structure, numbers = nnx.split(decoder)
        options = {"xla_backend_optimization_level": 0}
        program = jax.jit(lambda n: function(nnx.merge(structure, n)), compiler_options=options)
        return program(numbers)

    return run


def tokens():
    """Two prompts, longer than the window."""
    return np.random.default_rng(1).integers(0, 50, (2, TOKENS))


@compiled
def textbook(decoder: Decoder):
    """Logits of all tokens at once by masked squares, without a cache."""
    return decoder(tokens(), decoder.empty(2), masked=True)[0]


@compiled
def in_passes(decoder: Decoder):
    """Logits of one pass after the other, each over the cache that the last one left."""
    caches, first, logits = decoder.empty(2), 0, []
    for size in PASSES:
        out, caches = decoder(tokens()[:, first : first + size], caches, first)
        logits.append(out)
        first += size
    return jnp.concatenate(logits, 1)


def agree(a, b):
    """The largest difference is within the tolerance of the largest value."""
    np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE * float(jnp.abs(b).max()))


QUICK = ("window", "latent", "delta")  # of each way to remember one; all on each release


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in QUICK else pytest.mark.slow) for k in cases.KINDS]
)
def test_cached_equals_recomputed(kind):
    decoder = model(kind)
    agree(in_passes(decoder), textbook(decoder))


@pytest.mark.parametrize("kind", ["latent", "sparse"])
def test_absorbed_equals_expanded_with_and_without_cache(kind):
    absorbed, expected = model(kind, absorbed=True), textbook(model(kind))
    agree(textbook(absorbed), expected)
    agree(in_passes(absorbed), expected)


@pytest.mark.parametrize("kind", ["window", "sparse"])
def test_the_window_and_the_top_k_matter(kind):
    narrow, full = textbook(model(kind)), textbook(model(kind, window=TOKENS))
    difference = np.abs(narrow - full).max(axis=(0, 2))
    assert np.all(difference[:WINDOW] < 1e-10) and np.all(difference[WINDOW:] > 1e-6)
