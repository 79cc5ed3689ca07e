"""Seconds of a pass of attention ranks that share experts, each with requests of its own."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.estimators.serving import pass_terms
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.mixed import FINE, MOST, composed

FEWEST = -6  # a token for each of 64 ranks
POINTS = 2.0 ** (np.arange(FEWEST * FINE, MOST * FINE + 1) / FINE)
COMMON = ("feedforward", "exchange")  # of layers with a mixture of experts


class Ranked(NamedTuple):
    """By which a pass of all ranks is priced, in logarithms of seconds at ``POINTS`` tokens.

    ``own``: a rank's way through the layers without its experts; ``common``: the experts and the
    exchange with them, where every rank feeds as many tokens.
    """

    context: Context
    own: Float[Array, " points"]
    common: Float[Array, " points"]


def ranked(c: Context) -> Ranked:
    """The tables of one model, layout and system."""
    layers = c.shape.layers
    mixtures = layers._replace(count=layers.count * layers.mixture)
    alone = c._replace(shape=c.shape._replace(layers=mixtures))

    def seconds(rows: Array) -> tuple[Array, Array]:
        terms = pass_terms.through_layers(alone, rows).terms
        common = jnp.asarray(sum(terms[name] for name in COMMON))
        return pass_terms.through_layers(c, rows).time - common, common

    own, common = jax.vmap(seconds)(jnp.asarray(POINTS, jnp.result_type(c.plan.tp)))
    return Ranked(c, jnp.log(own), jnp.log(common))


def _looked_up(table: Array, rows: Array) -> Array:
    at = (jnp.log2(jnp.clip(rows, POINTS[0], POINTS[-1])) - FEWEST) * FINE
    low = jnp.minimum(jnp.floor(at), len(POINTS) - 2.0)
    index, share = low.astype(jnp.int32), at - low
    return jnp.exp(table[index] * (1.0 - share) + table[index + 1] * share)


def own_time(m: Ranked, decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
    """Seconds of a rank's own part: all of ``mixed_time`` but the experts, element by element."""

    def one(decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
        layers = _looked_up(m.own, jnp.maximum(decoding + new, 1.0))
        through = pass_terms.waiting(layers=layers)
        return composed(m.context, through, decoding, context, new, pairs).time

    by_element: Callable[..., Array] = jnp.vectorize(one)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return by_element(decoding, context, new, pairs)


def drafted_own_time(m: Ranked, decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
    """The same of all of ``drafted_pass`` but the experts, where the model's own heads draft."""

    def one(decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
        fed = decoding * (1.0 + m.context.plan.drafts)
        rows = jnp.maximum(fed + new, 1.0), jnp.maximum(fed, 1.0)
        through, verified = (pass_terms.waiting(layers=_looked_up(m.own, x)) for x in rows)
        return composed(m.context, through, decoding, context, new, pairs, verified).time

    by_element: Callable[..., Array] = jnp.vectorize(one)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return by_element(decoding, context, new, pairs)


def common_time(m: Ranked, tokens: Array) -> Array:
    """Seconds of the experts and the exchange with them, of the tokens that each rank feeds.

    The mean over ranks counts: experts see the tokens of all, and the exchange is priced as an
    even one.
    """
    mean = jnp.sum(tokens) / m.context.plan.attention_dp
    return _looked_up(m.common, mean) * m.context.model.decode_factor


def drafted_common_time(m: Ranked, tokens: Array, verified: Array) -> Array:
    """The same where the model's own heads, of one layer each, see what is ``verified`` again."""
    plan, layers = m.context.plan, jnp.sum(m.context.shape.layers.count, axis=-1)
    mean = jnp.sum(verified) / plan.attention_dp
    again = _looked_up(m.common, mean) * m.context.model.decode_factor * plan.drafts / layers
    return common_time(m, tokens) + jnp.where(mean > 0.0, again, 0.0)
