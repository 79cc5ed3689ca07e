"""Passes of a server among its requests: decode, a prompt alone, prompts beside decodes."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtr

from infer_jax import engines
from infer_jax.estimators.serving import pass_terms
from infer_jax.estimators.serving.context import Context, select
from infer_jax.estimators.serving.engines import ENGINES
from infer_jax.estimators.serving.pass_terms import Cost, add, as_draft, overhead
from infer_jax.physics.numerics import ceiling
from infer_jax.physics.speculation import bonus_yield, curve_yield, heads_yield
from infer_jax.physics.tabulated import tabulated
from infer_jax.typed_jax import trees

GRAPHS = 512.0  # tokens of the largest CUDA graph that vLLM captures by itself


def eager_launch(ctx: Context, tokens: Array, gaps: Array | None = None) -> Array:
    """Seconds of launches of a pass with ``tokens`` of a prompt, without a CUDA graph.

    f_e (1 + k_I I / I_0) times the gaps of a decode pass; the second term is the part of the host's
    work that grows with tokens. ``gaps``: those gaps, s, where they are computed already.
    """
    growth = 1.0 + ctx.coefficients.eager_growth * tokens / ctx.coefficients.eager_tokens
    return ctx.engine.eager * growth * (pass_terms.gaps(ctx) if gaps is None else gaps)


def graph_tokens(ctx: Context) -> Array:
    """Tokens of the largest pass with prompts that an engine launches by CUDA graphs.

    vLLM V1 captures all of a layer but its attention for passes of any kind of up to
    min(2 max_num_seqs, 512) tokens (``cudagraph_mode`` FULL_AND_PIECEWISE, docs/design/cuda_graphs
    and vllm/config/vllm.py, ``_set_cudagraph_sizes``, at v0.13); its launches count as those of a
    decode pass, which is captured whole. Engines without ``mixed_graphs``: 0, decode passes alone.
    ``one_pass``, so a prefill pool, counts every prompt as launched without a graph.
    """
    own = jnp.minimum(2.0 * ctx.plan.max_sequences, GRAPHS)
    none = jnp.zeros_like(own)
    tokens = tuple(own if engines.ENGINES[name].mixed_graphs else none for name in ENGINES)
    return select(tokens, ctx.coefficients.engine)


def eager_share(ctx: Context, decoding: Array, prompts: Array, new: Array) -> Array:
    """Share of passes with prompts that are launched without a graph, where counts are means.

    Phi((r - r_g) / s): r tokens of a pass, r_g of the largest graph, s^2 = d f^2 + (p - 1) n^2 the
    variance of Poisson numbers of d decoding requests of f tokens and of the prompts of n tokens
    beside the one that is always there.
    """
    fed = 1.0 + ctx.plan.drafts
    rows = decoding * fed + prompts * new
    others = jnp.maximum(prompts - 1.0, 0.0)
    spread = jnp.sqrt(decoding * fed**2 + others * new**2 + 1.0)
    return ndtr((rows - graph_tokens(ctx)) / spread)


def launch_beside(
    ctx: Context, decoding: Array, prompts: Array, new: Array, gaps: Array | None = None
) -> Array:
    """Seconds of launches that ``prompts`` of ``new`` tokens each add to a pass that decodes."""
    return eager_share(ctx, decoding, prompts, new) * eager_launch(ctx, prompts * new, gaps)


def launch_alone(ctx: Context, prompts: Array, new: Array, gaps: Array) -> Array:
    """Seconds of launches of a pass that feeds ``prompts`` of ``new`` tokens each and no more."""
    share = eager_share(ctx, jnp.zeros_like(prompts), prompts, new)
    return share * eager_launch(ctx, prompts * new, gaps) + (1.0 - share) * gaps


COARSE = (-2, 24, 8)  # a table of rows: 1/4 to 16 million, 8 points to a doubling


class Passes(NamedTuple):
    """Seconds of a server's passes, for its requests.

    ``decode``: a decode step, per token that each request of a group gains. ``alone``: one
    request's prompt on an idle group. ``joining``: the time that a prompt adds to the passes it
    shares, with its part of their launches. ``fixed``: of a decode pass, what does not grow with
    its requests, 2 t(b / 2) - t(b).
    """

    decode: Cost
    alone: Cost
    joining: Cost
    fixed: Array


def passes(
    ctx: Context,
    group: Array,
    context: Array,
    fresh: Array,
    cached: Array,
    chunks: Array | None = None,
    together: Array | None = None,
) -> Passes:
    """The passes of an attention group in which ``group`` requests decode at ``context`` tokens.

    A prompt has I ``fresh`` tokens after ``cached`` ones, fed alone in k ``chunks`` or, beside
    others, in passes with T ``together`` prompt tokens. Of b requests and f = 1 + drafts tokens of
    each, with t(n) the seconds of n tokens in the layers, A of attention, H of the head, G of
    launch gaps, E(n) of a prompt's launches (``launches``) and y tokens that a pass yields,

        decode  = ((t(b f / pp) + A_decode + G) (1 + drafts / L) + f H) / y + tau_S b
        alone   = k t(I / k) + A_prefill + k E(I / k)
        joining = ((I / T) (t(s b f + T) - s t(b f) + w E(T)) + A_prefill) / pp
        fixed   = 2 t(b f / 2 pp) - t(b f / pp) + G

    s: whether a pass with prompts decodes too; w: share of launches that decoding waits for.
    """
    plan, micro = ctx.plan, micro_batch(ctx, group)
    mixes = 1.0 - ctx.engine.prefill_first
    chunks = ceiling(fresh / plan.chunk) if chunks is None else chunks
    chunk = fresh / chunks
    together = chunk if together is None else together
    fed, share = 1.0 + plan.drafts, fresh / together
    # the layers of a decode pass, of all groups' tokens without a pipeline, of a chunk alone, of
    # the tokens of a pass with prompts, and of half a decode pass
    rows = (micro * fed, group * fed, chunk, group * fed * mixes + together, micro * fed / 2.0)
    one, gaps = jnp.asarray(1.0), pass_terms.gaps(ctx)
    attending = pass_terms.prefill_attention(ctx, one, fresh, cached, chunks)
    needs = attention_and_launch(ctx, group, context, gaps)
    time, prompt = needs.time, attending.time
    besides = (time, time, prompt / chunks, time * mixes + prompt / share, time / 2.0)

    # traced once
    layers = jax.vmap(partial(pass_terms.through_layers, ctx))(jnp.stack(rows), jnp.stack(besides))
    verified, decoding, alone, mixed, half = (trees.take(layers, i) for i in range(len(rows)))
    launch = launch_beside(ctx, mixes * group, 1.0 / share, fresh, gaps)
    own = Passes(
        decode=decode_step(ctx, verified, needs, group),
        alone=add(
            alone.scaled(chunks),
            attending,
            pass_terms.prompt_head(ctx, one),
            overhead(launch=chunks * launch_alone(ctx, one, chunk, gaps)),
        ),
        joining=prompts_beside(ctx, mixed, decoding, attending.scaled(1.0 / share), launch).scaled(
            share
        ),
        fixed=2.0 * half.time - verified.time + gaps,
    )
    if ctx.draft is None:
        return own
    return _with_draft(ctx, own, passes(ctx.draft, group, context, fresh, cached, chunks, together))


def _with_draft(ctx: Context, own: Passes, small: Passes) -> Passes:
    """The passes of a model with those of another that drafts for it."""
    per_token = ctx.plan.drafts / pass_yield(ctx)
    counts = {"decode": per_token, "alone": ctx.drafting, "joining": ctx.drafting}
    more = {name: as_draft(getattr(small, name).scaled(n)) for name, n in counts.items()}
    return own._replace(**{name: add(getattr(own, name), cost) for name, cost in more.items()})


def step_law(ctx: Context, context: Array) -> Callable[..., Array]:
    """A function of (decoding, prompts, new, cached): seconds of a group's pass.

    ``decoding`` requests have ``context`` tokens each; beside them ``prompts`` others feed ``new``
    tokens each that follow ``cached`` ones. It is ``passes`` of any mixture: decode, and the time
    by which prompts make it longer.
    """
    own = _decode_and_prompts(ctx, context)
    small = None if ctx.draft is None else _decode_and_prompts(ctx.draft, context)

    def step(*batch: Array) -> Array:
        decode, prompts = own(*batch)  # the first per token that a request gains
        seconds = decode * pass_yield(ctx) + prompts
        if small is None:
            return seconds
        drafting, drafted_prompts = small(*batch)
        return seconds + ctx.plan.drafts * drafting + ctx.drafting * drafted_prompts

    return step


def _decode_and_prompts(ctx: Context, context: Array) -> Callable[..., tuple[Array, Array]]:
    """Seconds of decoding in a step, and those that prompts add to it."""
    mixes = 1.0 - ctx.engine.prefill_first  # whether a pass with prompts decodes, too
    kind = jnp.result_type(ctx.plan.tp)
    table = tabulated(lambda rows: pass_terms.through_layers(ctx, rows).time, *COARSE, kind)

    def through_layers(rows: Array) -> Cost:
        return overhead(layers=table(rows))

    def parts(decoding: Array, prompts: Array, new: Array, cached: Array) -> tuple[Array, Array]:
        tokens, rows = prompts * new, decoding * (1.0 + ctx.plan.drafts)
        needs = attention_and_launch(ctx, decoding, context)
        verified = through_layers(micro_batch(ctx, decoding) * (1.0 + ctx.plan.drafts))
        mixed, alone = through_layers(mixes * rows + tokens), through_layers(rows)
        attending = pass_terms.prefill_attention(ctx, prompts, new, cached)
        launch = launch_beside(ctx, mixes * decoding, prompts, new)
        more = prompts_beside(ctx, mixed, alone, attending, launch)
        decode = decode_step(ctx, verified, needs, decoding)
        return decode.time, jnp.where(tokens > 0, more.time, 0.0)

    return parts


def prompts_beside(
    ctx: Context, mixed: Cost, decoding: Cost, attending: Cost, launch: Array
) -> Cost:
    """What prompts add to a pass of one stage: (t(s b f + T) - s t(b f) + A + w E) / pp.

    ``mixed`` and ``decoding``: the layers of all tokens of the pass, and of those that decode;
    ``attending``: A of the prompts; ``launch``: E, of launches without a graph. s: whether a pass
    with prompts decodes too; w: share of these launches that decoding waits for.
    """
    mixes = 1.0 - ctx.engine.prefill_first
    waits = 1.0 - mixes * (1.0 - ctx.coefficients.eager_beside_decode)

    def beyond(whole: Array, part: Array) -> Array:
        return whole - mixes * part

    longer = jax.tree.map(beyond, mixed, decoding)
    return add(longer, attending, overhead(launch=waits * launch)).scaled(1.0 / ctx.plan.pp)


def attention_and_launch(
    ctx: Context, group: Array, context: Array, gaps: Array | None = None
) -> Cost:
    """Attention and launches of a decode pass of ``group`` requests with ``context`` tokens each.

    ``gaps``: its launch gaps, s, where they are computed already.
    """
    fed = 1.0 + ctx.plan.drafts
    attending = pass_terms.decode_attention(ctx, micro_batch(ctx, group), fed, context)
    return add(attending, overhead(launch=pass_terms.gaps(ctx) if gaps is None else gaps))


def decode_step(ctx: Context, layers: Cost, needs: Cost, group: Array) -> Cost:
    """A decode pass per token that each request of a group gains.

    ((T_layers + T_needs) (1 + d / L) + (1 + d) T_head) / y + tau_S b with the d drafts of the
    model's own heads, which are of one layer each; another model drafts by passes of its own, and
    this one's head then reads its weights once. ``needs``: ``attention_and_launch``.
    """
    drafts, tokens = ctx.plan.drafts, pass_yield(ctx)
    own = add(layers, needs)
    if ctx.draft is None:
        own = own.scaled((1.0 + drafts / jnp.sum(ctx.shape.layers.count, axis=-1)) / tokens)
    else:
        own = own.scaled(1.0 / tokens)
    head = verifying_head(ctx, group).scaled(1.0 / tokens)
    return add(own, head, overhead(host=ctx.engine.sequence_time * group))


def verifying_head(ctx: Context, group: Array) -> Cost:
    """The output head of a decode pass: once for every draft of the model's own heads.

    Drafts of another model are verified by one product.
    """
    fed, micro = 1.0 + ctx.plan.drafts, micro_batch(ctx, group)
    if ctx.draft is None:
        return pass_terms.head(ctx, micro, 1.0).scaled(fed)
    return pass_terms.head(ctx, micro, fed)


def pass_yield(ctx: Context) -> Array:
    """Tokens that a decode pass gives each request: 1 + sum_j a_1 ... a_j of d drafts.

    The acceptance may be of each position; one number is that of the first token that the model's
    own heads draft, which falls from there as measured, or of every token that another model does.
    """
    acceptance, drafts = ctx.coefficients.acceptance, ctx.plan.drafts
    if jnp.ndim(acceptance):
        return curve_yield(acceptance, drafts)
    if ctx.draft is None:
        return heads_yield(acceptance, drafts)
    return bonus_yield(acceptance, drafts)


def micro_batch(ctx: Context, sequences: Array) -> Array:
    """Sequences of a group in one pipeline stage: an even share, at least one."""
    return jnp.maximum(sequences / ctx.plan.pp, jnp.minimum(sequences, 1.0))
