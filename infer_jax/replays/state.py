"""The state of a scheduler between two turns of the loop."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

if TYPE_CHECKING:
    from infer_jax.replays.drafted import Growth
    from infer_jax.replays.prefix_cache import PrefixCache
    from infer_jax.replays.radix_tree import RadixTree

NEVER = 2**30  # a step, a turn or a request that there is not


class Path(NamedTuple):
    """What happened, entry by entry: passes that are alike are one entry, and so is a wait.

    From it every time follows again (``retrace``), and with it every slope.
    """

    time: Float[Array, " t"]  # at its end, s
    decoding: Int[Array, " t"]  # requests that each pass feeds one token of
    over: Int[Array, " t"]  # of these, the ones that had their last token, and get none
    context: Int[Array, " t"]  # tokens that they have in the cache, at the first pass
    fed: Int[Array, " t"]  # prompt tokens
    pairs: Float[Array, " t"]  # of a prompt token and one before it
    count: Int[Array, " t"]  # passes
    steps: Int[Array, " t"]  # passes so far that fed decoding requests, at its end
    jump: Int[Array, " t"]  # the request whose arrival ended a wait, or -1
    running: Int[Array, " t"]  # requests admitted and not finished, at its end
    finished: Int[Array, " t"]
    blocks: Int[Array, " t"]  # of the cache that are taken
    grows: Float[Array, " t"] | None = None  # with drafts: tokens that a pass adds to the context
    kept: Int[Array, " t"] | None = None  # of prompts in it that no request uses
    fetching: Float[Array, " t"] | None = None  # s for which passes wait for blocks of the host


class State(NamedTuple):
    """A server between two turns, and the pass that it puts together."""

    now: Float[Array, ""]
    looked: Float[Array, ""]  # when the queue was last looked at
    seen: Int[Array, ""]  # requests finished by then
    passes: Int[Array, ""]
    steps: Int[Array, ""]  # passes that fed decoding requests
    turn: Int[Array, ""]  # entries of the path
    head: Int[Array, ""]  # requests from here on wait or are still to come
    finished: Int[Array, ""]
    running: Int[Array, ""]
    decoding: Int[Array, ""]
    context: Int[Array, ""]
    held: Int[Array, ""]  # blocks set aside
    late: Int[Array, ""]  # requests that left in the last pass, if the engine does not know yet
    late_blocks: Int[Array, ""]
    # where such requests decode once more: their context, and their blocks with a token more
    late_tokens: Int[Array, ""]
    late_more: Int[Array, ""]
    decoded: Bool[Array, ""]  # whether the last pass decoded, and the engine has not read it
    joining: Int[Array, ""]  # requests whose prompt ends in this pass and whose first token counts
    unread: Int[Array, ""]  # those of the last pass, if the engine has not read it
    # the slots: request, the step of its last token, its context less the steps, its blocks
    who: Int[Array, " w"]
    ends: Int[Array, " w"]
    base: Int[Array, " w"]
    size: Int[Array, " w"]
    soonest: Int[Array, ""]  # of ``ends``
    watched: tuple[Int[Array, ""], ...]  # sums over the slots that rules look at
    free: Int[Array, ""]  # the first free slot
    # the pass that is put together
    fresh: Bool[Array, ""]
    left: Int[Array, ""]  # tokens of the budget
    fed: Int[Array, ""]
    pairs: Float[Array, ""]
    joined: Int[Array, ""]  # prompts that it completes, and the contexts they will have
    joined_tokens: Int[Array, ""]
    charged: Float[Array, ""]  # tokens that an estimate of room counts for those admitted
    part: Int[Array, ""]  # the prompt that is partly computed, or -1
    part_done: Int[Array, ""]
    # the request that is fed next, and what the arrays below have of it and of the queue's head
    up: Int[Array, ""]
    up_back: Bool[Array, ""]  # it was taken back
    up_lost: Int[Array, ""]
    up_again: Bool[Array, ""]  # it was preempted
    head_last: Int[Array, ""]
    barred: Bool[Array, ""]  # no request is admitted in this pass
    full: Bool[Array, ""]  # none is admitted until a request leaves
    clearing: Bool[Array, ""]  # one has left
    ratio: Float[Array, ""]  # of the tokens to come that are counted as needed
    # requests taken back to the end of the queue, and how many had arrived before them
    again: Int[Array, " n"]
    stamp: Int[Array, " n"]
    taken: Int[Array, ""]
    back: Int[Array, ""]
    # of every request: tokens computed before it was preempted, how often it was, turns and steps
    produced: Int[Array, " n"]
    preempted: Int[Array, " n"]
    admitted: Int[Array, " n"]
    first: Int[Array, " n"]
    ready: Int[Array, " n"]
    last: Int[Array, " n"]
    path: Path
    growth: "Growth | None" = None  # where tokens are drafted
    kept: "PrefixCache | RadixTree | None" = None  # where prompts stay in the cache


def empty(requests: int, width: int, turns: int, kind: jnp.dtype, sums: int) -> State:
    """A server at time 0 that has seen nothing yet; its rules look at ``sums`` sums of slots."""

    def whole(value: int = 0) -> Array:
        return jnp.asarray(value, jnp.int32)

    def many(count: int, value: int = 0) -> Array:
        return jnp.full(count, value, jnp.int32)

    zero, no, watched = jnp.zeros((), kind), jnp.asarray(False), (whole(),) * sums
    path = Path(*(jnp.zeros(turns, kind if f in ("time", "pairs") else jnp.int32)
                  for f in Path._fields if f not in Path._field_defaults))  # fmt: skip
    state = State._make(whole() for _ in State._fields)._replace(
        now=zero, looked=zero - 1.0, pairs=zero, charged=zero, ratio=zero,
        fresh=~no, barred=no, full=no, clearing=no, up_back=no, up_again=no, decoded=no,
        part=whole(-1), head_last=whole(NEVER), watched=watched,
        who=many(width, -1), ends=many(width, NEVER), base=many(width), size=many(width),
        soonest=whole(NEVER),
        again=many(requests), stamp=many(requests), produced=many(requests),
        preempted=many(requests), admitted=many(requests), first=many(requests),
        ready=many(requests), last=many(requests, NEVER), path=path, growth=None, kept=None,
    )  # fmt: skip
    return state


def get(values: Array, index: Array) -> Array:
    """One entry of an array."""
    return lax.dynamic_index_in_dim(values, index, keepdims=False, allow_negative_indices=False)


def put(values: Array, index: Array, value: Array, ok: Array | bool = True) -> Array:
    """The array with one entry changed, where ``ok``."""
    if ok is not True:
        value = jnp.where(ok, value, get(values, index))
    one = value.astype(values.dtype)[None]
    return lax.dynamic_update_slice(values, one, (index,), allow_negative_indices=False)


def note(values: Array, index: Array, value: Array, ok: Array) -> Array:
    """An array of requests with one entry changed where ``ok``, else its last, which is none's.

    Nothing of the array is read, so that XLA need not copy it for another that reads it.
    """
    return put(values, jnp.where(ok, index, values.shape[0] - 1), value)


def where(condition: Array, yes: State, no: State) -> State:
    """One of two states; an array that is in both needs no choice, and the path always is."""

    def choose(a: Array, b: Array) -> Array:
        return a if a is b else jnp.where(condition, a, b)

    return State._make(
        a if isinstance(a, Path) else jax.tree.map(choose, a, b)
        for a, b in zip(yes, no, strict=True)
    )


def changed(ok: Array, s: State, names: tuple[str, ...], change: Callable[[State], State]) -> State:
    """The state with those of its parts that ``change`` changes, where ``ok``.

    A loop of one turn or none: where not, nothing of the change is computed, and no array is copied
    either way, as it would be where two states are chosen from.
    """

    def parts(s: State) -> tuple:
        return tuple(getattr(s, name) for name in names)

    def whole(given: tuple) -> State:
        return s._replace(**dict(zip(names, given, strict=True)))

    def one(given: tuple[Array, tuple]) -> tuple[Array, tuple]:
        return jnp.zeros_like(ok), parts(change(whole(given[1])))

    return whole(lax.while_loop(lambda given: given[0], one, (ok, parts(s)))[1])


def caught_up(s: State) -> State:
    """The state of an engine that has waited for the pass that runs, and read all of it."""
    zero, no = jnp.zeros_like(s.late), jnp.zeros_like(s.full)
    return s._replace(
        looked=s.now, seen=s.finished, fresh=~no, full=no, clearing=no, decoded=no,
        late=zero, late_blocks=zero, late_tokens=zero, late_more=zero, unread=zero,
    )  # fmt: skip


def total(values: Array) -> Array:
    """The sum, of the type of what is summed: whole numbers stay 32 bits wide."""
    return jnp.sum(values, dtype=values.dtype)


class Swept(NamedTuple):
    """What one look through all slots says of those that leave, and of the others."""

    gone: Int[Array, ""]  # requests that leave
    tokens: Int[Array, ""]  # of their contexts
    blocks: Int[Array, ""]
    more: Int[Array, ""]  # their blocks with a token more
    soonest: Int[Array, ""]  # end of the others
    free: Int[Array, ""]  # the first slot that is free then
    watched: tuple[Int[Array, ""], ...]  # sums over the others


def swept(
    s: State, done: Array, tokens: Array, blocks: tuple[Array, Array], watched: tuple[Array, ...]
) -> Swept:
    """One reduction of all of them: XLA makes one loop of it, where five take twice the time."""
    stays = (s.ends < NEVER) & ~done
    given = (
        *(jnp.where(stays, x, 0) for x in watched),
        done.astype(jnp.int32),
        jnp.where(done, tokens, 0),
        *(jnp.where(done, x, 0) for x in blocks),
        jnp.where(stays, s.ends, NEVER),
        jnp.where(stays, NEVER, jnp.arange(s.ends.shape[0], dtype=jnp.int32)),
    )
    sums = len(given) - 2

    def both(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
        added = [x + y for x, y in zip(a[:sums], b[:sums], strict=True)]
        return (*added, *(jnp.minimum(x, y) for x, y in zip(a[sums:], b[sums:], strict=True)))

    start = [jnp.zeros((), x.dtype) for x in given[:sums]] + [jnp.asarray(NEVER, jnp.int32)] * 2
    *looked, gone, left, held, more, soonest, free = lax.reduce(given, tuple(start), both, (0,))
    return Swept(gone, left, held, more, soonest, free, tuple(looked))
