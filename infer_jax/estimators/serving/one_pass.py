"""One forward pass of an instance, alone on it."""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Phase
from infer_jax.estimators.serving import memory, pass_terms
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.pass_terms import Cost, add, as_draft, overhead
from infer_jax.estimators.serving.passes import (
    attention_and_launch,
    decode_step,
    eager_launch,
    micro_batch,
    pass_yield,
)
from infer_jax.specs import ForwardPass, number, spec
from infer_jax.typed_jax import trees


@spec
class Pass(Phase):
    """A forward pass, and the seconds of it in which memory is read and arithmetic is done."""

    reading: Array = number("time during which memory is read", unit="s", kind="time")
    computing: Array = number("time during which arithmetic is done", unit="s", kind="time")


def one_pass(ctx: Context, forward: ForwardPass) -> Pass:
    """One forward pass of an instance, its sequences dealt to the attention groups.

    A pass of few new tokens a sequence decodes: it replays a CUDA graph, attends in the absorbed
    form, and the host and the head see every token. A longer one is a prefill. The sequences of a
    group go through the stages of a pipeline in ``pp`` micro-batches.
    """
    plan, coef, new = ctx.plan, ctx.coefficients, forward.new_tokens
    sequences = forward.sequences / plan.attention_dp
    micro = micro_batch(ctx, sequences)
    decodes, context = new <= coef.decode_tokens, forward.cached_tokens + new
    verified = jnp.maximum(new, 1.0 + plan.drafts)
    kinds = (
        add(
            pass_terms.decode_attention(ctx, micro, new, forward.cached_tokens),
            pass_terms.head(ctx, micro, new),
            overhead(launch=pass_terms.gaps(ctx), host=ctx.engine.sequence_time * sequences),
        ),
        add(
            pass_terms.prefill_attention(ctx, micro, new, forward.cached_tokens),
            pass_terms.prompt_head(ctx, micro),
            overhead(launch=eager_launch(ctx, new), host=jnp.zeros_like(ctx.engine.sequence_time)),
        ),
    )
    needs = trees.where(decodes, *kinds)
    cost = add(pass_terms.through_layers(ctx, micro * new, needs.time), needs)
    cost = cost.scaled(jnp.where(decodes, coef.decode_factor, coef.first_factor))
    limits = {
        # a prompt may come without the part that is cached
        "memory": memory.limit(ctx, sequences, context, jnp.where(decodes, verified, context)),
        "expert ranks": memory.expert_ranks(ctx),
    }
    time = cost.time
    return Pass(
        time=time,
        terms=cost.terms,
        limits=limits,
        mfu=pass_terms.ideal(ctx, micro * new) / time,
        layout=layout(ctx),
        reading=cost.reading,
        computing=cost.computing,
    )


def one_token(ctx: Context, forward: ForwardPass) -> Pass:
    """``one_pass``, or with ``plan.drafts`` a decode step, per token that each sequence gains.

    It is the decode step of ``passes``, so that ``step`` and ``estimate`` price drafts alike.
    """
    plain = one_pass(ctx, forward)
    sequences = forward.sequences / ctx.plan.attention_dp
    needs = attention_and_launch(ctx, sequences, forward.cached_tokens)
    rows = micro_batch(ctx, sequences) * (1.0 + ctx.plan.drafts)
    layers = pass_terms.through_layers(ctx, rows, needs.time)
    cost = decode_step(ctx, layers, needs, sequences).scaled(ctx.coefficients.decode_factor)
    terms = plain.terms
    if ctx.draft is not None:
        small = one_pass(ctx.draft, forward)
        draft = as_draft(Cost(small.terms, small.reading, small.computing))
        cost = add(cost, draft.scaled(ctx.plan.drafts / pass_yield(ctx)))
        terms = terms | {"draft": jnp.zeros_like(plain.time)}
    time = cost.time
    drafted = plain.replace(
        time=time,
        terms={name: cost.terms[name] for name in terms},
        mfu=plain.mfu * plain.time / time,
        reading=cost.reading,
        computing=cost.computing,
    )
    return trees.where(ctx.plan.drafts > 0.0, drafted, plain.replace(terms=terms))


def layout(ctx: Context) -> dict[str, Array]:
    """The degrees of the plan."""
    names = ("tp", "attention_dp", "ep", "pp")
    return {name: getattr(ctx.plan, name) for name in names}
