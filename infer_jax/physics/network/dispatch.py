"""How long do tokens take to their experts on other chips and back, and what does a ring carry?

One layer, seen by one chip, whose own tokens are meant. DeepEP's kernels send them once to each
copy's chip (low latency), or once to each node, whose chips forward them (normal).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.network.switch_collectives import Wire

COMBINED = 2.0  # bytes of a number on the way back: BF16 (DeepSeek-V3, arXiv 2412.19437, 3.3.3)


def seconds(rows: Array, width: Array, size: Array | float, bandwidth: Array) -> Array:
    """Seconds of sending ``rows`` tokens of ``width`` numbers of ``size`` bytes: y H b / w."""
    return rows * width * size / bandwidth


def ring_bytes(ranks: Array, size: Array) -> Array:
    """Bytes that each rank of a ring all-reduce of ``size`` bytes sends: 2 (r - 1) / r size.

    Source: Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms, Section 3.

    >>> float(ring_bytes(jnp.array(4.0), jnp.array(8.0)))
    12.0
    """
    several = ranks > 1.0
    return jnp.where(several, 2.0 * (ranks - 1.0) / jnp.where(several, ranks, 2.0) * size, 0.0)


def others_visited(places: Array, choices: Array) -> Array:
    """Places other than one's own that a token with ``choices`` experts visits, in expectation.

    (n - 1) (1 - (1 - 1/n)^k), experts drawn independently and evenly over n places.

    >>> float(others_visited(jnp.array(2.0), jnp.array(1.0)))
    0.5
    """
    several = places > 1.0
    inverse = 1.0 / jnp.where(several, places, 2.0)
    visited = -jnp.expm1(choices * jnp.log1p(-inverse))
    return jnp.where(several, (places - 1.0) * visited, 0.0)


def sent_bytes(bits: Array) -> Array:
    """Bytes of a number on its way to experts that multiply in ``bits``, with its scales.

    8 bits with a scale of 4 bytes for each 128 numbers (DeepSeek-V3, arXiv 2412.19437, Section
    3.3.2), 4 bits with one of a byte for each 16 (NVFP4), 16 bits without.

    >>> float(sent_bytes(jnp.array(8.0)))
    1.03125
    """
    return jnp.where(bits <= 4.0, 0.5 + 1.0 / 16.0, jnp.where(bits <= 8.0, 1.0 + 4.0 / 128.0, 2.0))


def low_latency(
    ranks: Array, copies: Array, size: Array, wire: Wire, crowd: Array | float = 1.0
) -> Array:
    """Seconds of sending tokens once to each of ``copies`` experts, on ranks at random.

    2 a + x c m ((d - 1) / w + (r - d) / w_x) / r: of r ranks d share a switch, and the busiest one
    gets x times, ``crowd``, the mean.
    Source: DeepEP V1, docs/legacy.md at 0297fc8, low-latency kernels "with pure RDMA".
    """
    inside = jnp.minimum(ranks, wire.domain)
    each = crowd * copies * size / ranks
    near, far = (inside - 1.0) / wire.rate, (ranks - inside) / wire.beyond
    return jnp.where(ranks > 1.0, 2.0 * wire.hop + each * (near + far), 0.0)


class Crowds(NamedTuple):
    """Load of the busiest rank and of the busiest node over the mean of each."""

    rank: Array | float = 1.0
    node: Array | float = 1.0


def nodes_of(ranks: Array, wire: Wire) -> Array:
    """Nodes, each a switch, that ``ranks`` are on; at least one."""
    return jnp.maximum(ranks / wire.domain, 1.0)


def normal(
    ranks: Array,
    copies: Array,
    size: Array,
    wire: Wire,
    nodes: Array,
    crowds: Crowds = Crowds(),  # noqa: B008
) -> Array:
    """Seconds of sending tokens once to each node that they visit, and there to each rank.

    2 a + max(x_n R m / w_x, x P m / w), P ranks and R nodes that a token visits beside its own, x
    and x_n ``crowds``. With node-limited routing its experts are on M = min(r / d, ``nodes``) of
    the r / d nodes, and R = M (1 - (1 - 1/M)^c) (1 - d / r).
    Source: DeepSeek-V3 (arXiv 2412.19437), Section 3.2.2: at most 4 nodes a token, sent over
    InfiniBand first and forwarded over NVLink, "fully overlapped".
    """
    there = nodes_of(ranks, wire)
    among = jnp.minimum(there, nodes)
    # others_visited is of n places less one's own: n - 1 of them
    several = among > 1.0
    others = jnp.where(several, among - 1.0, 1.0)
    visited = others_visited(among, copies) * among / others
    remote = jnp.where(several, visited, 1.0) * (1.0 - 1.0 / there)
    far = crowds.node * remote / wire.beyond
    near = crowds.rank * others_visited(ranks, copies) / wire.rate
    return jnp.where(ranks > 1.0, 2.0 * wire.hop + size * jnp.maximum(far, near), 0.0)
