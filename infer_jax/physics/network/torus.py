"""How long does a collective take on the axes of a torus, and inside nodes that a network joins?

Sizes are bytes of the larger buffer of one chip: what an all-gather ends with, what a
reduce-scatter starts with, what an all-to-all exchanges. Launch latencies are counted apart.
Source: Pope et al. 2022 (arXiv 2211.05102), Appendix A.1, after Chan et al. 2007.
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import present
from infer_jax.specs import Hierarchy


def others(ranks: Array) -> Array:
    """The share of a buffer that ``ranks`` chips hold elsewhere: (K - 1) / K; 0 up to one.

    >>> float(others(jnp.asarray(4.0))), float(others(jnp.asarray(1.0)))
    (0.75, 0.0)
    """
    return 1.0 - 1.0 / jnp.maximum(ranks, 1.0)


def all_gather(size: Array, ranks: Array, bandwidth: Array) -> Array:
    """Seconds to gather ``size`` bytes on each of K chips: size / bandwidth * (K - 1) / K."""
    return size / present(bandwidth) * others(ranks)


def reduce_scatter(size: Array, ranks: Array, bandwidth: Array) -> Array:
    """Seconds to sum ``size`` bytes over K chips and leave each its part: as all_gather."""
    return all_gather(size, ranks, bandwidth)


def all_reduce(size: Array, ranks: Array, bandwidth: Array) -> Array:
    """Seconds of a reduce-scatter and an all-gather: 2 size / bandwidth * (K - 1) / K.

    >>> float(all_reduce(jnp.asarray(8.0), jnp.asarray(4.0), jnp.asarray(3.0)))
    4.0
    """
    return reduce_scatter(size, ranks, bandwidth) + all_gather(size, ranks, bandwidth)


def all_to_all(size: Array, ranks: Array, bandwidth: Array) -> Array:
    """Seconds in which each of K chips sends all but its own part of ``size`` bytes.

    size / bandwidth * (K - 1) / K: the injection bound, which a long ring does not reach.
    """
    return all_gather(size, ranks, bandwidth)


def steps(ranks: Array) -> Array:
    """Steps that follow each other in a collective over K chips: log2 K, 0 up to one chip.

    A doubling of the chips is one step more, whether they are on one axis or on several, so
    that a collective over x y z takes as many steps as one over x and one over y z. On a ring
    of 2 or 4 with links both ways it is the hops to the farthest chip; longer ones take more.

    >>> round(float(steps(jnp.asarray(64.0))), 3), float(steps(jnp.asarray(0.5)))
    (6.0, 0.0)
    """
    return jnp.log2(jnp.maximum(ranks, 1.0))


def node_gather(size: Array, ranks: Array, network: Hierarchy) -> Array:
    """Seconds to gather ``size`` bytes on each of K chips that sit in nodes.

    Between m = K / d nodes every chip fetches its share of the parts elsewhere, then the d
    chips of a node exchange: size (1 - 1/m) / (d beta_net) + size (d - 1) / (d beta_node).
    Inside one node (K <= the domain) this is ``all_gather``.

    >>> net = Hierarchy.of(domain=8, domain_bandwidth=14.0, network_bandwidth=1.0)
    >>> [float(node_gather(jnp.asarray(16.0), jnp.asarray(k), net)) for k in (8.0, 16.0)]
    [1.0, 2.0]
    """
    inside = jnp.minimum(ranks, network.domain)
    nodes = ranks / jnp.maximum(inside, 1.0)
    between = size / jnp.maximum(inside, 1.0) * others(nodes)
    between = between / present(network.network_bandwidth)
    return between + all_gather(size, inside, network.domain_bandwidth)
