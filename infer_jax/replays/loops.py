"""Replays a server, from arrays or from plain numbers: of one server, or of many at once."""

import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from infer_jax.errors import InputError
from infer_jax.replays.decode_run import LONGEST, StepTime
from infer_jax.replays.log import Log, RoutedLog, log_of
from infer_jax.replays.prefix_cache import NoCache
from infer_jax.replays.requests import Requests, power_of_two
from infer_jax.replays.rules import Rules
from infer_jax.replays.server import Server
from infer_jax.replays.state import State

T = TypeVar("T")
AnyLog = TypeVar("AnyLog", Log, RoutedLog)
P = ParamSpec("P")


def entries_or_turns(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, which still takes its ``entries`` by their old name, ``turns``."""

    @wraps(function)
    def renamed(*args: P.args, **options: P.kwargs) -> T:
        if "turns" in options:
            warnings.warn("turns is now entries", DeprecationWarning, stacklevel=2)
            options["entries"] = options.pop("turns")
        return function(*args, **options)

    return renamed


@entries_or_turns
def replay(
    step: StepTime,
    rules: Rules,
    requests: Requests,
    concurrency: Array | None = None,
    *,
    width: int,
    entries: int,
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
        entries: of the path, for which there is room; ``Log.complete`` says whether it was enough.
    """
    server = Server.of(step, rules, requests, concurrency)
    end = lax.while_loop(server.is_busy, server.iterate, server.start(width, entries))
    return log_of(end, server.requests, concurrency)


def serve(step: StepTime, rules: Rules, requests: Requests, concurrency: int | None = None) -> Log:
    """Serve all requests, as ``replay`` does, and see to it that none is too large to be served.

    ``step`` is a function, or a ``jax.tree_util.Partial`` of one and its coefficients: then neither
    they, nor sizes, nor lengths compile anew.

    >>> from jax.tree_util import Partial
    >>> from infer_jax.replays import Requests, serve, vllm
    >>> step = Partial(lambda c, decoding, context, new, pairs: c + 1e-6 * new, 0.01)
    >>> log = serve(step, vllm(blocks=100, slots=8), Requests.of([0.0, 0.005], [100, 100], [3, 3]))
    >>> [round(float(x), 4) for x in log.ttft[:2]]  # the second waits for two passes in flight
    [0.0101, 0.0252]

    Raises:
        InputError: a request that the cache or, whole, the budget never holds; more slots than
            tokens in a pass.
    """
    return serve_by(_program, step, rules, requests, concurrency)


_program = jax.jit(replay, static_argnames=("width", "entries"))


def serve_by(
    program: Callable[..., AnyLog],
    step: object,
    rules: Rules,
    requests: Requests,
    concurrency: int | None,
    *more: object,
    **how: object,
) -> AnyLog:
    """What ``program`` returns with a path of enough entries: twice as many until they are.

    Raises:
        InputError: as ``serve``.
    """
    checked(rules, requests, concurrency)
    width, entries = sizes_of(rules, requests, concurrency)
    loop = None if concurrency is None else jnp.asarray(concurrency, jnp.int32)
    while True:
        # preempted requests take more entries, and the events of every rank are entries of all
        log = program(step, rules, requests, loop, *more, width=width, entries=entries, **how)
        if log.complete:
            return log
        entries *= 2


def lanes(
    replay_lane: Callable[..., T], *arguments: object, batch: int | None = None,
    devices: Sequence[jax.Device] = (),
) -> T:  # fmt: skip
    """``replay_lane`` of each lane, all arguments with a leading axis, alike in structure.

    On a processor lane after lane, each in the core's own cache, or ``batch`` of them at once; on
    an accelerator side by side (``side_by_side`` is the faster way there). Several ``devices`` have
    equal parts of the lanes, where their number allows it.
    What ``replay_lane`` does not return (the path of a log, say) is not kept.

    >>> import jax.numpy as jnp
    >>> lanes(lambda a, b: a + b, jnp.arange(3), jnp.ones(3)).tolist()
    [1.0, 2.0, 3.0]
    """

    def part(*arguments: object) -> T:
        if jax.default_backend() == "cpu":
            return lax.map(lambda lane: replay_lane(*lane), arguments, batch_size=batch)
        return jax.vmap(replay_lane)(*arguments)

    if len(devices) < 2 or len(jax.tree.leaves(arguments)[0]) % len(devices):
        return part(*arguments)
    split, mesh = PartitionSpec("lanes"), Mesh(np.array(devices), "lanes")
    return jax.shard_map(part, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)(
        *arguments
    )


@entries_or_turns
def side_by_side(
    step: StepTime,
    rules: Rules,
    requests: Requests,
    concurrency: Array | None = None,
    *,
    width: int,
    entries: int,
) -> Log:
    """Many servers at once, of which every number has a leading axis: for accelerators.

    ``vmap`` of ``replay`` says the same, and copies the arrays of all lanes in every iteration,
    because some have finished; here they are left as they are. ``step`` is a ``Partial``.
    """
    servers = (step, rules, requests, concurrency)

    def start(lane: tuple) -> State:
        return Server.of(*lane).start(width, entries)

    def is_busy(states: State) -> Array:
        return jnp.any(jax.vmap(lambda lane, s: Server.of(*lane).is_busy(s))(servers, states))

    def iterate(states: State) -> State:
        return jax.vmap(lambda lane, s: Server.of(*lane).iterate(s))(servers, states)

    end = lax.while_loop(is_busy, iterate, jax.vmap(start)(servers))
    return jax.vmap(lambda lane, s: log_of(s, Server.of(*lane).requests, lane[3]))(servers, end)


def sizes_of(rules: Rules, requests: Requests, concurrency: int | None = None) -> tuple[int, int]:
    """Slots, and entries of the path, of the arrays of a program: powers of two.

    No more slots than requests can be in flight: every iteration reduces all of them. The entries
    are an upper bound if no request is preempted.
    """
    count = int(requests.count)
    slots = min(float(rules.slots), count, concurrency or float("inf"))
    spare = float(rules.slots) if rules.mixed else 0.0
    room = max(float(rules.budget) - spare, float(rules.unit), 1.0)
    parts = np.ceil(requests.prompt[:count] / room).sum()
    entries = 4.0 * count + 2.0 * parts + requests.output[:count].sum() / LONGEST + 8.0
    return power_of_two(max(slots, 2.0)), power_of_two(entries)


def checked(rules: Rules, requests: Requests, concurrency: int | None) -> None:
    """Check that every request can be served.

    Raises:
        InputError: as ``serve``.
    """
    names = ("budget", "slots", "block", "drafts", "overlap", "poll")
    budget, slots, block, drafts, overlap, poll = (float(getattr(rules, x)) for x in names)
    count, prefixes = int(requests.count), requests.prefixes
    prompt, output = requests.prompt[:count], requests.output[:count]
    needed = np.asarray(rules.integers().largest_blocks(jnp.asarray(prompt), jnp.asarray(output)))
    blocks, worst = float(rules.blocks) - float(rules.watermark), int(needed.argmax())
    anew = rules.preempts and rules.mixed  # a preempted request computes its output, too
    longest = int((prompt + output * anew).max())
    most = budget / (1.0 + drafts)
    decoding = f"at most budget, {most:g}: every running request decodes a token"
    if drafts:
        decoding = f"at most {most:g}: each decodes a token and its drafts in budget"
    problems = [
        (concurrency is not None and concurrency < 1, "concurrency", concurrency,
         "a whole number of at least 1"),
        (rules.mixed and slots > most, "slots", slots, decoding),
        (not rules.mixed and budget % block, "budget", budget,
         f"a multiple of a block, {block:g} tokens"),
        (drafts and not rules.can_draft, "drafts", drafts, "0: these rules have no drafts"),
        ((drafts > 0) != (requests.drafts is not None), "drafts", drafts,
         "drafts of rules and of requests (drawn_drafts), or neither"),
        (overlap and poll > 1, "overlap", "yes",
         "no: rules that poll for requests before some passes have no overlap"),
    ]  # fmt: skip
    if prefixes is not None:
        problems += [
            (not has_prefix_cache(rules), "prefixes", "given", "none: these rules keep no prompts"),
            (int(prefixes.block) != block, "block of prefixes", int(prefixes.block),
             f"the {block:g} tokens of the rules"),
            (requests.drafts is not None, "drafts", "given",
             "none where the scheduler looks prompts up"),
            (np.any(np.asarray(requests.cached) > 0), "cached", "given",
             "0 where the scheduler looks prompts up"),
        ]  # fmt: skip
    problems += [
        (np.any(needed > blocks), f"request {worst}",
         f"{prompt[worst]} tokens in and {output[worst]} out",
         f"what {blocks:g} blocks hold alone"),
        (not float(rules.chunked) and longest > budget, "budget", budget,
         f"at least {longest}: whole prompts"),
    ]  # fmt: skip
    for is_wrong, field, value, allowed in problems:
        if is_wrong:
            raise InputError("serve", field, value, allowed)


def has_prefix_cache(rules: Rules) -> bool:
    """Whether these rules look prompts up in a cache of prefixes."""
    return rules.cache is not NoCache and not float(getattr(rules, "hold", 0.0))
