"""Where the cache of a conversation is when its next turn comes: device, host, disk, elsewhere.

Tiers are filled in order and each gives up what was not used for longest. What a conversation left
is kept for a characteristic time after its last turn, the same for all, for which the tiers up to
one are full on average (Che, Tung and Wang 2002, IEEE JSAC 20; ``prefix_cache`` has it for
exponential gaps). Gaps here are any, known by their quantiles.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from infer_jax.physics.root import crossing


class Turns(NamedTuple):
    """Conversations of one kind.

    ``gaps``: seconds from a turn to the next, at the probabilities ``levels``, from 0 to 1;
    ``branches``: requests that a turn forks once it is answered, in the mean: subagents, parallel
    tools. Each begins with all that was said, adds ``news``, and is never continued.

    ``depth``: turns before a turn, in the mean: E N (N - 1) / (2 E N) of N turns, (count - 1) / 2
    where all have as many, count - 1 where N is geometric.
    """

    rate: Array  # conversations that begin a second, 1/s
    count: Array  # turns of one, in the mean, at least 1
    first: Array  # tokens of the first prompt
    news: Array  # tokens that each turn after it adds
    output: Array  # tokens of an answer
    depth: Array
    levels: Float[Array, " q"]
    gaps: Float[Array, " q"]
    branches: Array | float = 0.0

    @property
    def left(self) -> Array:
        """Tokens that all turns leave in the cache, 1/s.

        Turn k leaves first + output + (k - 1) (news + output).
        """
        grown = self.depth * (self.news + self.output)
        return self.rate * self.count * (self.first + self.output + grown)

    @property
    def context(self) -> Array:
        """Tokens that the turns leave which are followed by another, in the mean.

        Before one of these are E (N - 1) (N - 2) / (2 E (N - 1)) = depth count / (count - 1) - 1
        turns, of geometric N as many as before any.

        >>> some = Turns(*map(jnp.asarray, (0.1, 2.0, 100.0, 50.0, 50.0, 1.0)), jnp.zeros(2),
        ...     jnp.ones(2))
        >>> float(some.context)  # of turns 1, 2, ...: 150, 250, ... with 1/2, 1/4, ...
        250.0
        """
        more = self.count - 1.0
        turns = self.depth * self.count / jnp.where(more > 0.0, more, 1.0) - 1.0
        return self.first + self.output + jnp.maximum(turns, 0.0) * (self.news + self.output)

    @property
    def followed(self) -> Array:
        """Tokens that turns leave which are followed by another, 1/s."""
        return self.rate * (self.count - 1.0) * self.context

    @property
    def forked(self) -> Array:
        """Tokens that branches leave beyond what they share, which nobody uses again, 1/s."""
        return self.rate * self.count * self.branches * (self.news + self.output)

    @property
    def prompts(self) -> Array:
        """Prompt tokens of all requests, 1/s: what the turn before left, and what is new."""
        new = self.first + (self.count * (1.0 + self.branches) - 1.0) * self.news
        return self.rate * new + self.followed + self.branches * self.left

    def within(self, time: Array) -> Array:
        """Share of gaps within a time (s); the logarithm of a gap is linear in it."""
        gaps, levels = jnp.log(jnp.maximum(self.gaps, 1e-9)), self.levels
        return jnp.interp(jnp.log(jnp.maximum(time, 1e-9)), gaps, levels, left=0.0, right=1.0)

    def waited(self, time: Array) -> Array:
        """Mean seconds for which a context waits for its turn, if it is kept ``time`` at most.

        E min(gap, T), the integral of 1 - F to T, piece by piece of F = f + m log(t / a).
        """
        low, high = self.gaps[:-1], self.gaps[1:]
        begins, rise = self.levels[:-1], jnp.diff(self.levels)
        ratio = jnp.log(jnp.maximum(high, 1e-9) / jnp.maximum(low, 1e-9))
        flat = ratio < 1e-9
        slope = jnp.where(flat, 0.0, rise / jnp.where(flat, 1.0, ratio))
        t = jnp.clip(time, low, high)
        grown = t * jnp.log(jnp.maximum(t, 1e-9) / jnp.maximum(low, 1e-9)) - (t - low)
        inside = (1.0 - begins) * (t - low) - slope * grown
        return jnp.minimum(time, self.gaps[0]) + jnp.sum(inside)


class TierHits(NamedTuple):
    """Of each tier in order: how long a context stays in it and those before, and what it finds.

    Branches find what they share on the device, the first tier: it has just been computed.
    """

    stays: Float[Array, " k"]  # s after the last turn
    turns: Float[Array, " k"]  # share of the turns that follow another
    tokens: Float[Array, " k"]  # prompt tokens found, 1/s


def tier_hits(turns: Turns, room: Float[Array, " k"]) -> TierHits:
    """What the turns of conversations find in tiers of ``room`` tokens each, in order.

    T_k solves left (q E min(gap, T) + (1 - q) T) + forked T = room_1 + ... + room_k: left tokens a
    second, of which a share q, ``followed``, is used again, and those of branches, of which none
    are. A turn finds
    its context in tier k if its gap is between T_(k - 1) and T_k.

    >>> from jax import numpy as jnp
    >>> some = Turns(*map(jnp.asarray, (0.1, 2.0, 100.0, 50.0, 50.0, 1.0)), jnp.array([0.0, 1.0]),
    ...     jnp.array([10.0, 1000.0]))
    >>> hits = tier_hits(some, jnp.array([1e3, 1e9]))
    >>> bool(hits.turns[0] < 0.5), round(float(hits.turns.sum()), 6)
    (True, 1.0)
    """

    def characteristic_time(tokens: Array) -> Array:
        seconds = tokens / turns.left  # in which turns leave as many tokens
        used = turns.followed / turns.left
        lost = 1.0 - used + turns.forked / turns.left
        # there what nobody uses again fills the room alone
        most = turns.gaps[-1] + turns.count * seconds
        return crossing(lambda t: used * turns.waited(t) + lost * t - seconds, 0.0 * most, most)

    stays = jax.vmap(characteristic_time)(jnp.cumsum(room))
    shares = jnp.diff(jax.vmap(turns.within)(stays), prepend=0.0)
    tokens = (turns.followed * shares).at[0].add(turns.branches * turns.left)
    return TierHits(stays, shares, tokens)


def break_even_bandwidth(token_bytes: Array, tokens: Array, compute_time: Array) -> Array:
    """Bytes/s of a link from which fetching a context takes as long as computing it again."""
    return token_bytes * tokens / compute_time


def break_even_gap(
    compute_price: Array, tokens: Array, token_bytes: Array, storage_price: Array
) -> Array:
    """Seconds for which keeping a context costs what computing it again does.

    ``compute_price``: USD of computing it; ``storage_price``: USD of a byte for a second.
    """
    return compute_price / (tokens * token_bytes * storage_price)
