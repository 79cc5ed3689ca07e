"""How long does a collective take: NCCL's tree, a ring on a torus, a square-root law?

Ranks, nodes and bytes are real numbers; a collective of one rank or fewer takes no time. By the
last law, the fastest instance has a closed form where only it and weight reads count. Published
estimators take these; that of serving takes those of ``switch_collectives``.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import present, square_root
from infer_jax.specs import Spec, number, spec


@spec
class Protocol(Spec):
    """An NCCL protocol: its latencies, and the share of bandwidth it reaches."""

    intra: Array = number("latency of a hop inside a node", unit="s", kind="time")
    inter: Array = number("latency of a hop between nodes", unit="s", kind="time")
    base: Array = number("latency of the launch", unit="s", kind="time")
    efficiency: Array = number("share of bandwidth reached", kind="fraction", high=1)


def nccl_protocols() -> tuple[Protocol, ...]:
    """LL, LL128 and Simple with the latencies of NCCL's tuning table (src/graph/tuning.cc).

    Source: NCCL 2.x, as used by Erdil 2025 (arXiv 2506.04645), Section 3.3.
    """
    table = ((0.6, 5.0, 6.8, 0.5), (1.25, 8.5, 14.0, 0.95), (28.0, 28.0, 0.0, 1.0))
    return tuple(
        Protocol.of(intra=i * 1e-6, inter=x * 1e-6, base=b * 1e-6, efficiency=e)
        for i, x, b, e in table
    )


@spec
class Link(Spec):
    """The all-reduce bandwidths of one chip inside its node and between nodes."""

    intra: Array = number("bandwidth inside a node", unit="bytes/s", kind="rate")
    inter: Array = number("bandwidth between nodes", unit="bytes/s", kind="rate")


class Tree(NamedTuple):
    """NCCL's tree over r ranks on n nodes, and its levels between nodes, log2 n."""

    ranks: Array
    nodes: Array
    levels: Array

    @classmethod
    def of(cls, ranks: Array, nodes: Array) -> "Tree":
        """The tree over these ranks and nodes, both above 0."""
        return cls(ranks, nodes, jnp.log2(nodes))

    def row(self) -> "Tree":
        """The tree over one row of a square of these ranks: sqrt r ranks on sqrt n nodes."""
        return Tree(square_root(self.ranks), square_root(self.nodes), 0.5 * self.levels)

    def seconds(
        self, each: Array, link: Link, protocols: tuple[Protocol, ...], *, reduces: bool
    ) -> Array:
        """Seconds of ``nccl_tree`` where each rank's share b / r of the bytes is what is known."""
        ranks, nodes, levels = self
        passes, share = (2.0, 1.0) if reduces else (1.0, 0.5)
        hops = ranks / nodes - 1.0
        # rates are inverted while they are scalars: a grid is spared the divisions; a tier that
        # is absent has rate 0, which 1 byte/s stands for: never chosen, never 0 times infinity
        inside = jnp.maximum(ranks - nodes, 0.0) * (share / present(link.intra))
        between = (nodes - 1.0) * (share / present(link.inter))
        transfer = jnp.maximum(inside, between) * each
        best = None
        for p in protocols:
            latency = hops * (passes * p.intra) + (levels * (passes * p.inter) + p.base)
            time = transfer * (1.0 / p.efficiency) + latency
            best = time if best is None else jnp.minimum(best, time)
        assert best is not None
        return jnp.where(ranks > 1.0, best, 0.0)


def nccl_tree(
    ranks: Array,
    nodes: Array,
    size: Array,
    link: Link,
    protocols: tuple[Protocol, ...],
    *,
    reduces: bool,
) -> Array:
    """Seconds of an all-reduce (``reduces``) or all-to-all of ``size`` bytes: the best protocol.

    latency = base + m ((r/n - 1) intra + log2(n) inter), m = 2 for all-reduce and 1 else;
    transfer = max(n max(0, r/n - 1) b / (r beta_i phi), (n - 1) b / (r beta_x phi)), halved
    unless all-reduce; the least sum over the protocols.
    For ranks and nodes above 0.
    Source: Erdil 2025 (arXiv 2506.04645), Sections 3.3 and 3.4, Eqs. 23, 26 to 28, 39 to 42.
    """
    return Tree.of(ranks, nodes).seconds(size / ranks, link, protocols, reduces=reduces)


def torus_ring(ranks: Array, size: Array, bandwidth: Array, hop: Array, *, reduces: bool) -> Array:
    """Seconds of a collective around a ring of chips wired to their neighbours.

    m (r - 1) hop + (r - 1) b / (r beta), the second term halved unless all-reduce.
    Source: the reference implementation of Erdil 2025 (arXiv 2506.04645).
    """
    passes, share = (2.0, 1.0) if reduces else (1.0, 0.5)
    steps = ranks - 1.0
    time = passes * steps * hop + share * steps * size / (ranks * present(bandwidth))
    return jnp.where(ranks > 1.0, time, 0.0)


def square_root_latency(chips: Array, hop: Array, base: Array) -> Array:
    """Seconds of one all-reduce at infinite bandwidth: hop * max(sqrt(N) - 1, 0) + base.

    Source: Erdil 2025 (arXiv 2506.04645), Section 2.2.1.
    """
    return hop * jnp.maximum(square_root(chips) - 1.0, 0.0) + base


class Fastest(NamedTuple):
    """Chips and time per token of the fastest instance."""

    chips: Array
    time: Array


def fastest_instance(hops: Array, read: Array) -> Fastest:
    """The minimum over N of hops (sqrt(N) - 1) + read / N, in chips and seconds.

    N* = max(1, (2 read / hops)^(2/3)), time = 3 (hops/2)^(2/3) read^(1/3) - hops, with
    ``hops`` = layers x all-reduces x hop latency and ``read`` the seconds one chip needs to
    read all weights, ``hops`` above 0. At N* = 1 the time is ``read``, the gradient that of it.
    Source: Erdil 2025 (arXiv 2506.04645), Section 2.2.3, Eqs. 13 and 14.

    >>> [round(float(x), 3) for x in fastest_instance(jnp.asarray(1.0), jnp.asarray(4.0))]
    [4.0, 2.0]
    """
    many = 2.0 * read > hops
    long = jnp.where(many, read, 1.0)  # the roots below have no gradient at a read of 0
    chips = jnp.where(many, (2.0 * long / hops) ** (2.0 / 3.0), 1.0)
    time = 3.0 * (hops / 2.0) ** (2.0 / 3.0) * long ** (1.0 / 3.0) - hops
    return Fastest(chips, jnp.where(many, time, read))
