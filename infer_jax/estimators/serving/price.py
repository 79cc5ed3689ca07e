"""The price of one pass of a replayed server; estimates take theirs from ``passes``."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Self

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.serving import pass_terms
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.pass_terms import Cost, add, as_draft, overhead
from infer_jax.estimators.serving.passes import (
    Prompts,
    attention_and_launch,
    decode_needs,
    graph_tokens,
    prompt_needs,
)
from infer_jax.physics.tabulated import Tabulated, tabulated
from infer_jax.specs import Spec, part, spec, static

OCTAVES, FINE = 20, 32  # a table of rows: 1 to a million, 32 points to a doubling
RANKS = -6  # the mean over ranks is at least a token for each of 64
COMMON = ("feedforward", "exchange")  # terms of mixtures that the ranks of a pass share


class PassBatch(NamedTuple):
    """What one attention group feeds in a pass.

    ``decoding`` requests get a token each and have ``context`` tokens in the cache in all; ``new``
    prompt tokens are fed, with ``pairs`` pairs of one of them and one before it.
    """

    decoding: Array
    context: Array
    new: Array
    pairs: Array

    @property
    def prompts(self) -> Prompts:
        """Equal prompts with these tokens and pairs.

        n tokens of one prompt after c cached ones have n (c + n / 2) pairs; with fewer pairs than
        n^2 / 2 they are the first tokens of m prompts, m (n / m)^2 / 2.
        """
        new = jnp.maximum(self.new, 1.0)
        single = new * new / 2.0
        several = single / jnp.clip(self.pairs, 0.5, single)
        return Prompts(several, new / several, jnp.maximum(self.pairs - single, 0.0) / new)


@spec
class PassLaw(Spec):
    """By what passes of a single pipeline stage are priced, of one model, layout and system."""

    context: Context = part("coefficients, model, hardware and plan")
    layers: Tabulated | None = part("seconds in the layers by rows; none: computed for each pass")
    draft: "PassLaw | None" = part("of another model that drafts")
    drafting: bool = static("whether ``plan.drafts`` tokens are drafted for every request")

    @classmethod
    def of_context(cls, ctx: Context, *, drafting: bool = False, table: bool = True) -> Self:
        """The law of one model, layout and system."""
        layers = None
        if table:
            rows = jnp.result_type(ctx.plan.tp)
            layers = tabulated(partial(_layers_time, ctx), 0, OCTAVES, FINE, rows)
        draft = (
            None if ctx.draft is None or not drafting else cls.of_context(ctx.draft, table=table)
        )
        return cls(context=ctx, layers=layers, draft=draft, drafting=drafting)

    def through_layers(self, rows: Array) -> Cost:
        """The cost of ``rows`` tokens in the layers; of a table one term."""
        if self.layers is None:
            return pass_terms.through_layers(self.context, jnp.maximum(rows, 1.0))
        return overhead(layers=self.layers(rows))


def _layers_time(ctx: Context, rows: Array) -> Array:
    return pass_terms.through_layers(ctx, rows).time


def price(law: PassLaw, batch: PassBatch) -> Cost:
    """Seconds of one pass, by term.

    Of d decoding requests with f = 1 + drafts tokens each and n prompt tokens,

        T = t(d f + n) + [d > 0] D + [n > 0] P,

    t in the layers, D and P what a decode pass and prompts take besides (``decode_needs``,
    ``prompt_needs``). A pass of few tokens replays CUDA graphs; of the launches of a longer one
    decoding requests wait for a part. Another model that drafts takes a pass for each draft, the
    first with the prompts.
    """
    ctx, coef, decodes = law.context, law.context.coefficients, batch.decoding > 0.0
    fed = batch.decoding * (1.0 + ctx.plan.drafts) if law.drafting else batch.decoding
    rows, gaps, prompts = fed + batch.new, pass_terms.gaps(ctx), batch.prompts
    mean = batch.context / jnp.maximum(batch.decoding, 1.0)
    needs = attention_and_launch(ctx, batch.decoding, mean, gaps)
    verified = law.through_layers(fed) if law.drafting else None
    decode = decode_needs(ctx, batch.decoding, needs, verified)
    eager, beside = jnp.where(rows > graph_tokens(ctx), 1.0, 0.0), jnp.where(decodes, 1.0, 0.0)
    prefill = add(
        prompt_needs(ctx, prompts, gaps, eager, beside),
        pass_terms.prompt_head(ctx, prompts.number),
    )
    cost = add(
        law.through_layers(rows),
        decode.scaled(beside),
        prefill.scaled(jnp.where(batch.new > 0.0, 1.0, 0.0)),
    )
    cost = cost.scaled(jnp.where(decodes, coef.decode_factor, coef.first_factor))
    if law.draft is None:
        return cost
    none = jnp.zeros_like(batch.new)
    first = price(law.draft, batch)
    later = price(law.draft, batch._replace(new=none, pairs=none))
    later = later.scaled((ctx.plan.drafts - 1.0) * jnp.where(decodes, 1.0, 0.0))
    return add(cost, as_draft(first), as_draft(later))


def pass_time(law: PassLaw, decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
    """Seconds of a pass (``price``), element by element of a ``PassBatch``.

    Smooth in ``context`` but for the corners of windows and of a choice of tokens.
    """

    def seconds(*batch: Array) -> Array:
        return price(law, PassBatch(*batch)).time

    by_element: Callable[..., Array] = jnp.vectorize(seconds)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return by_element(decoding, context, new, pairs)


class RankedLaw(NamedTuple):
    """By what a pass of attention ranks that share experts is priced.

    ``own``: a rank's pass without the experts (``pass_time``); ``experts``: seconds of the experts
    and of the exchange with them, where every rank feeds as many tokens.
    """

    own: PassLaw
    experts: Tabulated

    @property
    def context(self) -> Context:
        """Coefficients, model, hardware and plan."""
        return self.own.context


def ranked_law(ctx: Context, *, drafting: bool = False) -> RankedLaw:
    """The law of one model, layout and system whose own heads draft, if any."""
    layers = ctx.shape.layers
    mixtures = layers._replace(count=layers.count * layers.mixture)
    sparse = ctx._replace(shape=ctx.shape._replace(layers=mixtures))

    def shared(rows: Array) -> Array:
        terms = pass_terms.through_layers(sparse, rows).terms
        return jnp.asarray(sum(terms[name] for name in COMMON))

    def own(rows: Array) -> Array:
        return _layers_time(ctx, rows) - shared(rows)

    kind = jnp.result_type(ctx.plan.tp)
    table = tabulated(own, 0, OCTAVES, FINE, kind)
    law = PassLaw(context=ctx, layers=table, draft=None, drafting=drafting)
    return RankedLaw(law, tabulated(shared, RANKS, OCTAVES, FINE, kind))


def own_time(law: RankedLaw, decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
    """Seconds of a rank's own part of a pass: all but the experts."""
    return pass_time(law.own, decoding, context, new, pairs)


def experts_time(law: RankedLaw, tokens: Array, verified: Array | None = None) -> Array:
    """Seconds of the experts and the exchange with them, of the tokens that each rank feeds.

    The mean over ranks counts: experts see the tokens of all, and the exchange is priced as an
    even one. The model's own heads, of one layer each, see what is ``verified`` again.
    """
    plan, factor = law.context.plan, law.context.coefficients.decode_factor
    seconds = law.experts(jnp.sum(tokens) / plan.attention_dp) * factor
    if verified is None:
        return seconds
    mean, layers = jnp.sum(verified) / plan.attention_dp, law.context.shape.layers
    again = law.experts(mean) * factor * plan.drafts / jnp.sum(layers.count, axis=-1)
    return seconds + jnp.where(mean > 0.0, again, 0.0)
