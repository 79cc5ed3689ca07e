"""What parallel ranks divide in each layer: heads, experts and widths, as numbers.

A layout is legal where its degrees divide these numbers (``infer_jax.legal``). Which kind of
attention or feedforward a layer has is settled here, so that no rule has to ask.
"""

from typing import NamedTuple

from jax import Array

from infer_jax.physics import attention as att
from infer_jax.physics.attention import Cut as Cut
from infer_jax.specs import Architecture, Block, Dense, Experts


class ExpertCut(NamedTuple):
    """Routed experts of a layer, the width of one, and the rows and columns that share a scale."""

    experts: Array
    width: Array
    rows: Array
    columns: Array


class Division(NamedTuple):
    """What ranks divide in one layer of a block; a part that the layer lacks is an empty tuple.

    ``heads``: query heads and KV heads of the attention, one pair; ``projections``: its matrices
    that tensor ranks cut; ``dense``: the feedforward that every token passes, or the shared
    experts; ``mixture``: the routed experts.
    """

    count: Array
    heads: tuple[tuple[Array, Array | float], ...]
    projections: tuple[Cut, ...]
    dense: tuple[Cut, ...]
    mixture: tuple[ExpertCut, ...]


def divisions(arch: Architecture) -> list[Division]:
    """The divisions of a model's layers, one for each of its blocks."""
    return [_division(block) for block in arch.blocks]


def _division(block: Block) -> Division:
    empty = Division(block.count, (), (), (), ())
    if block.attention is not None:
        layer = att.of(block.attention)
        empty = empty._replace(heads=(layer.heads,), projections=layer.cuts)
    match block.feedforward:
        case Dense() as one:
            return empty._replace(dense=(_cut(one),))
        case Experts() as one:
            stored = one.weights
            mixture = ExpertCut(one.experts, one.width, stored.rows, stored.columns)
            return empty._replace(dense=(_cut(one.shared),), mixture=(mixture,))
        case _:
            return empty


def _cut(dense: Dense) -> Cut:
    return Cut(dense.width, dense.weights.columns)
