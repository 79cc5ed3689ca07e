"""How long does a collective take among chips on one switch, and among several switches?

Seen by one chip; sizes are the bytes of activations that it holds, rates are of one direction.
Coefficients (latency of a hop, share of the rate) are given with the rate. Collectives of one
rank take no time.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.numerics import present
from infer_jax.specs import Hierarchy, Torus


class Wire(NamedTuple):
    """What a collective runs over: seconds a hop, bytes/s reached, bytes of the larger shot.

    Up to ``domain`` chips share the switch; beyond it each chip sends at ``beyond`` bytes/s, and a
    hop takes ``far`` seconds. ``pair``: the share of ``rate`` between two chips, 1 through a
    switch; where each pair has a link of its own, r of them reach (r - 1) ``pair`` of it at most.
    """

    hop: Array
    rate: Array
    one_shot: Array
    domain: Array
    beyond: Array
    pair: Array | float = 1.0
    far: Array | float = 0.0


def reach(network: Hierarchy | Torus) -> tuple[Array, Array, Array]:
    """Chips that share a switch, bytes/s of a chip inside it and beyond it.

    A torus counts as one switch at the rate of a link. An absent tier has rate 0: a byte a
    second, slow and finite.
    """
    if isinstance(network, Hierarchy):
        beyond = present(network.network_bandwidth)
        return network.domain, present(network.domain_bandwidth), beyond
    link = present(network.link_bandwidth)
    return jnp.asarray(2.0**20), link, link


def pair_share(network: Hierarchy | Torus) -> Array | float:
    """Share of a chip's rate in its domain that goes to one other: 1 through a switch.

    On MI300X a link to each of seven others (ROCm blogs, Understanding RCCL bandwidth and xGMI
    performance on AMD Instinct MI300X, 2025): two ranks have one seventh of it.
    """
    if isinstance(network, Torus):
        return 1.0
    direct = network.pair_bandwidth > 0.0
    return jnp.where(direct, network.pair_bandwidth / present(network.domain_bandwidth), 1.0)


def link_rate(network: Hierarchy | Torus, chips: Array) -> Array:
    """Bytes/s of a chip's link among ``chips``: inside a switch where all share it, else beyond."""
    domain, near, beyond = reach(network)
    return jnp.where(chips <= domain, near, beyond)


def all_reduce(ranks: Array, size: Array, wire: Wire) -> Array:
    """Seconds to sum ``size`` bytes over ``ranks`` chips.

    a log2 r + (r - 1) [2/r + (1 - 2/r) / (1 + m/m0)] m / w inside one switch. Small messages go
    in one shot, to all others at once, (r - 1) m; large ones in two, scatter and gather,
    2 (r - 1) / r m; around m0 bytes the one fades into the other. Where pairs have links of their
    own, w is that of r - 1 links. Over several switches the ranks of a switch share what crosses:
    2 (a_x log2 k + (k - 1) / k (m / d) / w_x) for k switches of d chips.

    >>> import jax.numpy as jnp
    >>> wire = Wire(*map(jnp.asarray, (0.0, 1.0, 1e30, 8.0, 1.0)))
    >>> float(all_reduce(jnp.asarray(4.0), jnp.asarray(2.0), wire))
    6.0
    """
    inside = jnp.minimum(ranks, wire.domain)
    two_shot = 2.0 / inside
    shots = two_shot + (1.0 - two_shot) / (1.0 + size / wire.one_shot)
    links = jnp.minimum(jnp.maximum(inside - 1.0, 1.0) * wire.pair, 1.0)
    reached = jnp.where(wire.pair < 1.0, links, 1.0)  # no corner at two chips of a switch
    near = (inside - 1.0) * shots * size / (wire.rate * reached)
    far = 2.0 * wire.far * jnp.log2(ranks / inside)
    return wire.hop * jnp.log2(ranks) + near + far + crossing_time(ranks, 2.0 * size, wire)


def crossing_time(ranks: Array, size: Array, wire: Wire) -> Array:
    """Seconds in which the chips of a switch send their shares of ``size`` bytes to the others.

    (k - 1) / k (m / d) / w_x for k = r / d switches of d chips; 0 for one.
    """
    inside = jnp.minimum(ranks, wire.domain)
    return (1.0 - inside / ranks) * size / inside / wire.beyond


def exchange(ranks: Array, copies: Array, size: Array, wire: Wire) -> Array:
    """Seconds in which each of ``ranks`` chips sends its ``size`` bytes to ``copies`` others.

    2 a + min(r - 1, c) m / w where there are others; an all-gather where every other rank needs
    the tokens, an all-to-all where only the ranks of c experts do. Of the copies (r - d) / (r - 1)
    leave the switch, a_x log2 k later for k switches.
    """
    several = ranks > 1.0
    others = jnp.where(several, ranks - 1.0, 1.0)
    sent = jnp.minimum(others, copies) * size
    away = jnp.maximum(ranks - wire.domain, 0.0) / others
    links = jnp.minimum(jnp.maximum(others, 1.0) * wire.pair, 1.0)
    reached = wire.rate * jnp.where(wire.pair < 1.0, links, 1.0)
    time = sent * ((1.0 - away) / reached + away / wire.beyond)
    far = wire.far * jnp.log2(ranks / jnp.minimum(ranks, wire.domain))
    return jnp.where(several, 2.0 * wire.hop + far + time, 0.0)
