"""Requests whose passes verify drafts: passes they take, and the tokens that they get meanwhile.

``OneToken`` is of a server without drafts, whose passes yield one token of every request, and
``Drafted`` of one with them: the loop calls the same methods of both.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.replays.state import UNREACHED, Record, State, get, note, put, total

if TYPE_CHECKING:
    from infer_jax.replays.requests import Requests
    from infer_jax.replays.rules import Rules, ScheduledChunk

PerPass = tuple[Array, Array]  # tokens of a request's last pass, and of one before it


class Drafts(NamedTuple):
    """Passes that each request decodes in, and tokens that they yield, padded as requests are.

    A pass yields 1 to k + 1 tokens of k that are drafted. Of the passes that a request decodes in,
    all but the last yield ``rate`` tokens on average, the last ``rest`` that were still wanted.
    """

    passes: Int[Array, " n"]  # after its first token
    rate: Float[Array, " n"]  # tokens a pass
    rest: Int[Array, " n"]  # tokens that the last pass is wanted for

    def padded(self, size: int) -> "Drafts":
        """As many entries as arrays of requests have."""
        more, kinds = np.ones(size - len(self.passes)), (np.int32, float, np.int32)
        columns = (np.concatenate([x, more]) for x in self)
        return Drafts._make(x.astype(kind) for x, kind in zip(columns, kinds, strict=True))

    def of(self, some: np.ndarray | slice) -> "Drafts":
        """Those of some requests."""
        return Drafts._make(np.asarray(x)[some] for x in self)


def drawn_drafts(
    output: ArrayLike, acceptance: ArrayLike, drafts: int, random: np.random.Generator
) -> Drafts:
    """The passes that requests of ``output`` tokens take, drawn one by one.

    ``acceptance``: that of each position, given that all before it were accepted, or one of all.
    A pass yields the accepted ones and one more (Leviathan et al. 2023, arXiv 2211.17192, 2.3);
    tokens beyond the last one wanted are thrown away.

    >>> import numpy as np
    >>> drawn_drafts([1, 2, 9], 1.0, 3, np.random.default_rng(0)).passes.tolist()
    [0, 1, 2]
    """
    accepted = np.broadcast_to(np.asarray(acceptance, float).reshape(-1)[:drafts], drafts)
    reached = np.cumprod(accepted)
    wanted = np.asarray(output).astype(np.int64) - 1
    passes, before = np.zeros(len(wanted), np.int32), np.zeros(len(wanted), np.int64)
    got = np.zeros(len(wanted), np.int64)
    going = np.flatnonzero(wanted > 0)
    while len(going):
        before[going] = got[going]
        draws = random.random(len(going))[:, None]
        got[going] += 1 + (draws < reached).sum(axis=1)
        passes[going] += 1
        going = going[got[going] < wanted[going]]
    usual = 1.0 + reached.sum()
    rate = np.where(passes > 1, before / np.maximum(passes - 1, 1), usual)
    return Drafts._make((passes, rate, np.maximum(wanted - before, 1).astype(np.int32)))


def tokens_to_come(left: Array, per_pass: PerPass | None) -> tuple[Array, Array]:
    """Tokens to come with ``left`` passes to go, and with one more; None: each yields one."""
    if per_pass is None:
        return left, left + 1
    rest, rate = per_pass
    before = jnp.round(rest + rate * jnp.maximum(left, 0)).astype(jnp.int32)
    now = jnp.round(rest + rate * jnp.maximum(left - 1, 0)).astype(jnp.int32)
    return jnp.where(left > 0, now, 0), before


class OneToken(NamedTuple):
    """A pass yields one token of every request that decodes."""

    per_pass = None  # tokens of the last pass of each slot, and of one before it
    order = None  # of each slot, in which prompts ended

    def next_passes(
        self, requests: "Requests", at: Array, coming: Array
    ) -> tuple[Array, PerPass | None]:
        """Passes of the next request, from its first token on, and tokens of each."""
        return coming, None

    def read_next(self, log: Record, request: Array) -> "OneToken":
        """With what was recorded of the request that is fed next."""
        return self

    def receive(self, ok: Array) -> "OneToken":
        """The same where the next request is a new one."""
        return self

    def admit(self, chunk: "ScheduledChunk", slot: Array, ready: Array) -> "OneToken":
        """A request whose prompt ends is in a slot, and decodes from step ``ready`` on."""
        return self

    def preempt(self, s: State, slot: Array, left: Array, unread: Array, ok: Array) -> State:
        """The state once the request in a slot goes, with ``left`` passes, ``unread`` of them."""
        return s

    def context(self, s: State, steps: Array) -> Array:
        """Tokens of each slot in the cache, once ``steps`` steps have run."""
        return s.slots.base + steps

    def held_tokens(self, s: State, steps: Array, rules: "Rules") -> tuple[Array, Array]:
        """Tokens of each slot with blocks at the pass that ends step ``steps``, and at the next."""
        context = self.context(s, steps)
        return context - 1, context

    reserved_tokens = held_tokens  # the same by SGLang's rules

    def output_tokens(self, s: State, requests: "Requests", unread: Array) -> Array:
        """Output tokens of each slot, without those of the last ``unread`` passes."""
        output = requests.output[jnp.maximum(s.slots.request, 0)]
        return output - (s.slots.end - s.clock.steps) - unread

    def growth(self, s: State) -> Array:
        """Tokens that the context of those that stay grows by in a pass."""
        return s.slots.decoding

    def launch(self, s: State, steps: Array, go: Array, decodes: Array, lags: Array) -> State:
        """The state that knows whether the pass that ends step ``steps`` decodes unread."""
        return s

    def finish(
        self, after: State, end: Array, done: Array, lags: Array, *, knows_ends: bool
    ) -> State:
        """The state with sums over slots that stay, and over those that decode once more."""
        return after


class Drafted(NamedTuple):
    """What a server with drafts has of each slot, and sums over slots."""

    rate: Float[Array, " w"]
    since: Int[Array, " w"]  # the step from which on it decodes
    rest: Int[Array, " w"]
    next_left: Int[Array, ""]  # of the request that is fed next
    next_rest: Int[Array, ""]
    context_growth: Float[Array, ""]  # tokens that all which decode get in a pass
    order: Int[Array, " w"]  # of each slot, in which prompts ended
    ended: Int[Array, ""]  # prompts
    # whether the next pass is put together while one decodes, and whether the last of these was
    unread: Int[Array, ""]
    unread_then: Int[Array, ""]

    @classmethod
    def start(cls, s: State) -> State:
        """A server at time 0 whose requests have drafts."""
        zero, slot = jnp.zeros_like(s.clock.now), jnp.zeros_like(s.slots.request)
        none, entries = jnp.zeros_like(s.clock.steps), jnp.zeros_like(s.log.path.time)
        slots, own = (slot.astype(zero.dtype), slot, slot), jnp.zeros_like(s.log.last)
        path = s.log.path._replace(context=entries, grows=entries)
        s = s._replace(drafts=cls(*slots, none, none, zero, slot, none, none, none))
        log = {"path": path, "passes_left": own, "last_tokens": own}
        return s.update(slots={"context": zero}, unseen={"over_context": zero}, log=log)

    @property
    def per_pass(self) -> PerPass:
        return self.rest, self.rate

    def next_passes(
        self, requests: "Requests", at: Array, coming: Array
    ) -> tuple[Array, PerPass | None]:
        drafts = requests.drafts
        assert drafts is not None
        back = self.next_left > 0
        passes = jnp.where(back, self.next_left - 1, get(drafts.passes, at)).astype(jnp.int32)
        rest = jnp.where(back, self.next_rest, get(drafts.rest, at)).astype(jnp.int32)
        # a prompt yields one token, and where that is the last one everybody knows
        rate = get(drafts.rate, at).astype(self.rate.dtype)
        return 1 + passes, (jnp.where(passes > 0, rest, 1), rate)

    def read_next(self, log: Record, request: Array) -> "Drafted":
        assert log.passes_left is not None and log.last_tokens is not None
        left, rest = get(log.passes_left, request), get(log.last_tokens, request)
        return self._replace(next_left=left, next_rest=rest)

    def receive(self, ok: Array) -> "Drafted":
        left, rest = (jnp.where(ok, 0, x) for x in (self.next_left, self.next_rest))
        return self._replace(next_left=left, next_rest=rest)

    def admit(self, chunk: "ScheduledChunk", slot: Array, ready: Array) -> "Drafted":
        assert chunk.per_pass is not None
        (rest, rate), ends = chunk.per_pass, ~chunk.cut
        return self._replace(
            rate=put(self.rate, slot, rate, ends),
            since=put(self.since, slot, ready, ends),
            rest=put(self.rest, slot, rest, ends),
            order=put(self.order, slot, self.ended, ends),
            ended=self.ended + ends,
        )

    def preempt(self, s: State, slot: Array, left: Array, unread: Array, ok: Array) -> State:
        """It computes its tokens anew; its first new one is one of those to come.

        Its passes yield what they would have: one fewer is needed if the last was wanted for one
        token. The tokens of ``unread`` passes are lost, and ``left`` counts them.
        """
        log, request = s.log, get(s.slots.request, slot)
        assert log.passes_left is not None and log.last_tokens is not None
        rest, rate = get(self.rest, slot), get(self.rate, slot)
        fewer = rest == 1
        again = jnp.where(fewer, jnp.round(rate).astype(jnp.int32), rest - 1)
        # what it loses is its first token: that comes anew, and nothing else is different
        none = s.clock.steps - get(self.since, slot) < unread
        again, fewer = jnp.where(none, rest, again), fewer | none
        return s.update(
            drafts={"context_growth": self.context_growth - jnp.where(ok, rate, 0.0)},
            log={
                "passes_left": note(log.passes_left, request, left - fewer + 1, ok),
                "last_tokens": note(log.last_tokens, request, again, ok),
            },
        )

    def context(self, s: State, steps: Array) -> Array:
        """Before its first pass a request has its prompt alone."""
        passes, first = steps - self.since, s.slots.base + self.since
        return jnp.where(passes < 0, first - 1.0, first + self.rate * jnp.maximum(passes, 0))

    def held_tokens(self, s: State, steps: Array, rules: "Rules") -> tuple[Array, Array]:
        """vLLM: a pass has blocks for the k + 1 tokens that it feeds and k drafts of the next.

        Where it is put together ahead, all drafts of the one that runs count as accepted.
        """
        overlap, count = rules.overlap > 0, rules.drafts

        def block_tokens(steps: Array) -> Array:
            tokens = self.context(s, steps)
            doubt = jnp.where(overlap & (steps > self.since), 1.0 + count - self.rate, 0.0)
            return jnp.where(steps < self.since, tokens, tokens + 2 * count + doubt)

        return block_tokens(steps - 1), block_tokens(steps)

    def reserved_tokens(self, s: State, steps: Array, rules: "Rules") -> tuple[Array, Array]:
        """SGLang: 2 (k + 1) tokens from those that were read on, where passes overlap.

        That is its second version of speculation, without tokens of a pass that runs; the first
        takes k + 1 while a pass runs, which are not in these numbers.
        """
        overlap, first = rules.overlap > 0, s.slots.base + self.since
        passes, ahead = steps - self.since, jnp.where(overlap, 2 * (1 + rules.drafts), 0)

        def reserved(read: Array) -> Array:
            return first - 1 + self.rate * jnp.maximum(read, 0) + ahead

        last = reserved(passes - jnp.where(overlap, 1 + self.unread_then, 0))
        last = jnp.where(overlap & (passes == 0), first - 1.0, last)
        return last, reserved(passes - self.unread)

    def output_tokens(self, s: State, requests: "Requests", unread: Array) -> Array:
        context = jnp.round(self.context(s, s.clock.steps - unread)).astype(jnp.int32)
        return context - requests.prompt[jnp.maximum(s.slots.request, 0)]

    def growth(self, s: State) -> Array:
        return self.context_growth

    def launch(self, s: State, steps: Array, go: Array, decodes: Array, lags: Array) -> State:
        several, lags = steps - s.clock.steps > 1, lags.astype(jnp.int32)
        then = jnp.where(decodes, jnp.where(several, lags, self.unread), self.unread_then)
        then = jnp.where(go, then, self.unread_then)
        unread = jnp.where(go, decodes * lags, self.unread)
        return s.update(drafts={"unread": unread, "unread_then": then})

    def finish(
        self, after: State, end: Array, done: Array, lags: Array, *, knows_ends: bool
    ) -> State:
        over = done & lags & ((self.rest > 1) | (not knows_ends))
        context = self.context(after, after.clock.steps)
        stays = (end < UNREACHED) & ~done
        return after.update(
            slots={"context": total(jnp.where(stays, context, 0.0))},
            unseen={
                "over": total(over.astype(jnp.int32)),
                "over_context": total(jnp.where(over, context, 0.0)),
                "over_tokens": total(jnp.where(over, self.rest, 0)),
            },
            drafts={"context_growth": total(jnp.where(stays, self.rate, 0.0))},
        )
