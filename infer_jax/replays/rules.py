"""Rules by which an engine admits requests, feeds their prompts and preempts them.

Numbers that every engine has. What differs in kind is a class: ``GuaranteedNoEvict`` (and
``BlockReuse``), ``Preempting`` and ``PrefillFirst``; what differs in number is a leaf, so that
lanes of ``vmap`` may differ in it.
"""

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import jax.numpy as jnp
from jax import Array, lax

from infer_jax.replays.drafts import PerPass
from infer_jax.replays.prefix_cache import CacheHit, NoCache, PrefixCache
from infer_jax.replays.radix_cache import RadixCache
from infer_jax.replays.requests import Requests
from infer_jax.replays.state import UNREACHED, SlotSums, State
from infer_jax.specs import Spec, number, spec

if TYPE_CHECKING:
    from infer_jax.replays.scheduler import Scheduler


class ScheduledChunk(NamedTuple):
    """The part of a prompt that a pass would feed next."""

    request: Array
    begun: Array  # whether an earlier pass fed a part of it
    waits: Array  # whether a request waits
    whole: Array  # prompt tokens, with output that a preemption lost
    passes: Array  # that yield the tokens still to come, from the first
    coming: Array  # tokens still to come
    done: Array  # tokens computed, or cached
    tokens: Array  # of this part
    cut: Array  # whether some remain
    cost: Array  # tokens of the budget, cached ones among them where the engine counts these
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
    """Sizes of a server, and how its scheduler composes a pass.

    Variables of engines are those of vLLM's vllm/v1/core/sched/scheduler.py, TensorRT-LLM's
    capacityScheduler.cpp and microBatchScheduler.cpp, and SGLang's schedule_policy.py
    (``PrefillAdder``) and schedule_batch.py, at the commits that the subclasses name.
    """

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
        "passes between two polls for new requests", kind="count", low=1, default=1.0
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
    idle_polls = False  # a rank with nothing to feed polls by itself when the others' pass ends
    can_draft = False  # requests may be drafted for
    cache: ClassVar[type[NoCache] | type[PrefixCache] | type[RadixCache]] = NoCache  # of prompts
    found_once_read = False  # a prompt is in it once the results of its last pass are read
    preempts = False  # a running request may be preempted
    requeues_last = False  # and then goes to the end of the queue (SGLang), not to its front
    sums: ClassVar[tuple[str, ...]] = ()  # fields of ``SlotSums`` that these rules need

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

    # admission: whether the next request of the queue may run, and how much a pass feeds of it
    def admits(self, s: State) -> Array:
        """Whether a pass has a slot and tokens for another request.

        vLLM: ``len(self.running) < self.max_num_running_reqs`` and ``token_budget > 0``.
        """
        running = s.slots.running + s.unseen.finished
        blocked = s.queue.preempted | s.queue.blocked
        return (running < self.slots) & ~blocked & (s.batch.left > 0)

    def fits(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        """Whether the cache takes one more request.

        vLLM: ``kv_cache_manager.allocate_slots``; TensorRT-LLM: ``enoughAvailableBlocks``; SGLang:
        not ``total_tokens >= rem_total_tokens``.
        """
        raise NotImplementedError

    def admission_blocks(self, s: State) -> Array:
        """Blocks in use at most with one more request: a watermark stays free while others run."""
        return self.blocks - jnp.where(s.slots.running + s.unseen.finished > 0, self.watermark, 0)

    def largest_blocks(self, prompt: Array, output: Array) -> Array:
        """Blocks that a request needs in an otherwise empty cache."""
        raise NotImplementedError

    def prompt_budget(self, s: State) -> Array:
        """Prompt tokens that a pass may feed: the budget less the tokens that decode.

        vLLM: ``token_budget``, TensorRT-LLM: ``max_num_tokens``; SGLang: ``rem_chunk_tokens``.
        """
        decoding = s.slots.decoding + s.unseen.over
        return jnp.maximum(self.budget - decoding * (1 + self.drafts), 0)

    def budget_tokens(self, tokens: Array) -> Array:
        """Tokens of the budget that a part of a prompt takes; SGLang: ``ceil_paged_tokens``."""
        return tokens

    def update_prefill_budget(self, s: State, chunk: ScheduledChunk) -> dict[str, Array]:
        """What a part of a prompt adds to SGLang's ``rem_total_token_offset``; others have none."""
        return {}

    # blocks in use
    def reserved_blocks(self, chunk: ScheduledChunk) -> Array:
        """Blocks reserved for a request from its admission to its end.

        TensorRT-LLM: ``getRemainingBlocksToCompletion``; others reserve none.
        """
        return jnp.zeros((), jnp.int32)

    def slot_sums(self, left: Array, before: Array, last: Array, now: Array) -> SlotSums:
        """Whole numbers of each slot whose sums these rules need: here blocks.

        ``left``: tokens to come, and ``before`` the last pass; ``last`` and ``now``: tokens that
        have blocks in the last pass, and in the next.
        """
        blocks = {"last": self.blocks_of(last), "next": self.blocks_of(now)}
        return SlotSums(**{name: blocks[name] for name in self.sums})

    def slot_tokens(self, s: State, steps: Array) -> tuple[Array, Array]:
        """Tokens of each slot with blocks at the pass that ends step ``steps``, and at the next."""
        return s.drafts.held_tokens(s, steps, self)

    def taken_blocks(self, s: State, requests: Requests) -> Array:
        """Blocks in use when the next pass is put together."""
        return s.slots.sums.next + self.prompt_blocks(s, requests) - s.cache.shared

    def used_blocks(self, s: State, requests: Requests) -> Array:
        """Blocks in use after a pass."""
        taken = s.slots.sums.last + self.prompt_blocks(s, requests) - s.cache.shared
        return taken + s.unseen.blocks * s.cache.counts_unseen

    def decode_blocks(self, s: State) -> Array:
        """Blocks that the next pass takes for requests that decode."""
        return s.slots.sums.next + s.unseen.next_blocks - s.cache.shared

    def leaving_blocks(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        """Blocks that each slot frees if its request ends with this step, or with the next one.

        ``last``, ``now``: tokens as in ``slot_sums``.
        """
        return s.slots.blocks, s.slots.blocks

    def prompt_blocks(self, s: State, requests: Requests, more: Array | int = 0) -> Array:
        """Blocks of the prompt that is partly computed, with ``more`` tokens of it."""
        return jnp.where(s.batch.request >= 0, self.blocks_of(s.batch.computed + more), 0)

    # preemption, of rules that ``preempts`` is set for
    def is_short(self, s: State, requests: Requests, chunk: ScheduledChunk) -> Array:
        """Whether the next pass lacks blocks, so that a running request is preempted before it.

        vLLM: ``allocate_slots`` is None for a running request; SGLang: not ``check_decode_mem``.
        """
        return jnp.asarray(False)

    def victim(self, s: State, requests: Requests) -> tuple[Array, Array]:
        """The slot of the request that is preempted, and its passes that were not read yet."""
        raise NotImplementedError

    def requeue(
        self, ctx: "Scheduler", s: State, after: State, victim: Array, slot: Array
    ) -> State:
        """The state with the request that was preempted from ``slot`` back in the queue."""
        raise NotImplementedError

    def safe_steps(self, s: State) -> Array:
        """Decode steps that surely find blocks, once the first one does.

        With drafts up to k + 1 tokens a step, and blocks for k more at once.
        """
        free = jnp.maximum(self.blocks - self.decode_blocks(s), 0)
        each = lax.div(free, jnp.maximum(s.slots.decoding, 1))
        most = lax.div(jnp.full_like(each, UNREACHED), self.block) - 1
        more = jnp.maximum(self.block * jnp.minimum(each, most) - self.drafts, 0)
        return 1 + lax.div(more, 1 + self.drafts)

    # the end of a pass
    def finish(self, s: State, after: State, gone: Array, prompts: Array, idle: Array) -> State:
        """The state with what the engine updates after a pass: ``gone`` requests have left."""
        return after
