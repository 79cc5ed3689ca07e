"""Times of the same events with other step times: slopes of TTFT, TPOT and latency.

A replay decides (who is admitted when, how many passes until the next event); what is left is a sum
of step times. Along a path that is held, times are smooth functions of the step's coefficients and
of arrivals, so that any mode of differentiation goes through. The slope is that of the path: where
a number moves an event across the end of a pass, the path changes, and that jump is in no slope.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from infer_jax.replays.decode_run import StepTime, decode_run, run_time
from infer_jax.replays.log import Log, timed
from infer_jax.replays.requests import Requests
from infer_jax.replays.state import Path


def path_gradient(
    step: StepTime,
    log: Log,
    requests: Requests,
    concurrency: Array | None = None,
    *,
    phase: bool = False,
) -> Log:
    """The log of the same events, at the times (s) that they have by ``step`` and the arrivals.

    Its means have the derivatives of the path that is held: exact where the path does not change
    (infinitesimal perturbation analysis: Ho and Cao 1983). Passes add up what they take longer
    until the server is idle, while arrivals stay where they are: of a mean over many arrivals that
    is no slope of TTFT. With ``phase`` an arrival keeps its place within the passes it falls among,
    and waits for arrivals their length: what the number of passes does not change is then right.
    """
    path = lax.stop_gradient(log.path)
    arrival = jnp.asarray(requests.arrival)
    spent = durations(step, path, arrival.dtype)
    requests = jax.tree.map(jnp.asarray, requests._replace(arrival=arrival))
    if phase and concurrency is None:
        before = _before(path.time)
        spent = jnp.where(path.count > 0, spent, path.time - before)
        ends = lax.cummax(path.time)  # those that were never written, at zero, come after all
        at = jnp.minimum(jnp.searchsorted(ends, arrival), path.time.shape[0] - 1)
        length = (path.time - before)[at]
        part = (arrival - before[at]) / jnp.where(length > 0.0, length, 1.0)
        times = jnp.cumsum(spent)
        moved = _before(times)[at] + lax.stop_gradient(part) * spent[at]
        requests = requests._replace(arrival=moved)
    else:
        # what was spent since the last wait, after the arrival that ended it
        elapsed = jnp.cumsum(spent)
        since = lax.cummax(jnp.where(path.jump >= 0, jnp.arange(spent.shape[0]), -1))
        came = arrival[jnp.maximum(path.jump, 0)]
        times = elapsed + jnp.where(since >= 0, (came - elapsed)[jnp.maximum(since, 0)], 0.0)
    same = {name: getattr(log, name) for name in ("preempted", "complete", "turns", "cached")}
    return timed(path._replace(time=times), log.marks, requests, concurrency, **same)


def _before(times: Array) -> Array:
    """The begin of each entry."""
    return jnp.concatenate([jnp.zeros_like(times[:1]), times[:-1]])


def durations(step: StepTime, path: Path, kind: jnp.dtype) -> Float[Array, " t"]:
    """Seconds of each entry of a path; 0 for waits and beyond the end."""

    def entry_time(
        decoding: Array, context: Array, fed: Array, pairs: Array, count: Array, grows: Array
    ) -> Array:
        count = jnp.maximum(count, 1)
        passes = decode_run(step, decoding, context, fed, pairs.astype(kind), count, grows)
        return run_time(passes, passes.count.astype(kind))

    # a step time may have no slope at nothing fed: entries that run nothing ask for another
    used = path.count > 0
    grows = path.decoding if path.grows is None else path.grows
    columns = (path.decoding, path.context, path.fed, path.pairs, path.count, grows)
    seconds = jax.vmap(entry_time)(*(jnp.where(used, x, jnp.ones_like(x)) for x in columns))
    if path.fetching is not None:
        seconds += path.fetching
    return jnp.where(used, seconds, 0.0)
