"""What does one feedforward layer hold, read and compute, dense or mixture of experts?"""

import jax.numpy as jnp
from jax import Array

from infer_jax.physics.matmul import Matrix
from infer_jax.physics.numerics import Smoothing, flooring
from infer_jax.specs import Dense, Experts, Feedforward


def matrix(feedforward: Feedforward, width: Array) -> Matrix:
    """The shape of every matrix of a dense layer, or of one routed expert."""
    if isinstance(feedforward, Experts):
        outer = feedforward.outer_width
        width = jnp.where(outer > 0, outer, width)
    return Matrix(feedforward.width, width)


def matrices(feedforward: Feedforward) -> Array:
    """Matrices of that shape: ``inward`` in and one out."""
    return feedforward.inward + 1.0


def routed_elements(feedforward: Feedforward, width: Array) -> Array:
    """Parameters of all routed experts of a layer; of a dense layer, all its matrices."""
    one = matrices(feedforward) * matrix(feedforward, width).elements
    return feedforward.experts * one if isinstance(feedforward, Experts) else one


def common_elements(feedforward: Feedforward, width: Array) -> Array:
    """Parameters every token passes beside the routed ones: shared experts."""
    if isinstance(feedforward, Dense):
        return jnp.asarray(0.0)
    return routed_elements(feedforward.shared, width)


def router_elements(feedforward: Feedforward, width: Array) -> Array:
    """Parameters of the router: width x experts."""
    if isinstance(feedforward, Dense):
        return jnp.asarray(0.0)
    return feedforward.router * width * feedforward.experts


def floored_sparsity(feedforward: Feedforward, smoothing: Smoothing = None) -> Array:
    """Experts per active expert in whole numbers, floor(E / A); 1 for a dense layer.

    So in the economics paper; E / A with ``smoothing`` 1, and with a single expert 1.
    Source: Erdil 2025 (arXiv 2506.04645), Section 3.2.
    """
    if isinstance(feedforward, Dense):
        return jnp.asarray(1.0)
    return jnp.maximum(flooring(feedforward.experts / feedforward.active, smoothing), 1.0)


def sparsity(feedforward: Feedforward, smoothing: Smoothing = None) -> Array:
    """Experts per active expert, S = E / A; 1 for a dense layer. ``smoothing`` changes nothing."""
    if isinstance(feedforward, Dense):
        return jnp.asarray(1.0)
    return jnp.maximum(feedforward.experts / feedforward.active, 1.0)


def visited_share(sparsity: Array, tokens: Array) -> Array:
    """The expected fraction of experts that ``tokens`` tokens visit: 1 - (1 - 1/S)^B.

    Independent uniform routing. Written with log1p and expm1, so that it is B/S and not 0 at
    S = 1e12 in float32; at S = 1 it is 1 with gradient 0.
    Source: Erdil 2025 (arXiv 2506.04645), Section 3.2, Eq. 22.

    >>> round(float(visited_share(jnp.array(4.0), jnp.array(1.0))), 6)
    0.25
    """
    sparse = sparsity > 1.0 + 1e-9
    inverse = 1.0 / jnp.where(sparse, sparsity, 2.0)
    return jnp.where(sparse, -jnp.expm1(tokens * jnp.log1p(-inverse)), 1.0)


def active_experts(feedforward: Feedforward) -> Array:
    """Experts a token visits, shared ones apart; 1 for a dense layer."""
    return feedforward.active if isinstance(feedforward, Experts) else jnp.asarray(1.0)


def experts(feedforward: Feedforward) -> Array:
    """Routed experts; 1 for a dense layer."""
    return feedforward.experts if isinstance(feedforward, Experts) else jnp.asarray(1.0)
