"""Collectives on the axes of a torus, and what a layer sends that is split over chips.

Sizes of collectives are bytes of the larger buffer of one chip: what an all-gather ends with, what
a reduce-scatter starts with, what an all-to-all exchanges. Launch latencies are counted apart.
Source: Pope et al. 2022 (arXiv 2211.05102), Appendix A.1, after Chan et al. 2007.

One family holds the five layouts of Section 3.2. Weights rest cut in E over x chips and in F over
y z chips. For a pass they are gathered over N chips (N = 1: stationary) and the tokens are dealt to
N groups; each group of m = n / N chips multiplies its tokens with matrices that it cuts into s
parts of E and m / s parts of F:

| layout | N | s |
|---|---|---|
| 1-D weight-stationary | 1 | 1 |
| 2-D weight-stationary | 1 | x |
| weight-gathered over x, over x y, over x y z | x, x y, x y z | 1 |

Volumes are elements that a chip sends in one layer; a chip's part of a collective over K chips
is (K - 1) / K of its larger buffer.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import present, square_root
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


class SlicedLayout(NamedTuple):
    """A layout: n chips, gathered over N of them, E in s parts within a group."""

    chips: Array
    gathered: Array
    rows: Array

    @property
    def group(self) -> Array:
        """Chips that work on the same tokens: n / N."""
        return self.chips / self.gathered

    @property
    def columns(self) -> Array:
        """Parts of F within a group: n / (N s)."""
        return self.group / self.rows


def outer_buffer(width: Array, cut: SlicedLayout) -> Array:
    """Elements per token of the two collectives about a layer's input and output: 2 E / s.

    They run over the m / s parts of F. Source: Pope et al. 2022, Sections 3.2.1 to 3.2.3.
    """
    return 2.0 * width / cut.rows


def inner_buffer(inward: Array, outward: Array, cut: SlicedLayout) -> Array:
    """Elements per token of the two collectives about the hidden layer: (F_in + F_out) / (m / s).

    ``inward`` is all that the input matrices make (two matrices of F where gated), which is
    reduce-scattered over the s parts; ``outward`` what the output matrix reads, which is
    all-gathered over them. Source: Pope et al. 2022, Section 3.2.2.
    """
    return (inward + outward) / cut.columns


def gathered_buffer(weights: Array, cut: SlicedLayout) -> Array:
    """Elements of weights that a chip has once they are gathered over N chips: W N / n."""
    return weights / cut.group


def gathered_elements(weights: Array, cut: SlicedLayout) -> Array:
    """Elements of weights that a chip fetches in one layer: W N / n (N - 1) / N.

    Source: Pope et al. 2022, Section 3.2.3, Appendix A.2.2 (W = 2 E F there).
    """
    return gathered_buffer(weights, cut) * others(cut.gathered)


def best_rows(chips: Array, width: Array, hidden: Array, inward: Array) -> Array:
    """The real number of parts of E that makes 2-D weight-stationary send least.

    X* = sqrt(2 n E / ((inward + 1) F)), at which Y Z* = n / X*; with one inward matrix the
    paper's sqrt(n E / F), 0.5 sqrt(n) at F = 4 E. Two inward matrices (SwiGLU) move it by
    sqrt(2/3) = 0.816. The (K - 1)/K of both sides is taken as 1.
    Source: Pope et al. 2022, Appendix A.2.1.

    >>> [round(float(best_rows(*map(jnp.asarray, (64.0, 1.0, 4.0, i)))), 3) for i in (1.0, 2.0)]
    [4.0, 3.266]
    """
    return square_root(2.0 * chips * width / ((inward + 1.0) * hidden))


def best_gathered(tokens: Array, chips: Array, hidden: Array, inward: Array) -> Array:
    """The real number of chips to gather weights over that makes a layer send least.

    N* = sqrt(2 B L n / ((inward + 1) F)); with one inward matrix the paper's sqrt(B L n / F).
    Source: Pope et al. 2022, Appendix A.2.2.

    >>> float(best_gathered(*map(jnp.asarray, (4096.0, 64.0, 1024.0, 1.0))))
    16.0
    """
    return square_root(2.0 * tokens * chips / ((inward + 1.0) * hidden))


def fill(rows: Array, columns: Array, tokens: Array, half_width: Array, half_rows: Array) -> Array:
    """By how much a matmul on a shard takes longer than a large one: at least 1.

    1 + w/2 (1/k + 1/m) + r/t for a k x m shard and t tokens: at widths of ``half_width`` (w),
    or at ``half_rows`` (r) tokens, half of the rate is reached. The form is that of an
    arithmetic unit that waits for k t + m t + k m operands per 2 k m t FLOP.
    """
    ready = half_width / 2.0 * (1.0 / jnp.maximum(rows, 1.0) + 1.0 / jnp.maximum(columns, 1.0))
    return 1.0 + ready + half_rows / jnp.maximum(tokens, 1e-6)
