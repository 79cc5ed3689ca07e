"""Rules by which an engine admits requests, feeds their prompts and makes room for them.

Numbers that every engine has. What differs in kind is a class: ``GuaranteedNoEvict`` (and
``BlockReuse``), ``Preempting`` and ``PrefillFirst``; what differs in number is a leaf, so that
lanes of ``vmap`` may differ in it.
"""

from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from infer_jax.replays import drafts as drafting
from infer_jax.replays.drafts import PerPass
from infer_jax.replays.prefix_cache import CacheHit, NoCache, PrefixCache
from infer_jax.replays.radix_cache import RadixCache
from infer_jax.replays.requests import Requests
from infer_jax.replays.state import UNREACHED, SlotSums, State
from infer_jax.specs import Spec, number, spec


class ScheduledChunk(NamedTuple):
    """The part of a prompt that a pass would feed next."""

    request: Array
    begun: Array  # whether an earlier pass fed a part of it
    waits: Array  # whether there is a request that waits
    whole: Array  # tokens of the prompt to compute, those that it lost included
    passes: Array  # that yield the tokens still to come, from the first
    coming: Array  # tokens still to come
    done: Array  # tokens computed, or cached
    tokens: Array  # of this part
    cut: Array  # whether some remain
    cost: Array  # tokens of the budget, of which those that are found need not be computed
    hit: CacheHit
    per_pass: PerPass | None  # of the request, where tokens are drafted


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
    mixed = True  # decoding requests are fed in the passes that feed prompts
    idle_looks = False  # a rank with nothing to feed looks for itself when the others' pass ends
    can_draft = False  # requests may be drafted for
    cache: ClassVar[type[NoCache] | type[PrefixCache] | type[RadixCache]] = NoCache  # of prompts
    found_once_read = False  # a prompt is found there once the pass that ends it was read
    preempts = False  # a running request may have to make room
    requeues_last = False  # and then goes to the end of the queue
    sums: ClassVar[tuple[str, ...]] = ()  # of ``SlotSums``, those that are added up

    def integers(self) -> Self:
        """The same with whole numbers where tokens, blocks and passes are counted."""
        names = ("budget", "slots", "blocks", "block", "watermark", "chunked", "unit", "poll")
        names += ("overlap", "drafts", "host")
        return self.replace(**{n: jnp.asarray(getattr(self, n)).astype(jnp.int32) for n in names})

    def blocks_of(self, tokens: Array) -> Array:
        """Blocks that hold ``tokens`` tokens: in real numbers, half a token from any whole one."""
        size = self.block.astype(float)
        return whole_number(jnp.floor((tokens + size - 0.5) * (1.0 / size)))

    def start(self, s: State) -> State:
        """A server that has just started."""
        return s

    # admit: whether a request may run
    def admits(self, s: State) -> Array:
        """Whether a pass has a slot and tokens for another request."""
        running = s.slots.running + s.unseen.finished
        blocked = s.queue.preempted | s.queue.blocked
        return (running < self.slots) & ~blocked & (s.batch.left > 0)

    def fits(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        """Whether the cache takes one more request."""
        raise NotImplementedError

    def admission_blocks(self, s: State) -> Array:
        """Blocks taken at most with one more request: a watermark stays free while others run."""
        return self.blocks - jnp.where(s.slots.running + s.unseen.finished > 0, self.watermark, 0)

    def largest_blocks(self, prompt: Array, output: Array) -> Array:
        """Blocks that a request needs in an otherwise empty cache."""
        raise NotImplementedError

    # feed: what a part of a prompt takes of the pass and of the cache
    def prompt_budget(self, s: State) -> Array:
        """Prompt tokens that a pass may feed."""
        decoding = drafting.batch_tokens(s, self.drafts)
        return jnp.maximum(self.budget - decoding, 0)

    def budget_tokens(self, tokens: Array) -> Array:
        """Tokens of the budget that a part of a prompt takes."""
        return tokens

    def reserved_blocks(self, chunk: ScheduledChunk) -> Array:
        """Blocks taken for a request from its admission to its end."""
        return jnp.zeros((), jnp.int32)

    def charge(self, s: State, chunk: ScheduledChunk) -> Array:
        """Tokens of the estimate of free ones that a part of a prompt uses up in this pass."""
        return jnp.zeros_like(s.batch.charged)

    def counts_first(self, chunk: ScheduledChunk) -> Array:
        """Whether that estimate counts a first token that was not read, as one to come."""
        return jnp.asarray(False)

    # blocks that are taken
    def slot_sums(self, left: Array, before: Array, last: Array, now: Array) -> SlotSums:
        """Whole numbers of each slot whose sums these rules look at.

        ``left``: tokens to come, and ``before`` the last pass; ``last`` and ``now``: tokens that
        have blocks in the pass that was, and in the one that comes. Here the blocks of the latter.
        """
        blocks = {"last": self.blocks_of(last), "next": self.blocks_of(now)}
        return SlotSums(**{name: blocks[name] for name in self.sums})

    def add_to_sums(self, s: State, own: SlotSums, ok: Array, sign: int = 1) -> SlotSums:
        """The sums over slots with those of one more, or (``sign`` -1) one less, where ``ok``."""
        return jax.tree.map(lambda x, y: x + sign * jnp.where(ok, y, 0), s.slots.sums, own)

    def slot_tokens(self, s: State, steps: Array) -> tuple[Array, Array]:
        """Tokens of each slot with blocks at the pass that ends step ``steps``, and at the next."""
        return drafting.blocked_tokens(s, steps, self.drafts, self.overlap > 0)

    def taken_blocks(self, s: State, requests: Requests) -> Array:
        """Blocks that are taken, when the pass is put together."""
        return s.slots.sums.next + self.prompt_blocks(s, requests) - s.cache.shared

    def used_blocks(self, s: State, requests: Requests) -> Array:
        """Blocks that are taken after a pass."""
        return self.taken_blocks(s, requests)

    def leaving_blocks(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        """Blocks of each slot if it leaves, and a step on: of tokens as in ``slot_sums``."""
        return s.slots.blocks, s.slots.blocks

    def prompt_blocks(self, s: State, requests: Requests) -> Array:
        """Blocks of the prompt that is partly computed."""
        raise NotImplementedError

    # make room
    def is_short(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        """Whether a running request must make room before the next pass."""
        return jnp.asarray(False)

    def victim(self, s: State, requests: Requests) -> Array:
        """The slot of the request that makes room."""
        raise NotImplementedError

    def unread_tokens(self, s: State, slot: Array) -> Array:
        """Passes of the request in a slot that the scheduler has not read, and throws away."""
        return jnp.zeros_like(slot)

    def tokens_freed(self, s: State) -> Array:
        """Tokens that are made free when one request makes room, for those that remain."""
        return jnp.zeros((), jnp.int32)

    def share_after(self, s: State, requests: Requests, slot: Array) -> Array:
        """The share of tokens to come that counts as needed, once ``slot`` has made room."""
        return s.queue.share

    def safe_steps(self, s: State) -> Array:
        """Decode steps that surely find blocks, once the first one does."""
        return jnp.asarray(UNREACHED, jnp.int32)

    def steps_in(self, s: State, free: Array) -> Array:
        """Steps of the decoding requests that ``free`` blocks suffice for, the first in theirs."""
        each = lax.div(jnp.maximum(free, 0), jnp.maximum(s.slots.decoding, 1))
        most = lax.div(jnp.full_like(each, UNREACHED), self.block) - 1
        return drafting.safe_steps(s, 1 + self.block * jnp.minimum(each, most), self.drafts)

    # finish
    def finish(self, s: State, after: State, gone: Array, prompts: Array, idle: Array) -> State:
        """What an engine notes after its passes: ``gone`` requests have left."""
        return after
