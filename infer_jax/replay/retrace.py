"""What do the same events take with other numbers, and what are the slopes of what they took?

A replay decides (who is admitted when, how many passes until the next event); what is left is a sum
of step times. Along a path that is held, times are smooth functions of the step's coefficients and
of arrivals, so that any mode of differentiation goes through. The slope is that of the path: where
a number moves an event across the end of a pass, the path changes, and that jump is in no slope.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from infer_jax.replay.log import Log, timed
from infer_jax.replay.requests import Requests
from infer_jax.replay.state import Path
from infer_jax.replay.stretch import StepTime, seconds_of, stretch


def retrace(step: StepTime, log: Log, requests: Requests, concurrency: Array | None = None) -> Log:
    """The log of the same events, at the times (s) that they have by ``step`` and the arrivals.

    Its means have the derivatives of the path that is held: exact where the path does not change
    (infinitesimal perturbation analysis: Ho and Cao 1983).
    """
    path = lax.stop_gradient(log.path)
    kind = requests.arrival.dtype
    spent = durations(step, path, kind)
    entries = jnp.arange(spent.shape[0])
    came = jnp.asarray(requests.arrival)[jnp.maximum(path.jump, 0)]
    elapsed = jnp.cumsum(spent)
    since = lax.cummax(jnp.where(path.jump >= 0, entries, -1))
    begun = jnp.where(since >= 0, (came - elapsed)[jnp.maximum(since, 0)], 0.0)
    times = path._replace(time=elapsed + begun)
    again = timed(times, log.marks, Requests(*map(jnp.asarray, requests)), concurrency)
    return again._replace(preempted=log.preempted, complete=log.complete, turns=log.turns)


def durations(step: StepTime, path: Path, kind: jnp.dtype) -> Float[Array, " t"]:
    """Seconds that each entry of a path takes; 0 where it waits, and beyond its end."""

    def one(decoding: Array, context: Array, fed: Array, pairs: Array, count: Array) -> Array:
        passes = stretch(step, decoding, context, fed, pairs.astype(kind), jnp.maximum(count, 1))
        return seconds_of(passes, passes.count.astype(kind))

    each = jax.vmap(one)(path.decoding, path.context, path.fed, path.pairs, path.count)
    return jnp.where(path.count > 0, each, 0.0)
