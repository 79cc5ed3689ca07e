"""Tokens that one verification pass yields, and acceptance from two distributions."""

import jax
import jax.numpy as jnp
from jax import Array

# Acceptance of the 2nd to 5th token that a model's own heads draft, given that all before were
# accepted, over that of the first. Mean of both modes of DeepSeek-V4-Pro with vLLM's MTP on B300
# (InferenceX, acceptance lengths of SPEED-Bench, run 27180633016): lengths 1.79, 2.27, 2.49, 2.54,
# 2.55 and 1.92, 2.61, 2.97, 3.00, 3.10; the fifth, which is lost in noise, as the fourth.
HEADS_DECLINE = (1.0, 0.79, 0.57, 0.19, 0.19)
NEAR = 1e-6  # where a power series replaces the quotient: its error is below NEAR^2 n^3 / 6


def geometric(ratio: Array, terms: Array) -> Array:
    """1 + a + a^2 + ... with ``terms`` (real) terms: (1 - a^n) / (1 - a), for a in [0, 1].

    The gradient is finite at both ends: 1 in a at a = 0 (n >= 2), n (n - 1) / 2 at a = 1.

    >>> [round(float(geometric(jnp.asarray(a), jnp.asarray(5.0))), 4) for a in (0.0, 0.8, 1.0)]
    [1.0, 3.3616, 5.0]
    """
    low, high = ratio < NEAR, ratio > 1.0 - NEAR
    inside = jnp.where(low | high, 0.5, ratio)
    quotient = -jnp.expm1(terms * jnp.log(inside)) / (1.0 - inside)
    at_one = terms * (1.0 - (terms - 1.0) / 2.0 * (1.0 - ratio))
    return jnp.where(low, 1.0 + ratio, jnp.where(high, at_one, quotient))


def heads_acceptance(first: Array) -> Array:
    """Acceptance by position of what a model's own heads draft, from that of the first token.

    a_j = a_1 d_j with the measured decline d of ``HEADS_DECLINE``.

    >>> [round(float(a), 3) for a in heads_acceptance(jnp.asarray(0.8))[:3]]
    [0.8, 0.632, 0.456]
    """
    return first * jnp.asarray(HEADS_DECLINE)


def heads_yield(first: Array, drafts: Array) -> Array:
    """Tokens per pass, with the bonus token, of drafts by a model's own heads.

    ``curve_yield`` of ``heads_acceptance``, written as a_1 (1 + a_2 (1 + ...)).

    >>> curve = heads_acceptance(jnp.asarray(0.8))
    >>> abs(float(heads_yield(jnp.asarray(0.8), jnp.asarray(3.0)))
    ...     - float(curve_yield(curve, jnp.asarray(3.0)))) < 1e-6
    True
    """
    accepted = jnp.zeros_like(first)
    for position, decline in reversed([*enumerate(HEADS_DECLINE)]):
        accepted = first * decline * (jnp.clip(drafts - position, 0.0, 1.0) + accepted)
    return 1.0 + accepted


def verified_yield(acceptance: Array, drafts: Array) -> Array:
    """Tokens per pass when the pass verifies ``drafts`` drafted tokens and adds none.

    (1 - a^g) / (1 - a). Source: Erdil 2025 (arXiv 2506.04645), Section 4.1, Eq. 46.
    """
    return geometric(acceptance, drafts)


def bonus_yield(acceptance: Array, drafts: Array) -> Array:
    """Tokens per pass when the pass also samples one token after the last accepted draft.

    (1 - a^(g + 1)) / (1 - a). Source: Leviathan et al. 2023 (arXiv 2211.17192), Eq. 1.
    """
    return geometric(acceptance, drafts + 1.0)


def curve_yield(acceptance: Array, drafts: Array) -> Array:
    """Tokens per pass, with the bonus token, when position j is accepted with probability a_j.

    1 + sum over j <= g of a_1 ... a_j, ``acceptance`` an array of the a_j given that all before
    were accepted; linear between whole ``drafts``, and none are accepted past the array's end.
    Equal a_j are ``bonus_yield``. Source: Leviathan et al. 2023 (arXiv 2211.17192), Section 3.1.

    >>> round(float(curve_yield(jnp.full(5, 0.8), jnp.asarray(5.0))), 4)
    3.6893
    """
    reached = jnp.cumprod(acceptance)
    position = jnp.arange(acceptance.shape[0])
    return 1.0 + jnp.sum(reached * jnp.clip(drafts - position, 0.0, 1.0))


def acceptance_by_position(reached: Array) -> Array:
    """Acceptance at each position, given that all drafts before it were accepted.

    a_j = P_j / P_(j-1), P_0 = 1, of the shares P_j of passes that accept at least j drafts, which
    ``curve_yield`` adds up; 0 where none accept those before.

    >>> [round(float(a), 3) for a in acceptance_by_position(jnp.asarray([0.79, 0.48, 0.22]))]
    [0.79, 0.608, 0.458]
    """
    before = jnp.concatenate([jnp.ones_like(reached[:1]), reached[:-1]])
    some = before > 0.0
    return jnp.where(some, reached / jnp.where(some, before, 1.0), 0.0)


def acceptance_rate(log_p: Array, log_q: Array) -> Array:
    """Share of drafts accepted, of tokens drafted by q with these log-probabilities.

    The mean of min(1, p / q) over tokens drawn from q; its expectation is 1 - TV(p, q).
    Source: Erdil 2025 (arXiv 2506.04645), Section 4.1.
    """
    return jnp.mean(jnp.exp(jnp.minimum(log_p - log_q, 0.0)))


def overlap(p: Array, q: Array) -> Array:
    """1 - TV(p, q) of two distributions over the last axis: sum of min(p, q)."""
    return jnp.sum(jnp.minimum(p, q), axis=-1)


def residual(p: Array, q: Array) -> Array:
    """The distribution from which a token is drawn after a rejection: max(0, p - q), normed.

    p itself where p = q and nothing is rejected. Source: Leviathan et al. 2023, Section 2.3.
    """
    rest = jax.nn.relu(p - q)
    mass = jnp.sum(rest, axis=-1, keepdims=True)
    return jnp.where(mass > 0, rest / jnp.where(mass > 0, mass, 1.0), p)
