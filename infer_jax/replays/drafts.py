"""Requests whose passes verify drafts: passes they take, and the tokens that they get meanwhile.

A server without drafts (``State.drafts`` is None) yields one token of every request in a pass; each
function below begins with it.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.replays.state import UNREACHED, State, get, note, put, total

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


class Drafted(NamedTuple):
    """What a server with drafts has of each slot, and sums over slots."""

    rate: Float[Array, " w"]
    since: Int[Array, " w"]  # the step from which on it decodes
    rest: Int[Array, " w"]
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
    def empty(cls, width: int, kind: jnp.dtype) -> "Drafted":
        """A server that has served nothing yet."""
        slot, zero = jnp.zeros(width, jnp.int32), jnp.zeros((), jnp.int32)
        slots, growth = (slot.astype(kind), slot, slot), jnp.zeros((), kind)
        return cls(*slots, zero, zero, growth, zero, zero, slot, zero, zero, zero)


def start_drafts(s: State, drafts: Drafts | None, width: int) -> State:
    """A server at time 0, with drafts if requests have them."""
    if drafts is None:
        return s
    kind = s.clock.now.dtype
    zero, entries = jnp.zeros((), kind), jnp.zeros_like(s.log.path.time)
    path = s.log.path._replace(context=entries, grows=entries)
    s, own = s._replace(drafts=Drafted.empty(width, kind)), jnp.zeros_like(s.log.last)
    log = {"path": path, "passes_left": own, "last_tokens": own}
    return s.update(slots={"context": zero}, unseen={"tokens": zero}, log=log)


def per_pass(s: State, slot: Array | None = None) -> PerPass | None:
    """Tokens of the last pass and of one before it, of each slot or of one."""
    if s.drafts is None:
        return None
    rest, rate = s.drafts.rest, s.drafts.rate
    return (rest, rate) if slot is None else (get(rest, slot), get(rate, slot))


# a request is admitted
def next_passes(
    s: State, requests: "Requests", at: Array, coming: Array
) -> tuple[Array, PerPass | None]:
    """Passes that yield the ``coming`` tokens of the request that is fed next, from its first."""
    if s.drafts is None:
        return coming, None
    drafts = requests.drafts
    assert drafts is not None
    back = s.drafts.next_left > 0
    passes = jnp.where(back, s.drafts.next_left - 1, get(drafts.passes, at)).astype(jnp.int32)
    rest = jnp.where(back, s.drafts.next_rest, get(drafts.rest, at)).astype(jnp.int32)
    # a prompt yields one token, and where that is the last one everybody knows
    rate = get(drafts.rate, at).astype(s.drafts.rate.dtype)
    return 1 + passes, (jnp.where(passes > 0, rest, 1), rate)


def read_next(s: State, request: Array) -> State:
    """With what was recorded of the request that is fed next."""
    left, rest = s.log.passes_left, s.log.last_tokens
    if left is None or rest is None:
        return s
    return s.update(drafts={"next_left": get(left, request), "next_rest": get(rest, request)})


def slot_base(s: State, tokens: Array, ready: Array) -> Array:
    """What a slot records of a context of ``tokens`` tokens at step ``ready``."""
    return tokens - ready if s.drafts is None else tokens


def admit(s: State, tokens: PerPass | None, slot: Array, ready: Array, ok: Array) -> Drafted | None:
    """A request with these tokens a pass is in a slot, and decodes from step ``ready`` on."""
    drafts = s.drafts
    if drafts is None or tokens is None:
        return drafts
    rest, rate = tokens
    return drafts._replace(
        rate=put(drafts.rate, slot, rate, ok),
        since=put(drafts.since, slot, ready, ok),
        rest=put(drafts.rest, slot, rest, ok),
        order=put(drafts.order, slot, drafts.ended, ok),
        ended=drafts.ended + ok,
    )


# a request is preempted
def preempt(s: State, slot: Array, request: Array, left: Array, unread: Array, ok: Array) -> State:
    """The request in a slot computes its tokens anew; its first new one is one of those to come.

    Its passes yield what they would have: one fewer is needed if the last was wanted for one
    token. The tokens of ``unread`` passes are lost, and ``left`` counts them.
    """
    drafts, log = s.drafts, s.log
    if drafts is None or log.passes_left is None or log.last_tokens is None:
        return s
    rest, rate = get(drafts.rest, slot), get(drafts.rate, slot)
    fewer = rest == 1
    again = jnp.where(fewer, jnp.round(rate).astype(jnp.int32), rest - 1)
    # what it loses is its first token: that comes anew, and nothing else is different
    none = s.clock.steps - get(drafts.since, slot) < unread
    again, fewer = jnp.where(none, rest, again), fewer | none
    return s.update(
        drafts={"context_growth": drafts.context_growth - jnp.where(ok, rate, 0.0)},
        log={
            "passes_left": note(log.passes_left, request, left - fewer + 1, ok),
            "last_tokens": note(log.last_tokens, request, again, ok),
        },
    )


def lost_tokens(s: State, requests: "Requests", slot: Array, left: Array, unread: Array) -> Array:
    """Output tokens that the request in a slot has, and loses, with ``left`` passes to go."""
    if s.drafts is None:
        return get(requests.output, get(s.slots.request, slot)) - left
    tokens = jnp.round(context_of(s, slot, unread)).astype(jnp.int32)
    return tokens - get(requests.prompt, get(s.slots.request, slot))


# tokens of the slots
def _context(base: Array, rate: Array, passes: Array) -> Array:
    """Tokens after so many passes; before the first one a request has its prompt alone."""
    return jnp.where(passes < 0, base - 1.0, base + rate * jnp.maximum(passes, 0))


def context_of(s: State, slot: Array, unread: Array | int = 0) -> Array:
    """Tokens of one slot before the next pass, without those of the last ``unread`` ones."""
    if s.drafts is None:
        return get(s.slots.base, slot) + s.clock.steps
    rate, since = get(s.drafts.rate, slot), get(s.drafts.since, slot)
    return _context(get(s.slots.base, slot), rate, s.clock.steps - since - unread)


def tokens(s: State, steps: Array) -> tuple[Array, Array]:
    """Tokens of each slot after the pass that ends step ``steps``, and at the next one."""
    base = s.slots.base
    if s.drafts is None:
        return base + steps - 1, base + steps
    now = steps - s.drafts.since
    return _context(base, s.drafts.rate, now - 1), _context(base, s.drafts.rate, now)


def blocked_tokens(s: State, steps: Array, count: Array, overlap: Array) -> tuple[Array, Array]:
    """Tokens of each slot with blocks after step ``steps``, and at the next: vLLM's rules.

    A pass has blocks for the k + 1 tokens that it feeds and k that are drafted for the next (k is
    ``count``). Where it is put together ahead, all drafts of the one that runs count as accepted.
    """
    last, now = tokens(s, steps)
    drafts = s.drafts
    if drafts is None:
        return last, now

    def with_drafts(tokens: Array, steps: Array) -> Array:
        doubt = jnp.where(overlap & (steps > drafts.since), 1.0 + count - drafts.rate, 0.0)
        return jnp.where(steps < drafts.since, tokens, tokens + 2 * count + doubt)

    return with_drafts(last, steps - 1), with_drafts(now, steps)


def reserved_tokens(s: State, steps: Array, count: Array, overlap: Array) -> tuple[Array, Array]:
    """The same by SGLang's rules.

    Where passes overlap (its second version of speculation) a pass reserves 2 (k + 1) tokens from
    those that were read on, without those of a pass that runs; else (the first) it takes k + 1
    while it runs, which are not in these numbers.
    """
    drafts = s.drafts
    if drafts is None:
        return tokens(s, steps)
    base, passes = s.slots.base, steps - drafts.since
    ahead = jnp.where(overlap, 2 * (1 + count), 0)

    def reserved(read: Array) -> Array:
        return base - 1 + drafts.rate * jnp.maximum(read, 0) + ahead

    last = reserved(passes - jnp.where(overlap, 1 + drafts.unread_then, 0))
    first = overlap & (passes == 0)
    return jnp.where(first, base - 1.0, last), reserved(passes - drafts.unread)


def output_tokens(s: State, requests: "Requests", unread: Array) -> Array:
    """Output tokens of each slot, without those of the last ``unread`` passes."""
    if s.drafts is None:
        output = requests.output[jnp.maximum(s.slots.request, 0)]
        return output - (s.slots.end - s.clock.steps) - unread
    passes = s.clock.steps - s.drafts.since - unread
    context = _context(s.slots.base, s.drafts.rate, passes)
    prompt = requests.prompt[jnp.maximum(s.slots.request, 0)]
    return jnp.round(context).astype(jnp.int32) - prompt


def leaving_tokens(s: State, steps: Array) -> Array:
    """Context of each slot if it leaves; with drafts ``finish`` sums up the others'."""
    return s.slots.base + steps if s.drafts is None else jnp.zeros_like(s.slots.base)


# a pass runs
def batch_tokens(s: State, count: Array) -> Array:
    """Tokens of the budget that decoding requests take, with ``count`` drafts each."""
    decoding = s.slots.decoding
    return decoding if s.drafts is None else (decoding + s.drafts.over) * (1 + count)


def growth(s: State) -> Array:
    """Tokens that the context of those that stay grows by in a pass."""
    return s.slots.decoding if s.drafts is None else s.drafts.context_growth


def safe_steps(s: State, steps: Array, count: Array) -> Array:
    """Passes that surely find blocks, where ``steps`` of one token each would.

    With drafts up to k + 1 tokens a pass, and blocks for k more at once.
    """
    if s.drafts is None:
        return steps
    return 1 + lax.div(jnp.maximum(steps - 1 - count, 0), 1 + count)


def unknown(s: State, decodes_on: bool) -> tuple[Array | int, Array | int]:
    """Requests that decode once more, for nobody knew that they would end; their context."""
    if s.drafts is not None:
        return s.drafts.over, s.unseen.tokens
    return (s.unseen.finished, s.unseen.tokens) if decodes_on else (0, 0)


def launch(s: State, steps: Array, decodes: Array, overlap: Array) -> State:
    """The state that knows of the pass that ends step ``steps`` whether it decodes unread."""
    drafts = s.drafts
    if drafts is None:
        return s
    several = steps - s.clock.steps > 1
    then = jnp.where(several, overlap.astype(jnp.int32), drafts.unread)
    unread = (decodes & overlap).astype(jnp.int32)
    then = jnp.where(decodes, then, drafts.unread_then)
    return s._replace(drafts=drafts._replace(unread=unread, unread_then=then))


def finish(after: State, end: Array, done: Array, lags: Array, *, knows_ends: bool) -> State:
    """The state with sums over slots that stay, and over those that decode once more.

    ``knows_ends``: the engine counts on a token of each pass, and knows some that end.
    """
    drafts = after.drafts
    if drafts is None:
        return after
    context = tokens(after, after.clock.steps)[1]
    stays = (end < UNREACHED) & ~done
    over = done & lags & ((drafts.rest > 1) | (not knows_ends))
    return after.update(
        slots={"context": total(jnp.where(stays, context, 0.0))},
        unseen={"tokens": total(jnp.where(over, context, 0.0))},
        drafts={
            "context_growth": total(jnp.where(stays, drafts.rate, 0.0)),
            "over": total(over.astype(jnp.int32)),
            "over_rest": total(jnp.where(over, drafts.rest, 0)),
        },
    )
