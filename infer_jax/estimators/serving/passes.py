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


def eager_launch(ctx: Context, tokens: Array, gaps: Array) -> Array:
    """Seconds of launches of a pass with ``tokens`` of a prompt, without a CUDA graph.

    f_e (1 + k_I I / I_0) times ``gaps``, those of a decode pass; the second term is the part of the
    host's work that grows with tokens.
    """
    growth = 1.0 + ctx.coefficients.eager_growth * tokens / ctx.coefficients.eager_tokens
    return ctx.engine.eager * growth * gaps


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


class Prompts(NamedTuple):
    """Prompts of a pass: ``number`` feed ``new`` tokens each, after ``cached`` ones.

    Where a prompt is fed in ``chunks`` passes, ``number`` is the part of it in this one.
    """

    number: Array
    new: Array
    cached: Array
    chunks: Array | float = 1.0

    @property
    def tokens(self) -> Array:
        """Tokens of all."""
        return self.number * self.new


def eager_share(ctx: Context, decoding: Array, prompts: Prompts) -> Array:
    """Share of passes with prompts that are launched without a graph, where counts are means.

    Phi((r - r_g) / s): r tokens of a pass, r_g of the largest graph, s^2 = d f^2 + (p - 1) n^2 the
    variance of Poisson numbers of d decoding requests of f tokens and of the p prompts of n tokens
    but the one that is always there. All, where no graph is captured for prompts.
    """
    fed, largest = 1.0 + ctx.plan.drafts, graph_tokens(ctx)
    rows = decoding * fed + prompts.tokens
    others = jnp.maximum(prompts.number - 1.0, 0.0)
    spread = jnp.sqrt(decoding * fed**2 + others * prompts.new**2 + 1.0)
    return jnp.where(largest > 0.0, ndtr((rows - largest) / spread), 1.0)


def attention_and_launch(ctx: Context, group: Array, context: Array, gaps: Array) -> Cost:
    """Attention and launches of a decode pass of ``group`` requests with ``context`` tokens each.

    ``gaps``: of its launches, s.
    """
    fed = 1.0 + ctx.plan.drafts
    attending = pass_terms.decode_attention(ctx, micro_batch(ctx, group), fed, context)
    return add(attending, overhead(launch=gaps))


def decode_needs(ctx: Context, group: Array, needs: Cost, verified: Cost | None = None) -> Cost:
    """What a decode pass takes besides the layers: N + (T_v + N) d / L + f H + tau_S b y.

    N, ``needs``, of attention and launches; H of the output head; tau_S of the host for each of y
    tokens that each of b requests gains (``pass_yield``). d drafts of the model's own heads, which
    are of one layer each, go once more through what the f = 1 + d tokens of a request take, T_v in
    the layers (``verified``; none: nothing is drafted). Another model drafts by passes of its own:
    N + H + tau_S b y, with one product of the head for all f tokens.
    """
    micro, host = micro_batch(ctx, group), ctx.engine.sequence_time * group
    if verified is None:
        return add(needs, pass_terms.head(ctx, micro, 1.0), overhead(host=host))
    drafts, host = ctx.plan.drafts, overhead(host=host * pass_yield(ctx))
    if ctx.draft is not None:
        return add(needs, pass_terms.head(ctx, micro, 1.0 + drafts), host)
    heads = add(verified, needs).scaled(drafts / jnp.sum(ctx.shape.layers.count, axis=-1))
    return add(needs, heads, pass_terms.head(ctx, micro, 1.0).scaled(1.0 + drafts), host)


def prompt_needs(
    ctx: Context, prompts: Prompts, gaps: Array, eager: Array, beside: Array | float = 0.0
) -> Cost:
    """What the prompts of a pass take besides the layers: A + e w E + (1 - e) (1 - x) G.

    A of attention; G, ``gaps``, of launches by a graph; E of those without (``eager_launch``), in
    the share e, ``eager``, of passes. ``beside``: x, whether requests decode in the same pass; they
    wait for a share w of E, and the launches of their graph are counted with them.
    """
    waits = 1.0 - beside * (1.0 - ctx.coefficients.eager_beside_decode)
    launch = eager * waits * eager_launch(ctx, prompts.tokens, gaps)
    launch = launch + (1.0 - eager) * (1.0 - beside) * gaps
    return add(pass_terms.prefill_attention(ctx, *prompts), overhead(launch=launch))


def prompt_extra(ctx: Context, mixed: Cost, decoding: Cost, needs: Cost) -> Cost:
    """By what prompts make a decode pass of one stage longer: (T_m - x T_d + N) / pp.

    ``mixed``: T_m of all its tokens in the layers; ``decoding``: T_d of those that decode, x of
    which do in a pass with prompts: all, or none of an engine that feeds prompts first; ``needs``:
    N of the prompts (``prompt_needs``).
    """
    mixes = 1.0 - ctx.engine.prefill_first

    def beyond(both: Array, part: Array) -> Array:
        return both - mixes * part

    return add(jax.tree.map(beyond, mixed, decoding), needs).scaled(1.0 / ctx.plan.pp)


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
    each, with t(n) the seconds of n tokens in the layers, D and P what a decode pass and prompts
    take besides (``decode_needs``, ``prompt_needs``), y tokens that a pass yields, x whether a pass
    with prompts decodes too, and G of launch gaps,

        decode  = (t(b f / pp) + D) / y
        alone   = k (t(I / k) + P(1 / k))
        joining = (I / T) (t(x b f + T) - x t(b f) + P(T / I)) / pp
        fixed   = 2 t(b f / 2 pp) - t(b f / pp) + G
    """
    plan, micro = ctx.plan, micro_batch(ctx, group)
    mixes = 1.0 - ctx.engine.prefill_first
    chunks = ceiling(fresh / plan.chunk) if chunks is None else chunks
    chunk = fresh / chunks
    together = chunk if together is None else together
    fed, share = 1.0 + plan.drafts, fresh / together
    gaps = pass_terms.gaps(ctx)
    needs = attention_and_launch(ctx, group, context, gaps)
    prompt = Prompts(1.0 / chunks, fresh, cached, chunks)
    prompts, decoding = prompt._replace(number=1.0 / share), mixes * group
    alone = prompt_needs(ctx, prompt, gaps, eager_share(ctx, jnp.zeros_like(group), prompt))
    joining = prompt_needs(ctx, prompts, gaps, eager_share(ctx, decoding, prompts), mixes)
    time, prefill = needs.time, joining.terms["attention"]
    fed_tokens = {
        "decode": (micro * fed, time),
        "decode without a pipeline": (group * fed, time),
        "chunk alone": (chunk, alone.terms["attention"]),
        "decode and prompts": (decoding * fed + together, time * mixes + prefill),
        "half a decode": (micro * fed / 2.0, time / 2.0),
    }
    layers = layer_costs(ctx, fed_tokens)
    verified, unmixed = layers["decode"], layers["decode without a pipeline"]
    own = Passes(
        decode=add(verified, decode_needs(ctx, group, needs, verified)).scaled(
            1.0 / pass_yield(ctx)
        ),
        alone=add(
            add(layers["chunk alone"], alone).scaled(chunks),
            pass_terms.prompt_head(ctx, jnp.asarray(1.0)),
        ),
        joining=prompt_extra(ctx, layers["decode and prompts"], unmixed, joining).scaled(share),
        fixed=2.0 * layers["half a decode"].time - verified.time + gaps,
    )
    if ctx.draft is None:
        return own
    return _with_draft(ctx, own, passes(ctx.draft, group, context, fresh, cached, chunks, together))


def layer_costs(ctx: Context, passes: dict[str, tuple[Array, Array]]) -> dict[str, Cost]:
    """Seconds in the layers of several passes, traced once.

    ``passes``: tokens of each, and seconds of attention and launches that go on beside them.
    """
    rows, besides = (jnp.stack(x) for x in zip(*passes.values(), strict=True))
    costs = jax.vmap(partial(pass_terms.through_layers, ctx))(rows, besides)
    return {name: trees.take(costs, i) for i, name in enumerate(passes)}


def _with_draft(ctx: Context, own: Passes, small: Passes) -> Passes:
    """The passes of a model with those of another that drafts for it."""
    per_token = ctx.plan.drafts / pass_yield(ctx)
    counts = {"decode": per_token, "alone": ctx.drafting, "joining": ctx.drafting}
    more = {name: as_draft(getattr(small, name).scaled(n)) for name, n in counts.items()}
    return own._replace(**{name: add(getattr(own, name), cost) for name, cost in more.items()})


def step_law(ctx: Context, context: Array) -> Callable[..., Array]:
    """A function of (decoding, prompts, new, cached): seconds of a group's pass.

    ``decoding`` requests have ``context`` tokens each; beside them ``prompts`` others feed ``new``
    tokens each that follow ``cached`` ones. It is ``passes`` of any mixture: a decode pass, and the
    time by which prompts make it longer.
    """
    own = _decode_and_prompts(ctx, context)
    small = None if ctx.draft is None else _decode_and_prompts(ctx.draft, context)

    def step(*batch: Array) -> Array:
        decode, prompts = own(*batch)
        if small is None:
            return decode + prompts
        drafting, drafted_prompts = small(*batch)
        return decode + prompts + ctx.plan.drafts * drafting + ctx.drafting * drafted_prompts

    return step


def _decode_and_prompts(ctx: Context, context: Array) -> Callable[..., tuple[Array, Array]]:
    """Seconds of decoding in a step, and those that prompts add to it."""
    mixes = 1.0 - ctx.engine.prefill_first  # whether a pass with prompts decodes, too
    kind, fed, gaps = jnp.result_type(ctx.plan.tp), 1.0 + ctx.plan.drafts, pass_terms.gaps(ctx)
    table = tabulated(lambda rows: pass_terms.through_layers(ctx, rows).time, *COARSE, kind)

    def through_layers(rows: Array) -> Cost:
        return overhead(layers=table(rows))

    def parts(decoding: Array, number: Array, new: Array, cached: Array) -> tuple[Array, Array]:
        prompts = Prompts(number, new, cached)
        needs = attention_and_launch(ctx, decoding, context, gaps)
        verified = through_layers(micro_batch(ctx, decoding) * fed)
        mixed = through_layers(mixes * decoding * fed + prompts.tokens)
        eager = eager_share(ctx, mixes * decoding, prompts)
        joining = prompt_needs(ctx, prompts, gaps, eager, mixes)
        more = prompt_extra(ctx, mixed, through_layers(decoding * fed), joining)
        decode = add(verified, decode_needs(ctx, decoding, needs, verified))
        return decode.time, jnp.where(prompts.tokens > 0, more.time, 0.0)

    return parts


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
