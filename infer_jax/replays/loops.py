"""The loop of a scheduler, turn after turn: of one server, or of many side by side."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.replays.log import Log, log_of
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules
from infer_jax.replays.scheduler import server_of
from infer_jax.replays.state import State
from infer_jax.replays.stretch import StepTime


def replay(
    step: StepTime,
    rules: Rules,
    requests: Requests,
    concurrency: Array | None = None,
    *,
    width: int,
    turns: int,
) -> Log:
    """Serve all requests, each sent as it arrives, with at most ``concurrency`` of them in flight.

    ``step(decoding, context, new, pairs)`` is the time (s) of a pass that feeds one token to each
    of ``decoding`` requests, which have ``context`` tokens in the cache, and ``new`` prompt tokens
    with ``pairs`` pairs of one of them and one before it.

    Args:
        step: a function of arrays, smooth in ``context``.
        rules: the engine's, with sizes as leaves.
        requests: in order of arrival.
        concurrency: requests in flight at most: one that arrives later is sent as soon as another
            leaves. With arrivals at 0 that is a closed loop.
        width: slots that the arrays have room for, at least ``rules.slots``.
        turns: entries of the path there is room for; ``Log.complete`` says whether it was enough.
    """
    server = server_of(step, rules, requests, concurrency)
    end = lax.while_loop(server.busy, server.turn, server.start(width, turns))
    return log_of(end, server.requests, concurrency)


def side_by_side(
    step: StepTime,
    rules: Rules,
    requests: Requests,
    concurrency: Array | None = None,
    *,
    width: int,
    turns: int,
) -> Log:
    """Many servers at once, of which every number has a leading axis: for accelerators.

    ``vmap`` of ``replay`` says the same, and copies the arrays of all lanes in every turn, because
    some have finished; here they are left as they are. ``step`` is a ``Partial``.
    """
    servers = (step, rules, requests, concurrency)

    def start(each: tuple) -> State:
        return server_of(*each).start(width, turns)

    def busy(states: State) -> Array:
        return jnp.any(jax.vmap(lambda each, s: server_of(*each).busy(s))(servers, states))

    def turn(states: State) -> State:
        return jax.vmap(lambda each, s: server_of(*each).turn(s))(servers, states)

    end = lax.while_loop(busy, turn, jax.vmap(start)(servers))
    return jax.vmap(lambda each, s: log_of(s, server_of(*each).requests, each[3]))(servers, end)
