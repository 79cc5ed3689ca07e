"""Requests whose passes verify drafts: passes they take, and the tokens that they get meanwhile.

``OneToken`` is the server without drafts. Both answer the same questions of the scheduler.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.replays.state import UNREACHED, Slots, State, get, note, put, total

if TYPE_CHECKING:
    from infer_jax.replays.requests import Requests

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
    """No drafts: each pass yields one token of every request that decodes."""

    per_pass = None
    context_growth = None
    unknown_ended = False

    def next_passes(self, requests: "Requests", at: Array, coming: Array) -> tuple[Array, None]:
        """Passes that yield the tokens to come of the request that is fed next, from its first."""
        return coming, None

    def look_ahead(self, request: Array) -> "OneToken":
        """With what was recorded of the request that is fed next."""
        return self

    def base(self, tokens: Array, ready: Array) -> Array:
        """What a slot records of a context of ``tokens`` tokens at step ``ready``."""
        return tokens - ready

    def admit(
        self, per_pass: PerPass | None, passes: Array, slot: Array, ready: Array, ok: Array
    ) -> "OneToken":
        """A request is in a slot, and decodes from step ``ready`` on, where ``ok``."""
        return self

    def make_room(
        self, s: State, slot: Array, request: Array, left: Array, unread: Array, ok: Array
    ) -> "OneToken":
        """The request in a slot computes its tokens anew, where ``ok``."""
        return self

    def tokens(self, slots: Slots, steps: Array) -> tuple[Array, Array]:
        """Tokens of each slot after the pass that ends step ``steps``, and at the next one."""
        return slots.base + steps - 1, slots.base + steps

    def tokens_of(self, s: State, slot: Array) -> Array:
        """Tokens of one slot before the next pass."""
        return get(s.slots.base, slot) + s.clock.steps

    def blocked_tokens(
        self, slots: Slots, steps: Array, drafts: Array, overlap: Array
    ) -> tuple[Array, Array]:
        """Tokens of each slot with blocks after step ``steps``, and at the next: vLLM's rules."""
        return self.tokens(slots, steps)

    def reserved_tokens(
        self, slots: Slots, steps: Array, drafts: Array, overlap: Array
    ) -> tuple[Array, Array]:
        """The same by SGLang's rules."""
        return self.tokens(slots, steps)

    def lost_tokens(
        self, s: State, requests: "Requests", slot: Array, left: Array, unread: Array
    ) -> Array:
        """Output tokens that the request in a slot has, and loses, with ``left`` passes to go."""
        return get(requests.output, get(s.slots.request, slot)) - left

    def output_tokens(self, s: State, requests: "Requests", unread: Array) -> Array:
        """Output tokens of each slot, without those of the last ``unread`` passes."""
        at = jnp.maximum(s.slots.request, 0)
        return requests.output[at] - (s.slots.end - s.clock.steps) - unread

    def of(self, slot: Array) -> None:
        """Tokens of a pass of one slot."""
        return None

    def unknown(self, s: State, decodes_on: bool) -> tuple[Array | int, Array | int]:
        """Requests that decode once more, for nobody knew that they would end; their context."""
        return (s.unseen.finished, s.unseen.tokens) if decodes_on else (0, 0)

    def unknown_tokens(self, s: State) -> Array:
        """Tokens of the last passes of those."""
        return s.unseen.finished

    def batch_tokens(self, decoding: Array, drafts: Array) -> Array:
        """Tokens of the budget that decoding requests take."""
        return decoding

    def growth(self, s: State) -> Array:
        """Tokens that the context of those that stay grows by in a pass."""
        return s.slots.decoding

    def safe_steps(self, steps: Array, drafts: Array) -> Array:
        """Passes that surely find blocks, where ``steps`` of one token each would."""
        return steps

    def leaving_tokens(self, slots: Slots, steps: Array) -> Array:
        """Context of each slot if it leaves."""
        return slots.base + steps

    def launch(self, s: State, steps: Array, decodes: Array, overlap: Array) -> State:
        """The state that knows of the pass that ends step ``steps`` whether it decodes unread."""
        return s

    def finish(
        self, after: State, end: Array, done: Array, lags: Array, *, knows_ends: bool
    ) -> State:
        """The state with sums over slots that stay, and over those that decode once more."""
        return after

    def path_entry(self) -> dict[str, Array]:
        """What an entry of the path has of drafts."""
        return {}


class Drafted(NamedTuple):
    """Drafts: what a server has of each slot and request, and sums. Methods as of ``OneToken``."""

    rate: Float[Array, " w"]
    since: Int[Array, " w"]  # the step from which on it decodes
    rest: Int[Array, " w"]
    # of requests that were taken back: passes that are left, plus one, and tokens of the last one
    passes_left: Int[Array, " n"]
    last: Int[Array, " n"]
    next_left: Int[Array, ""]  # of the request that is fed next
    next_rest: Int[Array, ""]
    context_growth: Float[Array, ""]  # tokens that all which decode get in a pass
    over: Int[Array, ""]  # requests that decode once more, for nobody knew that they would end
    over_rest: Int[Array, ""]  # tokens of their last passes
    order: Int[Array, " w"]  # of each slot, in which prompts ended
    ended: Int[Array, ""]  # prompts
    # whether the next pass is put together while one decodes, and whether the last of these was
    unread: Int[Array, ""]
    unread_then: Int[Array, ""]

    @classmethod
    def empty(cls, requests: int, width: int, kind: jnp.dtype) -> "Drafted":
        """A server that has served nothing yet."""
        slot, zero = jnp.zeros(width, jnp.int32), jnp.zeros((), jnp.int32)
        own, growth = jnp.zeros(requests, jnp.int32), jnp.zeros((), kind)
        slots = slot.astype(kind), slot, slot
        return cls(*slots, own, own, zero, zero, growth, zero, zero, slot, zero, zero, zero)

    @property
    def per_pass(self) -> PerPass:
        """Tokens of the last pass and of one before it, of each slot."""
        return self.rest, self.rate

    @property
    def unknown_ended(self) -> Array:
        """Whether requests decode once more."""
        return self.over > 0

    def of(self, slot: Array) -> PerPass:
        return get(self.rest, slot), get(self.rate, slot)

    def next_passes(self, requests: "Requests", at: Array, coming: Array) -> tuple[Array, PerPass]:
        drafts = requests.drafts
        assert drafts is not None
        back = self.next_left > 0
        passes = jnp.where(back, self.next_left - 1, get(drafts.passes, at)).astype(jnp.int32)
        rest = jnp.where(back, self.next_rest, get(drafts.rest, at)).astype(jnp.int32)
        # a prompt yields one token, and where that is the last one everybody knows
        rate = get(drafts.rate, at).astype(self.rate.dtype)
        return 1 + passes, (jnp.where(passes > 0, rest, 1), rate)

    def look_ahead(self, request: Array) -> "Drafted":
        left, rest = get(self.passes_left, request), get(self.last, request)
        return self._replace(next_left=left, next_rest=rest)

    def base(self, tokens: Array, ready: Array) -> Array:
        return tokens

    def admit(
        self, per_pass: PerPass | None, passes: Array, slot: Array, ready: Array, ok: Array
    ) -> "Drafted":
        assert per_pass is not None
        rest, rate = per_pass
        return self._replace(
            rate=put(self.rate, slot, rate, ok),
            since=put(self.since, slot, ready, ok),
            rest=put(self.rest, slot, rest, ok),
            order=put(self.order, slot, self.ended, ok),
            ended=self.ended + ok,
        )

    def make_room(
        self, s: State, slot: Array, request: Array, left: Array, unread: Array, ok: Array
    ) -> "Drafted":
        """Its first new token is one of those to come.

        Its passes yield what they would have: one fewer is needed if the last was wanted for one
        token. The tokens of ``unread`` passes are lost, and ``left`` counts them.
        """
        rest, rate = get(self.rest, slot), get(self.rate, slot)
        fewer = rest == 1
        again = jnp.where(fewer, jnp.round(rate).astype(jnp.int32), rest - 1)
        # what it loses is its first token: that comes anew, and nothing else is different
        none = s.clock.steps - get(self.since, slot) < unread
        again, fewer = jnp.where(none, rest, again), fewer | none
        return self._replace(
            passes_left=note(self.passes_left, request, left - fewer + 1, ok),
            last=note(self.last, request, again, ok),
            context_growth=self.context_growth - jnp.where(ok, rate, 0.0),
        )

    def tokens(self, slots: Slots, steps: Array) -> tuple[Array, Array]:
        now = steps - self.since
        return _context(slots.base, self.rate, now - 1), _context(slots.base, self.rate, now)

    def tokens_of(self, s: State, slot: Array, unread: Array | int = 0) -> Array:
        rate, since = get(self.rate, slot), get(self.since, slot)
        return _context(get(s.slots.base, slot), rate, s.clock.steps - since - unread)

    def blocked_tokens(
        self, slots: Slots, steps: Array, drafts: Array, overlap: Array
    ) -> tuple[Array, Array]:
        """A pass has blocks for the k + 1 tokens that it feeds and k that are drafted for the next.

        Where it is put together ahead, all drafts of the one that runs count as accepted.
        """
        last, now = self.tokens(slots, steps)

        def with_drafts(tokens: Array, steps: Array) -> Array:
            doubt = jnp.where(overlap & (steps > self.since), 1.0 + drafts - self.rate, 0.0)
            return jnp.where(steps < self.since, tokens, tokens + 2 * drafts + doubt)

        return with_drafts(last, steps - 1), with_drafts(now, steps)

    def reserved_tokens(
        self, slots: Slots, steps: Array, drafts: Array, overlap: Array
    ) -> tuple[Array, Array]:
        """Tokens of each slot after the pass that ends step ``steps``, and at the next: SGLang's.

        Where passes overlap (its second version of speculation) a pass reserves 2 (k + 1) tokens
        from those that were read on, without those of a pass that runs; else (the first) it takes
        k + 1 while it runs, which are not in these numbers.
        """
        passes = steps - self.since
        ahead = jnp.where(overlap, 2 * (1 + drafts), 0)

        def reserved(read: Array) -> Array:
            return slots.base - 1 + self.rate * jnp.maximum(read, 0) + ahead

        last = reserved(passes - jnp.where(overlap, 1 + self.unread_then, 0))
        first = overlap & (passes == 0)
        return jnp.where(first, slots.base - 1.0, last), reserved(passes - self.unread)

    def lost_tokens(
        self, s: State, requests: "Requests", slot: Array, left: Array, unread: Array
    ) -> Array:
        tokens = jnp.round(self.tokens_of(s, slot, unread)).astype(jnp.int32)
        return tokens - get(requests.prompt, get(s.slots.request, slot))

    def output_tokens(self, s: State, requests: "Requests", unread: Array) -> Array:
        tokens = _context(s.slots.base, self.rate, s.clock.steps - self.since - unread)
        prompt = requests.prompt[jnp.maximum(s.slots.request, 0)]
        return jnp.round(tokens).astype(jnp.int32) - prompt

    def unknown(self, s: State, decodes_on: bool) -> tuple[Array, Array]:
        return self.over, s.unseen.tokens

    def unknown_tokens(self, s: State) -> Array:
        return self.over_rest

    def batch_tokens(self, decoding: Array, drafts: Array) -> Array:
        return (decoding + self.over) * (1 + drafts)

    def growth(self, s: State) -> Array:
        return self.context_growth

    def safe_steps(self, steps: Array, drafts: Array) -> Array:
        """Up to k + 1 tokens a pass, and blocks for k more at once."""
        return 1 + lax.div(jnp.maximum(steps - 1 - drafts, 0), 1 + drafts)

    def leaving_tokens(self, slots: Slots, steps: Array) -> Array:
        return jnp.zeros_like(slots.base)

    def launch(self, s: State, steps: Array, decodes: Array, overlap: Array) -> State:
        several = steps - s.clock.steps > 1
        then = jnp.where(several, overlap.astype(jnp.int32), self.unread)
        unread = (decodes & overlap).astype(jnp.int32)
        then = jnp.where(decodes, then, self.unread_then)
        return s._replace(drafts=self._replace(unread=unread, unread_then=then))

    def finish(
        self, after: State, end: Array, done: Array, lags: Array, *, knows_ends: bool
    ) -> State:
        """``knows_ends``: the engine counts on a token of each pass, and knows some that end."""
        tokens = self.tokens(after.slots, after.clock.steps)[1]
        stays = (end < UNREACHED) & ~done
        unknown = done & lags & ((self.rest > 1) | (not knows_ends))
        return after.update(
            slots={"context": total(jnp.where(stays, tokens, 0.0))},
            unseen={"tokens": total(jnp.where(unknown, tokens, 0.0))},
            drafts={
                "context_growth": total(jnp.where(stays, self.rate, 0.0)),
                "over": total(unknown.astype(jnp.int32)),
                "over_rest": total(jnp.where(unknown, self.rest, 0)),
            },
        )

    def path_entry(self) -> dict[str, Array]:
        return {"grows": self.context_growth}


def _context(base: Array, rate: Array, passes: Array) -> Array:
    """Tokens after so many passes; before the first one a request has its prompt alone."""
    return jnp.where(passes < 0, base - 1.0, base + rate * jnp.maximum(passes, 0))


def start_drafts(s: State, drafts: Drafts | None, width: int) -> State:
    """A server at time 0, with drafts if requests have them."""
    if drafts is None:
        return s
    kind = s.clock.now.dtype
    zero, entries = jnp.zeros((), kind), jnp.zeros_like(s.log.path.time)
    path = s.log.path._replace(context=entries, grows=entries)
    s = s._replace(drafts=Drafted.empty(drafts.passes.shape[0], width, kind))
    return s.update(slots={"context": zero}, unseen={"tokens": zero}, log={"path": path})
