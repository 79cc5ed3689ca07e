"""Do the laws of parameters and cache say what arrays really hold? Exactly, to the byte."""

import jax.numpy as jnp
import pytest

from infer_jax.physics import decoder

from . import cases
from .counting import Program

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
    assert (
        3.0 * float(decoder.cache_bytes(arch, jnp.asarray(float(context)))) == program.cache_bytes
    )


@pytest.mark.parametrize("formats", [(2.0, 4.0, 1.0), (1.0, 2.0, 2.0), (4.0, 8.0, 4.0)])
def test_cache_of_a_hybrid_in_other_formats(formats):
    cache, state, index = formats
    arch = cases.hybrid(3, cache=cache, state=state, index=index)
    program = Program(arch, 2, 1, 9)
    assert 2.0 * float(decoder.cache_bytes(arch, jnp.asarray(9.0))) == program.cache_bytes
