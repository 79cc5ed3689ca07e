"""Seconds of a server's passes as a replay asks for them, from the passes of the serving model."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.estimators.serving import pass_terms
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.passes import eager_launch, stepping

MAX_DECODING = 128  # requests that decode in a pass at most
FINE = 8  # points to a doubling of the rows of a pass
ROWS = 2.0 ** (np.arange(16 * FINE + 1) / FINE)


class Priced(NamedTuple):
    """The parts of ``stepping``, tabulated: seconds by requests that decode and by rows, slopes."""

    decode: Float[Array, " requests"]
    layers: Float[Array, " rows"]  # logarithms
    pair: Array  # a new token that attends to one other
    cached: Array  # a cached token that a prompt's pass reads
    launch: Array  # of a pass with prompts
    token: Array  # more of it for each of their tokens
    head: Array  # of a prompt, where nobody decodes beside it
    beside: Array  # of these launches, those that requests which decode wait for


def priced(c: Context, context: Array) -> Priced:
    """The passes of one attention group whose requests decode at ``context`` tokens."""
    law = stepping(c, context)
    none, one, many = jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray(1000.0)

    def attending(new: Array, cached: Array) -> Array:
        return pass_terms.prefill_attention(c, one, new, cached).time / c.plan.pp

    pair = attending(many, none) / (many**2 / 2.0)
    launch = eager_launch(c, none)
    return Priced(
        decode=jax.vmap(lambda d: law(d, none, one, none))(jnp.arange(MAX_DECODING + 1.0)),
        layers=jnp.log(jax.vmap(lambda n: pass_terms.through_layers(c, n).time)(jnp.asarray(ROWS))),
        pair=pair,
        cached=(attending(many, many) - pair * 1.5 * many**2) / many,
        launch=launch,
        token=(eager_launch(c, many) - launch) / many,
        head=pass_terms.head(c, one, 1.0).time * c.model.laws.prompt_logits,
        beside=jnp.asarray(c.model.eager_beside_decode),
    )


def seconds(p: Priced, decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
    """Seconds of a pass, by the arguments of a replay; ``context`` counts by its mean alone."""
    fed = jnp.maximum(new, 1.0)

    def through(rows: Array) -> Array:
        known = np.log(ROWS)
        return jnp.exp(jnp.interp(jnp.log(jnp.maximum(rows, 1.0)), known, p.layers))

    attending = p.pair * pairs + p.cached * jnp.maximum(pairs / fed - fed / 2.0, 0.0)
    launches = p.launch + p.token * fed
    alone = through(fed) + attending + launches + p.head
    more = through(decoding + fed) - through(decoding) + attending + p.beside * launches
    decode = p.decode[jnp.clip(decoding, 0, MAX_DECODING).astype(jnp.int32)]
    beside = decode + jnp.where(new > 0, more, 0.0)
    return jnp.where(decoding > 0, beside, jnp.where(new > 0, alone, 0.0))
