"""Rules of engines that stop decoding while a prompt can be computed."""

import jax.numpy as jnp
from jax import Array

from infer_jax.replays import drafted
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Feed, Rules
from infer_jax.replays.state import NEVER, State, get, total
from infer_jax.specs import number, spec

HAIR = 1e-6  # tokens


@spec
class PrefillFirst(Rules):
    """Passes feed prompts alone while any can be admitted, and decode otherwise.

    SGLang (python/sglang/srt/managers/schedule_policy.py at 00550cd, ``PrefillAdder``;
    scheduler.py, ``get_next_batch_to_run``; schedule_batch.py, ``retract_decode``). A request is
    admitted if its tokens to compute and to come (``clip`` at the most) are fewer than the free
    ones less a share, ``ratio``, of what running requests have to come. The share falls from
    ``ratio`` to ``least`` in ``decay`` decode passes. A request that does not fit, or finds no
    slot, ends admission until one has left and one more decode pass has run. Where the next tokens
    find no room, requests with the fewest tokens (of those the longest prompts) go back to the end
    of the queue, and the share becomes (tokens so far + ``ahead`` each) / (all tokens + 1) of the
    others. With drafts those go back whose prompts ended last, and what a decode pass finds room
    for is in ``drafted.reserved``.
    """

    ratio: Array = number("share counted of tokens to come", kind="fraction", high=1, default=0.7)
    least: Array = number("what it falls to", kind="fraction", high=1, default=0.098)
    decay: Array = number("decode passes in which it falls", kind="count", low=1, default=600.0)
    clip: Array = number("tokens to come counted at most", kind="count", default=4096.0)
    ahead: Array = number(
        "tokens that the share counts ahead after room was made", kind="count", default=20.0
    )

    beside = False
    preempts = True
    returns = True
    speculates = True
    keeps = True
    tree = True
    sums = 4

    def watched(self, left: Array, before: Array, last: Array, now: Array) -> tuple[Array, ...]:
        """Blocks after the last step and at the next, tokens to come, and those a step before."""
        clip = self.clip.astype(jnp.int32)
        verified = jnp.where((self.drafts > 0) & (self.overlap == 0), 1 + self.drafts, 0)
        blocks = self.needed(last), self.needed(now) + self.needed(verified)
        return *blocks, jnp.minimum(left, clip), jnp.minimum(before, clip)

    def tokens(self, s: State, steps: Array) -> tuple[Array, Array]:
        if s.growth is None:
            return super().tokens(s, steps)
        return drafted.reserved(s, steps, self.drafts, self.overlap > 0)

    def opened(self, s: State) -> State:
        return s._replace(ratio=jnp.asarray(self.ratio, s.ratio.dtype))

    def noted(self, s: State, after: State, gone: Array, prompts: Array, idle: Array) -> State:
        # what is known of those who leave: all of it, or (overlap) who left a pass ago, which a
        # decode pass alone takes note of
        lags = self.overlap > 0
        leaves = jnp.where(lags, s.late, gone) > 0
        at_once = jnp.where(lags, False, leaves)
        cleared = jnp.where(prompts, at_once, s.clearing)
        cleared |= jnp.where(lags, idle, after.decoding == 0)
        kept = jnp.where(lags, s.clearing | leaves, s.clearing)
        fall = (self.ratio - self.least) / self.decay * (after.steps - s.steps)
        ratio = jnp.where(s.barred, s.ratio, jnp.maximum(s.ratio - fall, self.least))
        return after._replace(
            full=s.full & ~cleared,
            clearing=jnp.where(prompts, kept, leaves),
            ratio=jnp.where(idle, self.ratio, ratio).astype(s.ratio.dtype),
        )

    def room(self, s: State) -> Array:
        return self.budget

    def spent(self, tokens: Array) -> Array:
        """Whole blocks (``ceil_paged_tokens``)."""
        return self.needed(tokens) * self.block

    def fits(self, s: State, requests: Requests, feed: Feed) -> Array:
        taken, found = self.taken(s, requests) + s.late_blocks, 0
        if feed.found is not None:
            found = feed.found.all * self.block
            taken += feed.found.all - feed.found.used
        free = (self.blocks - taken) * self.block.astype(float)
        late = s.late if s.growth is None else s.growth.over_rest
        coming = jnp.where(s.decoded, s.watched[3], s.watched[2] + s.unread) + late
        rest = free - coming * s.ratio - s.charged
        # at a tie no request is admitted, whatever the digits of ``charge`` say
        return feed.whole - found + jnp.minimum(feed.coming, self.clip) < rest - HAIR

    def charge(self, s: State, feed: Feed) -> Array:
        """Tokens to come, whole, less the share that ``fits`` counts of those in slots."""
        coming = jnp.minimum(feed.coming, self.clip)
        now, before = drafted.to_come(feed.out - 1, feed.drafts and feed.drafts.each_of)
        counted = s.ratio * jnp.minimum(jnp.where(s.decoded, before, now), self.clip)
        return self.block + jnp.where(feed.cut, 0.0, coming - counted)

    def counts(self, feed: Feed) -> Array:
        return feed.coming <= self.clip

    def taken(self, s: State, requests: Requests) -> Array:
        part = jnp.where(s.part >= 0, self.needed(s.part_done), 0)
        return s.watched[0] + part - self.shared(s)

    def used(self, s: State, requests: Requests) -> Array:
        late = 0 if s.kept is None else s.late_blocks
        return self.taken(s, requests) + late

    def leaving(self, s: State, last: Array, now: Array) -> tuple[Array, Array]:
        return self.needed(last), self.needed(now)

    def short(self, s: State, requests: Requests, feed: Feed) -> Array:
        wanted = s.watched[1] + s.late_more - self.shared(s)
        return (s.fed == 0) & (s.decoding > 1) & (wanted > self.blocks)

    def left_free(self, s: State) -> Array:
        return self.ahead.astype(jnp.int32) * (s.decoding - 1 + s.late)

    def victim(self, s: State, requests: Requests) -> Array:
        """The fewest tokens so far; of those the longest prompt, then the last to arrive."""
        there, who = s.ends < NEVER, jnp.maximum(s.who, 0)
        if s.growth is not None:  # whose prompt ended last
            return jnp.argmax(jnp.where(there, s.growth.place, -1)).astype(jnp.int32)
        prompt = requests.prompt[who]
        tokens = self._tokens(s, requests)
        fewest = there & (tokens == jnp.min(jnp.where(there, tokens, NEVER)))
        longest = fewest & (prompt == jnp.max(jnp.where(fewest, prompt, 0)))
        return jnp.argmax(jnp.where(longest, s.who, -1)).astype(jnp.int32)

    def kept(self, s: State, requests: Requests, slot: Array) -> Array:
        output = requests.output[jnp.maximum(s.who, 0)]
        rest = (s.ends < NEVER) & (jnp.arange(s.who.shape[0]) != slot)
        tokens = self._tokens(s, requests)
        so_far = total(jnp.where(rest, tokens + self.ahead, 0.0))
        ratio = so_far / (total(jnp.where(rest, output, 0)) + 1.0)
        return jnp.minimum(ratio, 1.0).astype(s.ratio.dtype)

    def _tokens(self, s: State, requests: Requests) -> Array:
        """Output tokens of each slot that the scheduler has read."""
        who = jnp.maximum(s.who, 0)
        if s.growth is not None:
            return drafted.read(s, self._unread(s)) - requests.prompt[who]
        return requests.output[who] - (s.ends - s.steps) - self._unread(s)

    def unread(self, s: State, slot: Array) -> Array:
        came = get(s.ready, jnp.maximum(get(s.who, slot), 0)) == s.turn - 1
        return ((self.overlap > 0) & (s.decoded | came)).astype(jnp.int32)

    def _unread(self, s: State) -> Array:
        """Whether each request has a token in the pass that runs while this one is composed."""
        came = s.ready[jnp.maximum(s.who, 0)] == s.turn - 1
        return ((self.overlap > 0) & (s.decoded | came)).astype(jnp.int32)

    def safe(self, s: State) -> Array:
        free = self.blocks - s.watched[1] - s.late_more + self.shared(s)
        if s.growth is not None:
            return self.drafted_steps_in(s, free)
        return self.steps_in(free, s.decoding)

    def largest(self, prompt: Array, output: Array) -> Array:
        """With the tokens that its admission wants free beside its own, and room for drafts."""
        ahead = jnp.where(self.drafts > 0, 2 * (1 + self.drafts), 0)
        return self.needed(prompt + output + 1 + ahead)
