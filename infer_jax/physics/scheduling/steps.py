"""Seconds of a step with a number of decoding requests, and the time that prompts add."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.physics.scheduling.kinds import Kinds, ServerLimits

Step = Callable[[Array, Array, Array, Array], Array]


class Steps(NamedTuple):
    """Steps beside a number of decoding requests; ``chunks`` by kind of request."""

    base: Array  # time of a step without prompt tokens
    room: Array  # prompt tokens that a step has room for
    chunks: Array  # steps that a prompt takes on its own


def steps(step: Step, kinds: Kinds, server: ServerLimits, decoding: Array) -> Steps:
    """The steps of a server in which ``decoding`` requests are past their first token."""
    zero, one = jnp.asarray(0.0), jnp.asarray(1.0)
    room = jnp.maximum(server.budget - decoding, 1.0)
    return Steps(step(decoding, zero, one, zero), room, jnp.ceil(kinds.fresh / room))


def added_time(step: Step, kinds: Kinds, decoding: Array, s: Steps, beside: Array) -> Array:
    """Time (s) that a prompt of each kind adds to steps shared with ``beside`` tokens of others.

    The step is extended by all prompt tokens in it, at most those it has room for, taken to be of
    prompts like this one and half fed. Each prompt is charged its share of the tokens.
    """
    fed = jnp.minimum(kinds.fresh + beside, s.room)
    own = jnp.minimum(kinds.fresh, fed)
    before = kinds.cached + (kinds.fresh - own) / 2.0
    times = jax.vmap(step, (None, 0, 0, 0))(decoding, fed / own, own, before)
    return jnp.maximum(times - s.base, 0.0) * kinds.fresh / fed
