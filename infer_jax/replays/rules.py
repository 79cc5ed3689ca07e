"""Rules by which an engine admits requests, feeds their prompts and makes room for them.

Numbers that every engine has. What differs in kind is a class: ``WholeLife`` (and ``BlockReuse``),
``Preempting`` and ``PrefillFirst``; what differs in number is a leaf, so that
lanes of ``vmap`` may differ in it.
"""

from typing import TYPE_CHECKING, NamedTuple, Self

import jax.numpy as jnp
from jax import Array, lax

from infer_jax.replays import drafted
from infer_jax.replays.requests import Requests
from infer_jax.replays.state import NEVER, State
from infer_jax.specs import Spec, number, spec

if TYPE_CHECKING:
    from infer_jax.replays.prefix_cache import Found


class Feed(NamedTuple):
    """The part of a prompt that a pass would feed next."""

    request: Array
    begun: Array  # whether an earlier pass fed a part of it
    waits: Array  # whether there is a request that waits
    whole: Array  # tokens to compute, those that it lost included
    out: Array  # tokens still to come, or with drafts passes that yield them
    coming: Array  # tokens
    done: Array  # computed, or cached
    chunk: Array  # tokens of this part
    cut: Array  # whether some remain
    paid: Array  # tokens of the budget, of which those that are found need not be computed
    found: "Found | None" = None  # in the cache, where prompts are kept
    drafts: drafted.NextDrafts | None = None  # where tokens are drafted


def whole_number(values: Array) -> Array:
    """Whole real numbers, from 0 to 2^31 - 1, as 32-bit integers.

    In 64 bits they are the last bits of the number that is larger by 2^52: where XLA converts, it
    also asks of each value whether it is too large, too small or none, which takes as long as all
    else that is done with it.
    """
    if values.dtype != jnp.float64:
        return values.astype(jnp.int32)
    return lax.bitcast_convert_type(values + 2.0**52, jnp.int64).astype(jnp.int32)


@spec
class Rules(Spec):
    """Sizes of a server, and how it composes a pass."""

    budget: Array = number("tokens fed in a pass, all requests together", kind="count", low=1)
    slots: Array = number("requests running at once", kind="count", low=1)
    blocks: Array = number("blocks of the cache", kind="count", low=1, default=2.0**30)
    block: Array = number("tokens of a block", kind="count", low=1, default=16.0)
    watermark: Array = number(
        "blocks left free when a request is admitted beside others", kind="count", default=0.0
    )
    chunked: Array = number(
        "whether a prompt may be fed in parts", kind="choice", choices=("no", "yes"), default=1.0
    )
    unit: Array = number(
        "tokens that a part of a prompt is a multiple of", kind="count", low=1, default=1.0
    )
    poll: Array = number(
        "passes between two looks at newly arrived requests", kind="count", low=1, default=1.0
    )

    overlap: Array = number(
        "whether a pass is put together while the one before it runs (asynchronous scheduling)",
        kind="choice", choices=("no", "yes"), default=0.0,
    )  # fmt: skip
    drafts: Array = number(
        "tokens drafted for each decoding request in a pass", kind="count", default=0.0
    )

    host: Array = number(
        "blocks of host memory for those that leave the cache",
        kind="count", default=0.0,
    )  # fmt: skip
    fetch: Array = number(
        "time to bring a block back from there", unit="s", kind="time", default=0.0
    )

    # what a class of rules says about itself
    beside = True  # decoding requests are fed in the passes that feed prompts
    alone = False  # a rank with nothing to feed looks for itself when the others' pass ends
    speculates = False  # requests may be drafted for
    keeps = False  # prompts may stay in the cache, and be shared
    stores = False  # and are found once the pass that ends a prompt was read
    tree = False  # and are then a radix tree, given up by parts of prompts
    preempts = False  # a running request may have to make room
    returns = False  # and then goes to the end of the queue
    sums = 0  # how many ``watched`` has

    def whole(self) -> Self:
        """The same with whole numbers where tokens, blocks and passes are counted."""
        names = ("budget", "slots", "blocks", "block", "watermark", "chunked", "unit", "poll")
        names += ("overlap", "drafts", "host")
        return self.replace(**{n: jnp.asarray(getattr(self, n)).astype(jnp.int32) for n in names})

    def needed(self, tokens: Array) -> Array:
        """Blocks that hold ``tokens`` tokens: in real numbers, half a token from any whole one."""
        size = self.block.astype(float)
        return whole_number(jnp.floor((tokens + size - 0.5) * (1.0 / size)))

    def watched(self, left: Array, before: Array, last: Array, now: Array) -> tuple[Array, ...]:
        """Whole numbers of each slot whose sums these rules look at.

        ``left``: tokens to come, and ``before`` the last pass; ``last`` and ``now``: tokens that
        there must be room for in the pass that was, and in the one that comes.
        """
        return ()

    def summed(
        self,
        s: State,
        left: tuple[Array, Array],
        room: tuple[Array, Array],
        ok: Array,
        sign: int = 1,
    ) -> tuple[Array, ...]:
        """The sums over slots with one more request, or (``sign`` -1) one less, where ``ok``."""
        one = self.watched(*left, *room)
        return tuple(x + sign * jnp.where(ok, y, 0) for x, y in zip(s.watched, one, strict=True))

    def opened(self, s: State) -> State:
        """A server that has just started."""
        return s

    def noted(self, s: State, after: State, gone: Array, prompts: Array, idle: Array) -> State:
        """What an engine notes after its passes: ``gone`` requests have left."""
        return after

    def room(self, s: State) -> Array:
        """Prompt tokens that a pass has room for, before any is fed."""
        decoding = s.decoding
        if s.growth is not None:
            decoding = (decoding + s.growth.over) * (1 + self.drafts)
        return jnp.maximum(self.budget - decoding, 0)

    def tokens(self, s: State, steps: Array) -> tuple[Array, Array]:
        """Tokens of each slot with room at the pass that ends step ``steps``, and at the next."""
        last, now = drafted.held(s, steps)
        if s.growth is None:
            return last, now
        given = s.growth, self.drafts
        ahead = self.overlap > 0
        return (
            drafted.wanted(last, *given, steps - 1, ahead),
            drafted.wanted(now, *given, steps, ahead),
        )

    def admits(self, s: State) -> Array:
        """Whether a pass has a slot and tokens for another request."""
        return (s.running + s.late < self.slots) & ~s.barred & ~s.full & (s.left > 0)

    def spent(self, tokens: Array) -> Array:
        """Tokens of the budget that a part of a prompt takes."""
        return tokens

    def fits(self, s: State, requests: Requests, feed: Feed) -> Array:
        """Whether the cache takes one more request."""
        raise NotImplementedError

    def set_aside(self, feed: Feed) -> Array:
        """Blocks taken for a request from its admission to its end."""
        return jnp.zeros((), jnp.int32)

    def charge(self, s: State, feed: Feed) -> Array:
        """Tokens of the estimate of room that a part of a prompt uses up in this pass."""
        return jnp.zeros_like(s.charged)

    def counts(self, feed: Feed) -> Array:
        """Whether the estimate of room counts a first token that was not read, as one to come."""
        return jnp.asarray(False)

    def taken(self, s: State, requests: Requests) -> Array:
        """Blocks that are taken, when the pass is put together."""
        raise NotImplementedError

    def leaving(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        """Blocks of each slot whose request leaves, and a step on: of tokens as in ``watched``."""
        return s.size, s.size

    def shared(self, s: State) -> Array | int:
        """Blocks that several running requests count, less one each."""
        return 0 if s.kept is None else s.kept.shared

    def used(self, s: State, requests: Requests) -> Array:
        """Blocks that are taken after a pass."""
        return self.taken(s, requests)

    def short(self, s: State, requests: Requests, feed: Feed) -> Array:
        """Whether a running request must make room before the next pass."""
        return jnp.asarray(False)

    def begun(self, s: State, requests: Requests) -> Array:
        """Blocks of the prompt that is partly computed."""
        raise NotImplementedError

    def unread(self, s: State, slot: Array) -> Array:
        """Tokens of the request in a slot that the scheduler has not read, and throws away."""
        return jnp.zeros_like(slot)

    def left_free(self, s: State) -> Array:
        """Tokens that are made free when one request makes room, for those that remain."""
        return jnp.zeros((), jnp.int32)

    def victim(self, s: State, requests: Requests) -> Array:
        """The slot of the request that makes room."""
        raise NotImplementedError

    def kept(self, s: State, requests: Requests, slot: Array) -> Array:
        """The share of tokens to come that counts as needed, once ``slot`` has made room."""
        return s.ratio

    def safe(self, s: State) -> Array:
        """Decode steps that surely find room, once the first one does."""
        return jnp.asarray(NEVER, jnp.int32)

    def steps_in(self, free: Array, decoding: Array) -> Array:
        """Steps of ``decoding`` requests that surely find room, the first in what they have."""
        each = lax.div(jnp.maximum(free, 0), jnp.maximum(decoding, 1))
        most = lax.div(jnp.full_like(each, NEVER), self.block) - 1
        return 1 + self.block * jnp.minimum(each, most)

    def drafted_steps_in(self, s: State, free: Array) -> Array:
        """The same of requests that get up to k + 1 tokens a pass, and room for k more at once."""
        steps = self.steps_in(free, s.decoding) - 1
        return 1 + lax.div(jnp.maximum(steps - self.drafts, 0), 1 + self.drafts)

    def largest(self, prompt: Array, output: Array) -> Array:
        """Blocks that a request needs in an otherwise empty cache."""
        raise NotImplementedError
