"""Requests whose passes verify drafts: passes they take, and the tokens that they get meanwhile."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.replays.state import NEVER, State, get, note, put, total


class Drafts(NamedTuple):
    """Of each request what its drafts come to, padded as requests are.

    A pass yields 1 to k + 1 tokens of k that are drafted. Of the passes that a request decodes in,
    all but the last yield ``rate`` tokens on average, the last ``rest`` that were still wanted.
    """

    passes: Int[Array, " n"]  # after its first token
    rate: Float[Array, " n"]  # tokens a pass
    rest: Int[Array, " n"]  # tokens that the last pass is wanted for

    def padded(self, size: int) -> "Drafts":
        """As many entries as arrays of requests have."""
        more = size - len(self.passes)
        return Drafts._make(np.concatenate([x, np.ones(more, x.dtype)]) for x in self)


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
    passes: Int[Array, " n"]  # of every request, as they are left after preemptions
    last: Int[Array, " n"]
    up_passes: Int[Array, ""]  # of the request that is fed next
    up_rest: Int[Array, ""]
    up_rate: Float[Array, ""]
    each: Float[Array, ""]  # tokens that all which decode get in a pass
    over: Int[Array, ""]  # requests that decode once more, for nobody knew that they would end

    @classmethod
    def empty(cls, drafts: Drafts, width: int, kind: jnp.dtype) -> "Growth":
        """That of a server which has seen nothing yet."""
        none, zero = jnp.zeros(width, jnp.int32), jnp.zeros((), jnp.int32)
        passes, last = drafts.passes.astype(jnp.int32), drafts.rest.astype(jnp.int32)
        rate, each = drafts.rate[0].astype(kind), jnp.zeros((), kind)
        return cls(
            none.astype(kind), none, none, passes, last, passes[0], last[0], rate, each, zero
        )


def held(s: State, steps: Array) -> tuple[Array, Array]:
    """Tokens of each slot after step ``steps`` - 1, and after that one, before the next pass."""
    if s.growth is None:
        return s.base + steps - 1, s.base + steps
    now = steps - s.growth.since
    return _at(s.base, s.growth.rate, now - 1), _at(s.base, s.growth.rate, now)


def held_by(s: State, slot: Array) -> Array:
    """Tokens of one slot before the next pass."""
    if s.growth is None:
        return get(s.base, slot) + s.steps
    rate, since = get(s.growth.rate, slot), get(s.growth.since, slot)
    return _at(get(s.base, slot), rate, s.steps - since)


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


def summed(after: State, ends: Array, done: Array, lags: Array) -> State:
    """The sums over slots that stay, and over those that decode once more (``lags``)."""
    growth = after.growth
    assert growth is not None
    stays, tokens = (ends < NEVER) & ~done, held(after, after.steps)[1]
    unknown = done & (growth.rest > 1) & lags
    each = total(jnp.where(stays, growth.rate, 0.0))
    return after._replace(
        context=total(jnp.where(stays, tokens, 0.0)),
        late_tokens=total(jnp.where(unknown, tokens, 0.0)),
        growth=growth._replace(each=each, over=total(unknown.astype(jnp.int32))),
    )


def opened(s: State, drafts: Drafts, width: int) -> State:
    """A server with drafts, at time 0."""
    kind = s.now.dtype
    zero = jnp.zeros((), kind)
    none = jnp.zeros_like(s.path.time)
    return s._replace(
        growth=Growth.empty(drafts, width, kind),
        context=zero,
        late_tokens=zero,
        path=s.path._replace(context=none, grows=none),
    )


def ahead(growth: Growth | None, drafts: Drafts | None, up: Array) -> Growth | None:
    """What is to be known of the request that is fed next."""
    if growth is None or drafts is None:
        return None
    rate = get(drafts.rate, up).astype(growth.up_rate.dtype)
    return growth._replace(
        up_passes=get(growth.passes, up), up_rest=get(growth.last, up), up_rate=rate
    )


def fed(growth: Growth | None, slot: Array, ready: Array, ok: Array) -> Growth | None:
    """It is in a slot, and decodes from step ``ready`` on, where ``ok``."""
    if growth is None:
        return None
    # a prompt yields one token, and where that is the last one everybody knows
    rest = jnp.where(growth.up_passes > 0, growth.up_rest, 1)
    return growth._replace(
        rate=put(growth.rate, slot, growth.up_rate, ok),
        since=put(growth.since, slot, ready, ok),
        rest=put(growth.rest, slot, rest, ok),
    )


def taken_back(s: State, slot: Array, request: Array, left: Array, ok: Array) -> Growth | None:
    """The request in a slot computes its tokens anew, which yields one of those to come.

    Its passes yield what they would have: one fewer is needed if the last was wanted for one token.
    """
    growth = s.growth
    if growth is None:
        return None
    rest, rate = get(growth.rest, slot), get(growth.rate, slot)
    fewer = rest == 1
    again = jnp.where(fewer, jnp.round(rate).astype(jnp.int32), rest - 1)
    return growth._replace(
        passes=note(growth.passes, request, left - fewer, ok),
        last=note(growth.last, request, again, ok),
        each=growth.each - jnp.where(ok, rate, 0.0),
    )
