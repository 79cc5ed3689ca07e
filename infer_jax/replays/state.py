"""The state of a replayed server between two iterations of its loop, and how it is changed."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

if TYPE_CHECKING:
    from infer_jax.replays.drafts import Drafted, OneToken
    from infer_jax.replays.prefix_cache import NoCache, PrefixCache
    from infer_jax.replays.radix_cache import RadixCache

UNREACHED = 2**30  # a step, an entry of the path or a request that does not exist
UNSUMMED = cast(Array, None)  # no leaf of the state
Tree = TypeVar("Tree")
Group = TypeVar("Group")  # a named tuple


class Path(NamedTuple):
    """What happened, entry by entry: passes that are alike are one entry, and so is a wait.

    From it every time follows again (``path_gradient``), and with it every slope.
    """

    time: Float[Array, " t"]  # at its end, s
    decoding: Int[Array, " t"]  # requests that each pass feeds one token of
    over: Int[Array, " t"]  # of these, the ones that had their last token, and get none
    context: Int[Array, " t"]  # tokens that they have in the cache, at the first pass
    fed: Int[Array, " t"]  # prompt tokens
    pairs: Float[Array, " t"]  # of a prompt token and one before it
    count: Int[Array, " t"]  # passes
    steps: Int[Array, " t"]  # passes so far that fed decoding requests, at its end
    woken_by: Int[Array, " t"]  # the request whose arrival ended a wait, or -1
    running: Int[Array, " t"]  # requests admitted and not finished, at its end
    finished: Int[Array, " t"]
    blocks: Int[Array, " t"]  # of the cache that are taken
    grows: Float[Array, " t"] | None = None  # with drafts: tokens that a pass adds to the context
    kept: Int[Array, " t"] | None = None  # blocks of prompts in the cache that no request uses
    fetching: Float[Array, " t"] | None = None  # s for which passes wait for blocks of the host
    server: Int[Array, " t"] | None = None  # of several

    @property
    def jump(self) -> Int[Array, " t"]:
        """``woken_by``, by its old name."""
        return self.woken_by

    def write(self, at: Array, entries: Mapping[str, Array | int]) -> "Path":
        """With one entry, or one of each of several servers, written from entry ``at`` on."""
        columns = {}
        for name, values in entries.items():
            column = getattr(self, name)
            if column is not None:
                new = jnp.atleast_1d(values).astype(column.dtype)
                columns[name] = lax.dynamic_update_slice(
                    column, new, (at,), allow_negative_indices=False
                )
        return self._replace(**columns)


class Clock(NamedTuple):
    """The time, and what happened until then."""

    now: Float[Array, ""]  # s
    last_poll: Float[Array, ""]  # when the engine last polled for arrivals, s
    finished_seen: Int[Array, ""]  # requests finished by then
    finished: Int[Array, ""]
    passes: Int[Array, ""]
    steps: Int[Array, ""]  # passes that fed decoding requests
    entries: Int[Array, ""]  # of the path


class Queue(NamedTuple):
    """Requests that wait, and what bars them."""

    head: Int[Array, ""]  # requests from here on wait or are still to come
    head_last: Int[Array, ""]  # the step of the head's last token, if it ran before
    # the request that is fed next
    next: Int[Array, ""]
    next_returns: Bool[Array, ""]  # whether it was preempted to the end of the queue
    next_lost: Int[Array, ""]  # tokens that it had, and computes anew
    next_preempted: Bool[Array, ""]
    # requests preempted to the queue's end: the first, or -1, and the last; ``behind`` links them
    returned: Int[Array, ""]
    returned_last: Int[Array, ""]
    computed: Int[Array, ""]  # prompt tokens of admitted requests, less those of preempted ones
    preempted: Bool[Array, ""]  # one was in this pass, so that none is admitted
    blocked: Bool[Array, ""]  # none is until a request leaves
    clearing: Bool[Array, ""]  # one has left
    new_token_ratio: Float[Array, ""]  # SGLang: share of the tokens to come that is reserved


class SlotSums(NamedTuple):
    """Sums over slots that their rules need (``Rules.sums``); the others are no leaves."""

    last: Array = UNSUMMED  # blocks in the pass that was
    next: Array = UNSUMMED  # and in the one that comes
    to_come: Array = UNSUMMED  # tokens to come
    to_come_before: Array = UNSUMMED  # tokens to come before the last pass


class Slots(NamedTuple):
    """Requests that run, one in a slot; a free slot ends ``UNREACHED``."""

    request: Int[Array, " w"]
    end: Int[Array, " w"]  # the step of its last token
    base: Int[Array, " w"]  # its context less the steps
    blocks: Int[Array, " w"]  # reserved for it
    sums: SlotSums
    soonest: Int[Array, ""]  # end of all
    free: Int[Array, ""]  # the first free slot
    running: Int[Array, ""]  # requests, in their prompt or decoding
    decoding: Int[Array, ""]
    context: Int[Array, ""]  # tokens of decoding requests
    reserved: Int[Array, ""]  # blocks


class Unseen(NamedTuple):
    """Results of the last pass that are not read yet when the next is put together (overlap)."""

    finished: Int[Array, ""]  # requests that left
    blocks: Int[Array, ""]  # theirs
    next_blocks: Int[Array, ""]  # theirs with a token more: where they decode once more
    # of these, requests that decode once more, for nobody knew that they would end
    over: Int[Array, ""]
    over_context: Int[Array, ""]  # their tokens in the cache
    over_tokens: Int[Array, ""]  # that their last passes were wanted for
    decoded: Bool[Array, ""]  # whether it decoded
    first_tokens: Int[Array, ""]  # requests whose first token it yielded, and that count


class ScheduledBatch(NamedTuple):
    """The pass that is put together, and the prompt that is partly computed."""

    is_new: Bool[Array, ""]  # nothing was fed to it yet
    left: Int[Array, ""]  # tokens of the budget
    tokens: Int[Array, ""]  # of prompts
    pairs: Float[Array, ""]
    prompts: Int[Array, ""]  # that it completes
    contexts: Int[Array, ""]  # tokens that these will have
    first_tokens: Int[Array, ""]  # of these that count as to come
    # SGLang's rem_total_token_offset: tokens that requests admitted to this pass will take
    total_token_offset: Float[Array, ""]
    request: Int[Array, ""]  # whose prompt is partly computed, or -1
    computed: Int[Array, ""]  # tokens of it


class Record(NamedTuple):
    """What happened to every request: entries of its server's path, steps and counts.

    Several servers write one record: all else of a state is as large as what is in a server.
    """

    path: Path
    entries: Int[Array, ""]  # of it
    produced: Int[Array, " n"]  # tokens computed before it was preempted
    preempted: Int[Array, " n"]  # times
    admitted: Int[Array, " n"]
    first: Int[Array, " n"]
    ready: Int[Array, " n"]  # the entry in which its prompt ended, the last time
    last: Int[Array, " n"]
    # of one preempted to the end of the queue: the next such one, and how many had arrived before
    behind: Int[Array, " n"]
    arrived_before: Int[Array, " n"]
    # with drafts, of preempted requests: passes that are left plus one, and tokens of the last one
    passes_left: Int[Array, " n"] | None = None
    last_tokens: Int[Array, " n"] | None = None


class Departures(NamedTuple):
    """Requests that leave: how many, their context, their blocks now and at the next step."""

    count: Array
    context: Array
    blocks: Array
    next_blocks: Array


class State(NamedTuple):
    """A server between two iterations."""

    clock: Clock
    queue: Queue
    slots: Slots
    unseen: Unseen
    batch: ScheduledBatch
    log: Record
    drafts: "OneToken | Drafted"
    cache: "NoCache | PrefixCache | RadixCache"

    def update(self, **groups: Mapping[str, object]) -> "State":
        """The state with fields of its groups changed: ``s.update(queue={"head": head})``."""
        return self._replace(
            **{name: getattr(self, name)._replace(**x) for name, x in groups.items()}
        )


def empty(requests: int, width: int, entries: int, kind: jnp.dtype, sums: tuple[str, ...]) -> State:
    """A server at time 0, without drafts or a cache of prompts; its rules add up ``sums``."""
    from infer_jax.replays.drafts import OneToken
    from infer_jax.replays.prefix_cache import NoCache

    zero, time, no = jnp.zeros((), jnp.int32), jnp.zeros((), kind), jnp.asarray(False)
    never = jnp.asarray(UNREACHED, jnp.int32)
    own, slot = jnp.zeros(requests, jnp.int32), jnp.zeros(width, jnp.int32)
    entry, seconds = jnp.zeros(entries, jnp.int32), jnp.zeros(entries, kind)
    return State(
        clock=_filled(Clock, zero, now=time, last_poll=time - 1.0),
        queue=_filled(
            Queue, zero, head_last=never, next_returns=no, next_preempted=no, returned=zero - 1,
            preempted=no, blocked=no, clearing=no, new_token_ratio=time,
        ),
        slots=_filled(
            Slots, zero, request=slot - 1, end=slot + UNREACHED, base=slot, blocks=slot,
            sums=SlotSums(**dict.fromkeys(sums, zero)), soonest=never,
        ),
        unseen=_filled(Unseen, zero, decoded=no),
        batch=_filled(
            ScheduledBatch, zero, is_new=~no, pairs=time, total_token_offset=time, request=zero - 1
        ),
        log=_filled(
            Record, own, path=_filled(Path, entry, time=seconds, pairs=seconds), entries=zero,
            last=own + UNREACHED,
        ),
        drafts=OneToken(),
        cache=NoCache(),
    )  # fmt: skip


def _filled(group: Callable[..., Group], value: Array, **fields: object) -> Group:
    """A group whose fields are all ``value``, but for some and those that may be None."""
    names: tuple[str, ...] = group._fields  # pyright: ignore[reportFunctionMemberAccess]
    optional = group._field_defaults  # pyright: ignore[reportFunctionMemberAccess]
    return group(**{**{x: value for x in names if x not in optional}, **fields})


def get(values: Array, index: Array) -> Array:
    """One entry of an array."""
    return lax.dynamic_index_in_dim(values, index, keepdims=False, allow_negative_indices=False)


def put(values: Array, index: Array, value: Array, ok: Array | bool = True) -> Array:
    """The array with one entry changed, where ``ok``."""
    if ok is not True:
        value = jnp.where(ok, value, get(values, index))
    entry = value.astype(values.dtype)[None]
    return lax.dynamic_update_slice(values, entry, (index,), allow_negative_indices=False)


def note(values: Array, index: Array, value: Array, ok: Array) -> Array:
    """An array of requests with one entry changed where ``ok``, else its last, which is padding.

    Nothing of the array is read, so that XLA need not copy it for another that reads it.
    """
    return put(values, jnp.where(ok, index, values.shape[0] - 1), value)


def where(condition: Array, yes: Tree, no: Tree) -> Tree:
    """One of two trees alike; an array that is in both needs no choice."""

    def choose(a: Array, b: Array) -> Array:
        return a if a is b else jnp.where(condition, a, b)

    return jax.tree.map(choose, yes, no)


def change_where(ok: Array, tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """The tree (a state, a cache) changed where ``ok``.

    A loop of one iteration or none: where not, nothing of the change is computed, and no array is
    copied either way, as it would be where two states are chosen from. JAX takes what the change
    leaves as it is out of the loop.
    """

    def body(carry: tuple[Array, Tree]) -> tuple[Array, Tree]:
        return jnp.zeros_like(ok), change(carry[1])

    return lax.while_loop(lambda carry: carry[0], body, (ok, tree))[1]


def catch_up(s: State) -> State:
    """The state of an engine that has waited for the pass that runs, and read all of it."""
    no = jnp.zeros_like(s.queue.blocked)
    return s._replace(unseen=jax.tree.map(jnp.zeros_like, s.unseen)).update(
        clock={"last_poll": s.clock.now, "finished_seen": s.clock.finished},
        queue={"blocked": no, "clearing": no},
        batch={"is_new": ~no},
    )


def total(values: Array) -> Array:
    """The sum, of the type of what is summed: whole numbers stay 32 bits wide."""
    return jnp.sum(values, dtype=values.dtype)


def count_slots(
    slots: Slots, done: Array, context: Array, blocks: tuple[Array, Array], sums: SlotSums
) -> tuple[Departures, Slots]:
    """Requests that leave, and the slots of the others: their sums, next end, and free slot.

    It is one reduction of all: XLA makes one loop of it, where five take twice the time.
    """
    stays = (slots.end < UNREACHED) & ~done
    own, fields = jax.tree.flatten(sums)
    columns = (
        *(jnp.where(stays, x, 0) for x in own),
        done.astype(jnp.int32),
        *(jnp.where(done, x, 0) for x in (context, *blocks)),
        jnp.where(stays, slots.end, UNREACHED),
        jnp.where(stays, UNREACHED, jnp.arange(slots.end.shape[0], dtype=jnp.int32)),
    )
    added = len(columns) - 2

    def combine(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
        plus = [x + y for x, y in zip(a[:added], b[:added], strict=True)]
        return (*plus, *(jnp.minimum(x, y) for x, y in zip(a[added:], b[added:], strict=True)))

    never = jnp.asarray(UNREACHED, jnp.int32)
    start = (*(jnp.zeros((), x.dtype) for x in columns[:added]), never, never)
    *counts, soonest, free = lax.reduce(columns, start, combine, (0,))
    others = slots._replace(
        end=jnp.where(done, UNREACHED, slots.end),
        sums=jax.tree.unflatten(fields, counts[: len(own)]),
        soonest=soonest,
        free=free,
    )
    return Departures(*counts[len(own) :]), others
