"""Requests whose passes verify drafts: passes they take, and the tokens that they get meanwhile."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.replays.state import NEVER, State, get, note, put, total


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
        whole = (np.concatenate([x, more]) for x in self)
        return Drafts._make(x.astype(kind) for x, kind in zip(whole, kinds, strict=True))

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
        sure = random.random(len(going))[:, None]
        got[going] += 1 + (sure < reached).sum(axis=1)
        passes[going] += 1
        going = going[got[going] < wanted[going]]
    usual = 1.0 + reached.sum()
    rate = np.where(passes > 1, before / np.maximum(passes - 1, 1), usual)
    return Drafts._make((passes, rate, np.maximum(wanted - before, 1).astype(np.int32)))


class Growth(NamedTuple):
    """What a server with drafts keeps besides: of each slot, of each request, and sums."""

    rate: Float[Array, " w"]
    since: Int[Array, " w"]  # the step from which on it decodes
    rest: Int[Array, " w"]
    # of requests that were taken back: passes that are left, plus one, and tokens of the last one
    passes: Int[Array, " n"]
    last: Int[Array, " n"]
    up_passes: Int[Array, ""]  # of the request that is fed next
    up_rest: Int[Array, ""]
    each: Float[Array, ""]  # tokens that all which decode get in a pass
    over: Int[Array, ""]  # requests that decode once more, for nobody knew that they would end
    over_rest: Int[Array, ""]  # tokens of their last passes
    place: Int[Array, " w"]  # of each slot in the order in which prompts ended
    places: Int[Array, ""]
    # whether the next pass is put together while one decodes, and whether the last of these was
    unread: Int[Array, ""]
    unread_then: Int[Array, ""]

    @property
    def each_of(self) -> tuple[Array, Array]:
        """Tokens of the last pass and of one before it, of each slot."""
        return self.rest, self.rate

    def of(self, slot: Array) -> tuple[Array, Array]:
        """The same of one slot."""
        return get(self.rest, slot), get(self.rate, slot)

    @classmethod
    def empty(cls, requests: int, width: int, kind: jnp.dtype) -> "Growth":
        """That of a server which has seen nothing yet."""
        none, zero = jnp.zeros(width, jnp.int32), jnp.zeros((), jnp.int32)
        noted, each = jnp.zeros(requests, jnp.int32), jnp.zeros((), kind)
        slots = none.astype(kind), none, none
        return cls(*slots, noted, noted, zero, zero, each, zero, zero, none, zero, zero, zero)


class NextDrafts(NamedTuple):
    """Of the request that is fed next, as ``Drafts``: passes, tokens of one, tokens of the last."""

    passes: Int[Array, ""]
    rate: Float[Array, ""]
    rest: Int[Array, ""]

    @property
    def each_of(self) -> tuple[Array, Array]:
        """Tokens of the last pass and of one before it."""
        return self.rest, self.rate


def held(s: State, steps: Array) -> tuple[Array, Array]:
    """Tokens of each slot after step ``steps`` - 1, and after that one, before the next pass."""
    if s.growth is None:
        return s.base + steps - 1, s.base + steps
    now = steps - s.growth.since
    return _at(s.base, s.growth.rate, now - 1), _at(s.base, s.growth.rate, now)


def held_by(s: State, slot: Array, unread: Array | int = 0) -> Array:
    """Tokens of one slot before the next pass, without those of the last ``unread`` passes."""
    if s.growth is None:
        return get(s.base, slot) + s.steps
    rate, since = get(s.growth.rate, slot), get(s.growth.since, slot)
    return _at(get(s.base, slot), rate, s.steps - since - unread)


def read(s: State, unread: Array) -> Array:
    """The same of each slot, with drafts, whole."""
    assert s.growth is not None
    tokens = _at(s.base, s.growth.rate, s.steps - s.growth.since - unread)
    return jnp.round(tokens).astype(jnp.int32)


def to_come(left: Array, one: tuple[Array, Array] | None) -> tuple[Array, Array]:
    """Tokens to come with ``left`` passes to go, and with one more.

    ``one``: with drafts, tokens of the last pass and of one before it.
    """
    if one is None:
        return left, left + 1
    rest, rate = one
    before = jnp.round(rest + rate * jnp.maximum(left, 0)).astype(jnp.int32)
    now = jnp.round(rest + rate * jnp.maximum(left - 1, 0)).astype(jnp.int32)
    return jnp.where(left > 0, now, 0), before


def _at(base: Array, rate: Array, passes: Array) -> Array:
    """Before the first of its passes a request has a token less: its prompt."""
    return jnp.where(passes < 0, base - 1.0, base + rate * jnp.maximum(passes, 0))


def wanted(tokens: Array, growth: Growth, drafts: Array, steps: Array, overlap: Array) -> Array:
    """Tokens of each slot that there must be room for at the pass after step ``steps``.

    A pass takes room for the k + 1 tokens that it feeds and k that are drafted for the next. Where
    it is put together ahead, all drafts of the one that runs count as accepted.
    """
    doubt = jnp.where(overlap & (steps > growth.since), 1.0 + drafts - growth.rate, 0.0)
    return jnp.where(steps < growth.since, tokens, tokens + 2 * drafts + doubt)


def reserved(s: State, steps: Array, drafts: Array, overlap: Array) -> tuple[Array, Array]:
    """Tokens of each slot with room after the pass that ends step ``steps``, and at the next.

    By SGLang's rules. Where passes overlap (its second version of speculation) a pass reserves
    2 (k + 1) tokens from those that were read on, without those of a pass that runs; else (the
    first) it takes room for k + 1 while it runs, which are not in these numbers.
    """
    growth = s.growth
    assert growth is not None
    passes = steps - growth.since
    ahead = jnp.where(overlap, 2 * (1 + drafts), 0)

    def room(seen: Array) -> Array:
        return s.base - 1 + growth.rate * jnp.maximum(seen, 0) + ahead

    last = room(passes - jnp.where(overlap, 1 + growth.unread_then, 0))
    return jnp.where(overlap & (passes == 0), s.base - 1.0, last), room(passes - growth.unread)


def flying(s: State, steps: Array, decodes: Array, overlap: Array) -> State:
    """The state that knows of the pass that ends step ``steps`` whether it decodes unread."""
    if s.growth is None:
        return s
    several = steps - s.steps > 1
    then = jnp.where(several, overlap.astype(jnp.int32), s.growth.unread)
    growth = s.growth._replace(
        unread=(decodes & overlap).astype(jnp.int32),
        unread_then=jnp.where(decodes, then, s.growth.unread_then),
    )
    return s._replace(growth=growth)


def summed(after: State, ends: Array, done: Array, lags: Array, *, surely: bool) -> State:
    """The sums over slots that stay, and over those that decode once more (``lags``).

    ``surely``: the engine counts on it that a pass yields a token, and knows of some that they end.
    """
    growth = after.growth
    assert growth is not None
    stays, tokens = (ends < NEVER) & ~done, held(after, after.steps)[1]
    unknown = done & lags & ((growth.rest > 1) | (not surely))
    each = total(jnp.where(stays, growth.rate, 0.0))
    return after._replace(
        context=total(jnp.where(stays, tokens, 0.0)),
        late_tokens=total(jnp.where(unknown, tokens, 0.0)),
        growth=growth._replace(
            each=each,
            over=total(unknown.astype(jnp.int32)),
            over_rest=total(jnp.where(unknown, growth.rest, 0)),
        ),
    )


def opened(s: State, drafts: Drafts, width: int) -> State:
    """A server with drafts, at time 0."""
    kind = s.now.dtype
    zero = jnp.zeros((), kind)
    none = jnp.zeros_like(s.path.time)
    return s._replace(
        growth=Growth.empty(drafts.passes.shape[0], width, kind),
        context=zero,
        late_tokens=zero,
        path=s.path._replace(context=none, grows=none),
    )


def ahead(growth: Growth | None, up: Array) -> Growth | None:
    """What was noted of the request that is fed next."""
    if growth is None:
        return None
    return growth._replace(up_passes=get(growth.passes, up), up_rest=get(growth.last, up))


def look(growth: Growth | None, drafts: Drafts | None, up: Array) -> NextDrafts | None:
    """What the request that is fed next takes."""
    if growth is None or drafts is None:
        return None
    back = growth.up_passes > 0
    passes = jnp.where(back, growth.up_passes - 1, get(drafts.passes, up)).astype(jnp.int32)
    rest = jnp.where(back, growth.up_rest, get(drafts.rest, up)).astype(jnp.int32)
    # a prompt yields one token, and where that is the last one everybody knows
    rate = get(drafts.rate, up).astype(growth.rate.dtype)
    return NextDrafts(passes, rate, jnp.where(passes > 0, rest, 1))


def fed(
    growth: Growth | None, one: NextDrafts | None, slot: Array, ready: Array, ok: Array
) -> Growth | None:
    """It is in a slot, and decodes from step ``ready`` on, where ``ok``."""
    if growth is None or one is None:
        return None
    return growth._replace(
        rate=put(growth.rate, slot, one.rate, ok),
        since=put(growth.since, slot, ready, ok),
        rest=put(growth.rest, slot, one.rest, ok),
        place=put(growth.place, slot, growth.places, ok),
        places=growth.places + ok,
    )


def taken_back(
    s: State, slot: Array, request: Array, left: Array, unread: Array, ok: Array
) -> Growth | None:
    """The request in a slot computes its tokens anew, which yields one of those to come.

    Its passes yield what they would have: one fewer is needed if the last was wanted for one token.
    The tokens of ``unread`` passes are lost, and ``left`` counts them.
    """
    growth = s.growth
    if growth is None:
        return None
    rest, rate = get(growth.rest, slot), get(growth.rate, slot)
    fewer = rest == 1
    again = jnp.where(fewer, jnp.round(rate).astype(jnp.int32), rest - 1)
    # what it loses is its first token: that comes anew, and nothing else is different
    none = s.steps - get(growth.since, slot) < unread
    again, fewer = jnp.where(none, rest, again), fewer | none
    return growth._replace(
        passes=note(growth.passes, request, left - fewer + 1, ok),
        last=note(growth.last, request, again, ok),
        each=growth.each - jnp.where(ok, rate, 0.0),
    )
