"""Seconds of a mixed pass: decoding requests and chunks of prompts together."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.estimators.serving import pass_terms
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.pass_terms import Spent
from infer_jax.estimators.serving.passes import eager, graph_tokens, kept_tokens

FEWEST, MOST, FINE = 0, 20, 32  # a table of rows: 1 to a million, 32 points to a doubling
POINTS = 2.0 ** (np.arange(FEWEST * FINE, MOST * FINE + 1) / FINE)


class Mixed(NamedTuple):
    """Inputs and table by which passes are priced; ``through``: log seconds at ``POINTS`` rows.

    ``draft``: the same of another model that drafts.
    """

    context: Context
    through: Float[Array, " points"]
    draft: "Mixed | None" = None


def mixed_pass(c: Context, decoding: Array, context: Array, new: Array, pairs: Array) -> Spent:
    """Seconds, by term, of one pass of an attention group that has a single pipeline stage.

    ``decoding`` requests get a token each and have ``context`` tokens in the cache in all; ``new``
    prompt tokens are fed, with ``pairs`` pairs of one of them and one before it.
    """
    through = pass_terms.through_layers(c, jnp.maximum(decoding + new, 1.0))
    return composed(c, through, decoding, context, new, pairs)


def drafted_pass(c: Context, decoding: Array, context: Array, new: Array, pairs: Array) -> Spent:
    """``mixed_pass`` with ``plan.drafts`` tokens drafted for each decoding request, and verified.

    What a pass with drafts costs is ``passes.passes``'s: k + 1 tokens of a request go through the
    layers; the model's own heads, of one layer each, go once more through what their passes need,
    or another model takes k passes, the first with the prompts; the host sees the tokens that are
    kept, in the mean.
    """
    fed = decoding * (1.0 + c.plan.drafts)
    rows = jnp.maximum(fed + new, 1.0), jnp.maximum(fed, 1.0)
    through, verified = (pass_terms.through_layers(c, x) for x in rows)
    own = composed(c, through, decoding, context, new, pairs, verified)
    if c.draft is None:
        return own
    small = c.draft
    return _with_draft(
        own, c, lambda *given: mixed_pass(small, *given), decoding, context, new, pairs
    )


def _with_draft(
    own: Spent,
    c: Context,
    one: Callable[..., Spent],
    decoding: Array,
    context: Array,
    new: Array,
    pairs: Array,
) -> Spent:
    """A pass with those of the model that drafts, each of which is ``one`` of (decoding, ...)."""
    none = jnp.zeros_like(new)
    more = (c.plan.drafts - 1.0) * jnp.where(decoding > 0.0, 1.0, 0.0)
    first, later = one(decoding, context, new, pairs), one(decoding, context, none, none)
    return pass_terms.joined(own, *(pass_terms.drafted(x) for x in (first, later.times(more))))


def composed(
    c: Context,
    through: Spent,
    decoding: Array,
    context: Array,
    new: Array,
    pairs: Array,
    verified: Spent | None = None,
) -> Spent:
    """A pass whose rows go ``through`` the layers together.

    Decoding requests add attention, head, graph launches and host time as in a decode step; prompts
    add attention and launches without a graph as in a prefill, of whose launches decoding requests
    wait for a part. A pass of few tokens replays CUDA graphs.
    ``verified``: the way of decoding requests' tokens alone, where there are drafts.
    """
    model, decodes = c.model, decoding > 0.0
    attending = pass_terms.decode_attention(c, decoding, 1.0, context / jnp.maximum(decoding, 1.0))
    launch, host = pass_terms.gaps(c), c.engine.sequence_time * decoding
    rows = decoding + new
    if verified is None:
        head = pass_terms.head(c, decoding, 1.0)
        decoded = pass_terms.joined(attending, head, pass_terms.waiting(launch=launch, host=host))
    else:
        rows = decoding * (1.0 + c.plan.drafts) + new
        decoded = _drafted(c, decoding, verified, attending, launch, host)
    prompts, part, before = as_prompts(new, pairs)
    launches = eager(c, new) * jnp.where(decodes, model.eager_beside_decode, 1.0)
    replays = rows <= graph_tokens(c)
    launches = jnp.where(replays, jnp.where(decodes, 0.0, pass_terms.gaps(c)), launches)
    fed = pass_terms.joined(
        pass_terms.prefill_attention(c, prompts, part, before),
        pass_terms.head(c, prompts, 1.0).times(jnp.asarray(model.laws.prompt_logits)),
        pass_terms.waiting(launch=launches),
    )
    spent = pass_terms.joined(
        through,
        decoded.times(jnp.where(decodes, 1.0, 0.0)),
        fed.times(jnp.where(new > 0.0, 1.0, 0.0)),
    )
    return spent.times(jnp.where(decodes, model.decode_factor, model.first_factor))


def _drafted(
    c: Context, decoding: Array, verified: Spent, attending: Spent, launch: Array, host: Array
) -> Spent:
    """What decoding requests need besides, with drafts: the model's own heads, or logits of all."""
    fed = 1.0 + c.plan.drafts
    waits = pass_terms.waiting(host=host * kept_tokens(c))
    needed = pass_terms.joined(attending, pass_terms.waiting(launch=launch))
    if c.draft is not None:
        return pass_terms.joined(needed, pass_terms.head(c, decoding, fed), waits)
    again = pass_terms.joined(verified, needed)
    again = again.times(c.plan.drafts / jnp.sum(c.shape.layers.count, axis=-1))
    return pass_terms.joined(needed, again, pass_terms.head(c, decoding, 1.0).times(fed), waits)


def as_prompts(new: Array, pairs: Array) -> tuple[Array, Array, Array]:
    """Equal chunks with these tokens and query-key pairs: how many, tokens of each, tokens before.

    n tokens of one prompt after c cached ones have n (c + n / 2) pairs; with fewer pairs than
    n^2 / 2 they are the first tokens of m prompts, m (n / m)^2 / 2.
    """
    some = jnp.maximum(new, 1.0)
    alone = some * some / 2.0
    several = alone / jnp.clip(pairs, 0.5, alone)
    before = jnp.maximum(pairs - alone, 0.0) / some
    return several, some / several, before


def mixed(c: Context) -> Mixed:
    """The table that ``mixed_time`` reads, of one model, layout and system."""
    rows = jnp.asarray(POINTS, jnp.result_type(c.plan.tp))

    def seconds(rows: Array) -> Array:
        return pass_terms.through_layers(c, rows).time

    draft = None if c.draft is None else mixed(c.draft)
    return Mixed(c, jnp.log(jax.vmap(seconds)(rows)), draft)


def through_table(m: Mixed, rows: Array) -> Spent:
    """The way of ``rows`` tokens through the layers, from the table."""
    at = jnp.log2(jnp.clip(rows, POINTS[0], POINTS[-1])) * FINE
    low = jnp.minimum(jnp.floor(at), len(POINTS) - 2.0)
    index, share = low.astype(jnp.int32), at - low
    layers = jnp.exp(m.through[index] * (1.0 - share) + m.through[index + 1] * share)
    return pass_terms.waiting(layers=layers)


def mixed_time(m: Mixed, decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
    """Seconds of ``mixed_pass``, element by element, with the time in the layers from a table.

    Linear in logarithms between points, which is exact where reading or computing alone counts.
    Smooth in ``context`` but for the corners of windows and of a choice of tokens.
    """

    def one(decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
        return _tabulated(m, decoding, context, new, pairs).time

    by_element: Callable[..., Array] = jnp.vectorize(one)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return by_element(decoding, context, new, pairs)


def _tabulated(m: Mixed, decoding: Array, context: Array, new: Array, pairs: Array) -> Spent:
    through = through_table(m, decoding + new)
    return composed(m.context, through, decoding, context, new, pairs)


def drafted_time(m: Mixed, decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
    """Seconds of ``drafted_pass`` as ``mixed_time`` has them."""
    c, small = m.context, m.draft

    def drafting(*batch: Array) -> Spent:
        assert small is not None
        return _tabulated(small, *batch)

    def one(decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
        fed = decoding * (1.0 + c.plan.drafts)
        through, verified = through_table(m, fed + new), through_table(m, fed)
        own = composed(c, through, decoding, context, new, pairs, verified)
        if small is not None:
            own = _with_draft(own, c, drafting, decoding, context, new, pairs)
        return own.time

    by_element: Callable[..., Array] = jnp.vectorize(one)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return by_element(decoding, context, new, pairs)
