"""Do the FLOP laws say what a program multiplies? Against our decoder, exactly.

Every ``dot_general`` of the traced program, 2 FLOP per multiply-add. Linear attention
also decays and writes its state elementwise; operations on arrays of the state's shape are
counted with it, one FLOP an element. Norms, softmax, gates and rotations are in no law.

A masked matrix product computes the full square, a causal law half of it. So the decoder
multiplies each query with exactly the keys it sees, one position at a time: the count of pairs
is that of a kernel with perfect tiles, and no allowance is made for a block diagonal. The head
is on every token of the pass. Experts' matrices are gathered for the tokens routed to them.
"""

import pytest

from infer_jax.specs import Sparse

from . import cases
from .counting import Program, law

pytestmark = pytest.mark.usefixtures("x64")

PASSES = {  # sequences, new tokens, cached tokens
    "prefill": ((2, 8, 0), (3, 5, 0), (4, 3, 0)),
    "decode": ((1, 1, 16), (2, 1, 200), (5, 1, 63)),
    "chunk": ((1, 12, 1), (2, 6, 9), (1, 3, 40)),
}
# one shape of each every time: shapes are numbers of one program
FLAT = [
    pytest.param(phase, shape, marks=pytest.mark.slow if i else ())
    for phase, shapes in PASSES.items()
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
