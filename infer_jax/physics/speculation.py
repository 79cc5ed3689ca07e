"""How many tokens does one verification yield, if drafts are accepted independently?"""

import jax.numpy as jnp
from jax import Array

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


def acceptance_rate(logp: Array, logq: Array) -> Array:
    """The acceptance of drafted tokens: the mean of min(1, p/q) over them.

    ``logp`` and ``logq`` are the log-probabilities that the target and the draft model gave each
    drafted token (any equal shapes). Over tokens drawn from q the mean tends to
    sum min(p, q) = 1 - TV(p, q). The gradient is 0 in a token surely accepted, p > q, and in one
    that the target cannot emit, log p = -inf; a drafted token has a finite log q.
    Source: Erdil 2025 (arXiv 2506.04645), Section 4.1; Leviathan et al. 2023 (arXiv 2211.17192).

    >>> p, q = jnp.array([0.5, 0.2, 0.0]), jnp.array([0.25, 0.4, 0.1])
    >>> round(float(acceptance_rate(jnp.log(p), jnp.log(q))), 6)
    0.5
    """
    return jnp.mean(jnp.exp(jnp.minimum(logp - logq, 0.0)))
