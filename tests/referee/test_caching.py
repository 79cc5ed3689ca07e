"""Does the referee itself compute attention? Cached passes against all tokens in one.

Weights, activations and caches are float64, so that the two agree to 1e-10 of the largest
logit: rounding of different summation orders, and nothing of a wrong mask, window or state.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from . import cases
from .attending import Weights
from .decoder import Decoder

pytestmark = pytest.mark.usefixtures("x64")

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
