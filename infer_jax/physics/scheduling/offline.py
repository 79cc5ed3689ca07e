"""Offline work: requests that are all there at the start, until the last one has ended.

While requests wait, whoever ends is replaced; then the batch drains, down to the longest outputs.
The clock is the step, of which every running request takes one for each of its tokens; what runs is
a fluid by age (McKendrick 1926, Proceedings of the Edinburgh Mathematical Society 44):

    n_j+1(k+1) = n_j(k) P(O > a_j+1) / P(O > a_j),   n_0(k) = what is admitted in cell k,

ages a_j in cells of some steps. Admitted are those that wait as far as slots, cache and the tokens
of a step allow; where running requests outgrow the cache, the youngest make room and start again
before all that wait (vllm/v1/core/sched/scheduler.py, ``Scheduler.schedule``).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from infer_jax.physics.scheduling.admission import memory
from infer_jax.physics.scheduling.kinds import Kinds, ServerLimits

CELLS = 256  # of the longest output
FIRST_LOOK = 3 * CELLS // 2  # cells in which requests wait; as many follow for the drain
WAVES = 4.0  # mean outputs that these cells are at least
RAREST = 0.001  # requests: longer outputs than so many are expected to have are left out
NO_LIMIT = 1e30
# (decoding, their tokens in all, prompt tokens, pairs of one of these and one before) -> seconds
PassTime = Callable[[Array, Array, Array, Array], Array]


class Lengths(NamedTuple):
    """Requests that stand for all, in order of output: weights (they sum to 1) and tokens of each.

    ``squared``: mean square of prompts; ``own``: share of a prompt
    that no other request has, which is computed and held.
    """

    weight: Float[Array, " q"]
    prompt: Float[Array, " q"]
    output: Float[Array, " q"]
    squared: Array
    own: Array

    def mean(self, value: Array) -> Array:
        """The mean over requests."""
        return jnp.sum(self.weight * value)

    @property
    def fresh(self) -> Array:
        """Prompt tokens that a request computes, in the mean."""
        return jnp.maximum(self.own * self.mean(self.prompt), 1.0)


class Ages(NamedTuple):
    """Requests that have run for j cells: the share that goes on, and tokens of one that has."""

    first: Array  # share of the first cell that a new one runs for
    going: Float[Array, " j"]
    held: Float[Array, " j"]  # of the cache
    read: Float[Array, " j"]  # by the attention of a step
    computed: Float[Array, " j"]  # if it starts again


class Course(NamedTuple):
    """What a server does, cell by cell: ``steps`` steps each, ``weight`` times."""

    steps: Float[Array, " k"]
    weight: Float[Array, " k"]  # below 1 where the course stops within the cell
    running: Float[Array, " k"]  # requests
    read: Float[Array, " k"]  # tokens that they have in all
    fed: Float[Array, " k"]  # prompt tokens of a step
    waiting: Float[Array, " k"]  # requests
    admitted: Float[Array, " k"]  # requests that never ran before
    ended: Float[Array, " k"]  # requests


class Offline(NamedTuple):
    """Seconds of each cell of a course, and of its tail, after the last request was admitted.

    ``wasted``: seconds of the tail beyond those that its tokens take at the speed of its beginning;
    ``some``: the probability that any request is left; ``decoding``, ``read``: of a step.
    """

    seconds: Float[Array, " k"]
    tail: Array
    wasted: Array
    some: Float[Array, " k"]
    decoding: Float[Array, " k"]
    read: Float[Array, " k"]


def typical(lengths: Lengths, server: ServerLimits) -> tuple[Array, Array]:
    """Requests that run while others wait, in the mean, and tokens of cache left unused then.

    By slots, cache, or tokens of a step. ``memory`` has those that the cache holds, and what the
    first that waits leaves unused.
    """
    kinds = Kinds(lengths.weight, lengths.own * lengths.prompt, jnp.zeros(()), lengths.output)
    held = memory(kinds, server._replace(reserved=(1.0 + server.reserved) / 2.0))
    out = lengths.mean(lengths.output)
    unused = server.cache - held.limit * lengths.mean(lengths.output * held.tokens) / out
    fed = server.budget * out / (lengths.fresh + out)
    fed = jnp.where(jnp.asarray(server.prompts_first) > 0.5, NO_LIMIT, fed)
    most = jnp.minimum(jnp.minimum(jnp.asarray(server.slots), fed), jnp.maximum(held.limit, 1.0))
    return most, unused


def course(
    lengths: Lengths,
    server: ServerLimits,
    count: Array,
    begun: Float[Array, " j"] | None = None,
    until: Array | float = NO_LIMIT,
) -> tuple[Course, Float[Array, " j"]]:
    """What a server does with ``count`` requests that wait, and ``begun`` ones by age before them.

    The second are those by age that have begun and not ended. Of many only some waves are followed,
    as many as a first look has seen it admit, or end where some make room for others. Their later
    half, in whole waves, for equal outputs go in lockstep, counts for the tokens of those left out.
    ``until``: requests at whose end it stops.
    """
    out = lengths.mean(lengths.output)
    begun = jnp.zeros(CELLS, lengths.output.dtype) if begun is None else begun
    rarer = jnp.cumsum(lengths.weight[::-1])[::-1] * (count + jnp.sum(begun)) > RAREST
    longest = jnp.max(jnp.where(rarer & (lengths.weight > 0.0), lengths.output, 1.0))
    steps = lax.stop_gradient(jnp.maximum(longest, WAVES * out) / CELLS)
    (each, unused), ages = typical(lengths, server), _ages(lengths, server, steps)
    follow = partial(_follow, ages, lengths.fresh, server, steps, unused)
    start = _State(jnp.zeros_like(begun), begun, jnp.asarray(count), jnp.zeros_like(out))
    seen, look = follow(start, jnp.asarray(NO_LIMIT), FIRST_LOOK)
    # where some had to make room, it is followed as far as tokens are seen to be generated
    pushed_out = jnp.sum(seen.back) > jnp.sum(begun) + 0.5
    done = jnp.where(pushed_out, jnp.sum(look.running) * steps / out, NO_LIMIT)
    beyond = count - jnp.minimum(jnp.sum(look.admitted), done)
    waves = jnp.ceil(beyond / each - 1e-3)  # of a wave: sums are rounded
    skipped = lax.stop_gradient(jnp.clip(waves, 0.0, jnp.floor(count / each))) * each
    followed, stop = count - skipped, jnp.maximum(until - skipped, 0.0)
    end, rows = follow(start._replace(queue=followed), stop, 2 * FIRST_LOOK)
    # from the middle of a wave of tokens to that of a later one, so that lockstep does not cut it
    waves, edges = jnp.floor(lax.stop_gradient(followed / each)), jnp.arange(2.0 * FIRST_LOOK + 1.0)
    first, last = jnp.floor(waves / 2.0), jnp.maximum(waves - 1.0, jnp.floor(waves / 2.0) + 1.0)
    levels = (jnp.stack([first, last]) - 0.5) * each
    done = jnp.cumsum(rows.running) * steps / out  # requests, by their tokens
    inside = jnp.diff(jnp.clip(edges, *jnp.interp(levels, done, edges[1:])))
    more = skipped * out / jnp.maximum(steps * jnp.sum(inside * rows.running), 1e-9)
    return rows._replace(weight=rows.weight * (1.0 + more * inside)), end.run + end.back


def _ages(lengths: Lengths, server: ServerLimits, steps: Array) -> Ages:
    """Of requests that end within a cell the part of it counts."""
    age = jnp.arange(CELLS + 1, dtype=lengths.output.dtype) * steps
    there = lengths.weight * jnp.clip((lengths.output - age[:, None]) / steps, 0.0, 1.0)
    share = jnp.sum(there, axis=1)
    safe = jnp.where(share > 0.0, share, 1.0)
    prompt, output = (there @ x / safe for x in (lengths.prompt, lengths.output))
    own = lengths.own * prompt
    held = own + jnp.maximum(age, server.reserved * output) + server.block / 2.0
    columns = (share[1:] / safe[:-1], *(x[:-1] for x in (held, prompt + age, own + age)))
    return Ages(share[0], *columns)


class _State(NamedTuple):
    """Requests by age that run, and that ran and wait; those that never ran; those that ended."""

    run: Array
    back: Array
    queue: Array
    ended: Array


def _follow(
    ages: Ages, fresh: Array, server: ServerLimits, steps: Array, unused: Array,
    start: _State, until: Array, cells: int,
) -> tuple[_State, Course]:  # fmt: skip
    """The state after some cells, and each of them; it stops when ``until`` requests have ended.

    ``unused``: tokens of cache left by who waits.
    """

    def cell(state: _State, _: None) -> tuple[_State, Course]:
        aged = jnp.pad(state.run * ages.going, (1, 0))[:-1]
        gone = jnp.sum(state.run) - jnp.sum(aged)
        over = jnp.sum(aged * ages.held) - server.cache
        out = aged * _in_order(ages.held * aged, jnp.maximum(over, 0.0))
        waits = state._replace(run=aged - out, back=state.back + out, ended=state.ended + gone)
        slots = server.slots - server.empty * gone / steps
        # a request that runs alone has all of the cache
        space = jnp.where(jnp.sum(waits.run) < 0.5, -over, -over - unused)
        left = slots, jnp.maximum(space, 0.0)
        after, computed = _admit(ages, fresh, server, steps, waits, left)
        ended = after.ended - state.ended
        part = (until - state.ended) / jnp.where(ended > 0.0, ended, 1.0)
        part = jnp.where(after.ended <= until, 1.0, jnp.clip(part, 0.0, 1.0))
        kept = _State(*(x + part * (y - x) for x, y in zip(state, after, strict=True)))
        row = Course(
            steps=steps,
            weight=part,
            running=jnp.sum(after.run),
            read=jnp.sum(after.run * ages.read),
            fed=computed / steps,
            waiting=jnp.sum(kept.back) + kept.queue,
            admitted=state.queue - after.queue,
            ended=ended,
        )
        return kept, row

    # reverse mode keeps the state of every cell, and computes the rest again
    return lax.scan(jax.checkpoint(cell, prevent_cse=False), start, length=cells)


def _admit(
    ages: Ages, fresh: Array, server: ServerLimits, steps: Array,
    state: _State, left: tuple[Array, Array],
) -> tuple[_State, Array]:  # fmt: skip
    """With those that find slots, cache (``left``) and tokens of the steps; tokens computed.

    Who ran before comes first, the oldest of them at first. What ends in its first cell runs for a
    part of it.
    """
    (run, back, queue, ended), (slots, space), first = state, left, ages.first
    room = jnp.maximum(steps * (server.budget - jnp.sum(run)), 0.0)
    room = jnp.where(jnp.asarray(server.prompts_first) < 0.5, room, NO_LIMIT)
    places = jnp.maximum(slots - jnp.sum(run), 0.0)
    old, held, again = (x[::-1] for x in (back, ages.held, ages.computed))
    limits = _in_order(old, places), _in_order(old * held, space), _in_order(old * again, room)
    come = back * jnp.stack(limits).min(axis=0)[::-1]
    computed = jnp.sum(come * ages.computed)
    places, space = places - jnp.sum(come), space - jnp.sum(come * ages.held)
    most = jnp.stack([places / first, space / (ages.held[0] * first), (room - computed) / fresh])
    new = jnp.clip(jnp.min(most), 0.0, queue)
    run = (run + come).at[0].add(new * first)
    after = _State(run, back - come, queue - new, ended + new * (1.0 - first))
    return after, computed + new * fresh


def _in_order(needs: Array, left: Array) -> Array:
    """Share of each need that is met, one after another, until nothing is ``left``."""
    before = jnp.cumsum(needs) - needs
    return jnp.clip((left - before) / jnp.where(needs > 0.0, needs, 1.0), 0.0, 1.0)


def rollouts(
    lengths: Lengths, server: ServerLimits, count: Array, share: Array, rounds: int = 12
) -> tuple[Course, Array]:
    """A step that ends when ``count`` responses have, a ``share`` of those in flight.

    The others go on in the next step, before new ones, with their prompts and tokens computed anew
    by the new weights: partial rollouts (Kimi k1.5, arXiv 2501.12599, 2.6; APRIL, arXiv
    2509.18521, 3). In the long run every response is finished, and as many tokens are carried over
    as were. The second is the share of tokens that were generated in steps before.
    """
    every = count / share

    def step(carried: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        begun, queue = carried
        left = course(lengths, server, queue, begun, until=count)[1]
        return (left, jnp.maximum(every - jnp.sum(left), 0.0)), None

    none = jnp.zeros(CELLS, lengths.output.dtype)
    start = none, jnp.asarray(every, none.dtype)
    (begun, queue), _ = lax.scan(step, start, length=rounds)
    done = course(lengths, server, queue, begun, until=count)[0]
    tokens = jnp.sum(begun * jnp.arange(CELLS)) * done.steps[0]
    return done, tokens / (count * lengths.mean(lengths.output))


def offline(
    done: Course, step: PassTime, lengths: Lengths, server: ServerLimits,
    replicas: Array | float = 1.0,
) -> Offline:  # fmt: skip
    """Seconds of each cell of a course, by what its passes cost.

    In the drain n requests are left of m in the mean: any of them with 1 - (1 - n / m)^m, and then
    n over that, the order statistics of the longest outputs; of several ``replicas`` the last one
    counts. Prompts come whole or in the chunks that a step has room for, in a share of the steps
    that is Poisson's.
    """
    left, drains = done.running + done.waiting, done.waiting <= 1e-9
    most = jnp.max(jnp.where(drains, done.running, 0.0))
    gone = jnp.clip(left / jnp.where(most > 0.0, most, 1.0), 0.0, 1.0 - 1e-6)
    none_left = jnp.maximum(most, 1.0) * jnp.log1p(-gone)
    some = jnp.where(drains, -jnp.expm1(replicas * none_left), 1.0)
    own = jnp.where(drains, -jnp.expm1(none_left), 1.0)
    safe = jnp.where(own > 0.0, own, 1.0)
    decoding, read = jnp.maximum(done.running / safe, 1e-6), done.read / safe
    pairs = lengths.own * (1.0 - lengths.own / 2.0) * lengths.squared / lengths.fresh
    none = jnp.zeros_like(decoding)
    first = jnp.asarray(server.prompts_first) > 0.5
    room = jnp.where(first, server.budget, jnp.maximum(server.budget - decoding, 1.0))
    often = -jnp.expm1(-done.fed / jnp.minimum(lengths.fresh, room))
    often = jnp.maximum(often, done.fed / room)
    fed = done.fed / jnp.where(often > 0.0, often, 1.0)
    plain = step(decoding, read, none, none)
    beside = jnp.where(first, none, decoding), jnp.where(first, none, read)
    prompts = step(*beside, fed, fed * pairs) - jnp.where(first, none, plain)
    seconds = some * done.weight * done.steps * (plain + often * prompts)
    tokens = some * decoding
    fastest = jnp.min(jnp.where(tokens > 1e-6, seconds / jnp.maximum(tokens, 1e-9), NO_LIMIT))
    wasted = jnp.maximum(seconds - tokens * fastest, 0.0)
    tail, wasted = (jnp.sum(jnp.where(drains, x, 0.0)) for x in (seconds, wasted))
    return Offline(seconds, tail, wasted, some, decoding, read)
