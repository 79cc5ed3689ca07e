"""Seconds of one pass of a server: decode, a prompt alone, or a prompt among others."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr

from infer_jax.estimators.estimate import Phase
from infer_jax.estimators.serving import memory, pass_terms
from infer_jax.estimators.serving.context import Context, chosen
from infer_jax.estimators.serving.pass_terms import Spent
from infer_jax.physics.numerics import ceiling
from infer_jax.physics.speculation import bonus_yield, curve_yield
from infer_jax.specs import ForwardPass, number, spec
from infer_jax.typed_jax import trees

GRAPHS = 512.0  # tokens of the largest CUDA graph that vLLM captures by itself
FEWEST, MOST, FINE = -2, 24, 8  # a table of rows: 1/4 to 16 million, 8 points to a doubling


@spec
class Pass(Phase):
    """A forward pass, and the seconds of it in which memory is read and arithmetic is done."""

    reading: Array = number("time during which memory is read", unit="s", kind="time")
    computing: Array = number("time during which arithmetic is done", unit="s", kind="time")


def one_pass(c: Context, forward: ForwardPass) -> Pass:
    """One forward pass of an instance, its sequences dealt to the attention groups.

    A pass of few new tokens a sequence decodes: it replays a CUDA graph, attends in the absorbed
    form, and the host and the head see every token. A longer one is a prefill. The sequences of a
    group go through the stages of a pipeline in ``pp`` micro-batches.
    """
    plan, model, new = c.plan, c.model, forward.new_tokens
    sequences = forward.sequences / plan.attention_dp
    micro = micro_batch(c, sequences)
    decodes, context = new <= model.decode_tokens, forward.cached_tokens + new
    verified = jnp.maximum(new, 1.0 + plan.drafts)
    kinds = (
        pass_terms.joined(
            pass_terms.decode_attention(c, micro, new, forward.cached_tokens),
            pass_terms.head(c, micro, new),
            pass_terms.waiting(launch=pass_terms.gaps(c), host=c.engine.sequence_time * sequences),
        ),
        pass_terms.joined(
            pass_terms.prefill_attention(c, micro, new, forward.cached_tokens),
            pass_terms.head(c, micro, 1.0).times(jnp.asarray(model.laws.prompt_logits)),
            pass_terms.waiting(launch=eager(c, new), host=jnp.zeros_like(c.engine.sequence_time)),
        ),
    )
    apart = trees.where(decodes, *kinds)
    through = pass_terms.through_layers(c, micro * new, apart.time)
    spent = pass_terms.joined(through, apart)
    spent = spent.times(jnp.where(decodes, model.decode_factor, model.first_factor))
    limits = {
        # a prompt may come without the part that is cached
        "memory": memory.limit(c, sequences, context, jnp.where(decodes, verified, context)),
        "expert ranks": memory.expert_ranks(c),
    }
    mfu = pass_terms.ideal(c, micro * new) / spent.time
    return Pass(
        time=spent.time,
        terms=spent.terms,
        limits=limits,
        mfu=mfu,
        layout=layout(c),
        reading=spent.reading,
        computing=spent.computing,
    )


def one_token(c: Context, forward: ForwardPass) -> Pass:
    """``one_pass``, or with ``plan.drafts`` a decode step, per token that each sequence gains.

    It is the decode step of ``passes``, so that ``step`` and ``estimate`` price drafts alike.
    """
    plain = one_pass(c, forward)
    sequences = forward.sequences / c.plan.attention_dp
    beside, kept = _beside(c, sequences, forward.cached_tokens), kept_tokens(c)
    rows = micro_batch(c, sequences) * (1.0 + c.plan.drafts)
    fed = pass_terms.through_layers(c, rows, beside.time)
    spent = _decode(c, fed, beside, sequences, kept).times(c.model.decode_factor)
    usual = plain.terms
    if c.draft is not None:
        small = one_pass(c.draft, forward)
        each = pass_terms.drafted(Spent(small.terms, small.reading, small.computing))
        spent = pass_terms.joined(spent, each.times(c.plan.drafts / kept))
        usual = usual | {"draft": jnp.zeros_like(plain.time)}
    drafted = plain.replace(
        time=spent.time,
        terms={name: spent.terms[name] for name in usual},
        mfu=plain.mfu * plain.time / spent.time,
        reading=spent.reading,
        computing=spent.computing,
    )
    drafts = c.plan.drafts > 0.0
    return trees.where(drafts, drafted, plain.replace(terms=usual))


def kept_tokens(c: Context) -> Array:
    """Tokens that a decode pass gives each request: sum_j a^j, j = 0 .. d, of d drafts.

    1 + sum_j a_1 ... a_j where the acceptance is of each position.
    """
    law = curve_yield if jnp.ndim(c.model.acceptance) else bonus_yield
    return law(c.model.acceptance, c.plan.drafts)


def micro_batch(c: Context, sequences: Array) -> Array:
    """Sequences of a group in one pipeline stage: an even share, at least one."""
    return jnp.maximum(sequences / c.plan.pp, jnp.minimum(sequences, 1.0))


def eager(c: Context, tokens: Array) -> Array:
    """Seconds of launches of a pass with ``tokens`` of a prompt, without a CUDA graph.

    f_e (1 + k_I I / I_0) times the gaps of a decode pass; the second term is the part of the host's
    work that grows with tokens.
    """
    growth = 1.0 + c.model.eager_growth * tokens / c.model.eager_tokens
    return c.engine.eager * growth * pass_terms.gaps(c)


def graph_tokens(c: Context) -> Array:
    """Tokens of the largest pass with prompts that an engine launches by CUDA graphs.

    vLLM V1 captures all of a layer but its attention for passes of any kind of up to
    min(2 max_num_seqs, 512) tokens (``cudagraph_mode`` FULL_AND_PIECEWISE, docs/design/cuda_graphs
    and vllm/config/vllm.py, ``_set_cudagraph_sizes``, at v0.13); its launches count as those of a
    decode pass, which is captured whole. For SGLang and TensorRT-LLM 0: decode passes alone.
    """
    own = jnp.minimum(2.0 * c.plan.max_sequences, GRAPHS)
    none = jnp.zeros_like(own)
    return chosen((none, none, own), c.model.engine)


def uncaptured(c: Context, decoding: Array, prompts: Array, new: Array) -> Array:
    """Share of passes with prompts that are launched without a graph, where counts are means.

    Phi((r - r_g) / s): r tokens of a pass, r_g of the largest graph, s^2 = d f^2 + (p - 1) n^2 the
    variance of Poisson numbers of d decoding requests of f tokens and of the prompts of n tokens
    beside the one that is always there.
    """
    fed = 1.0 + c.plan.drafts
    rows = decoding * fed + prompts * new
    others = jnp.maximum(prompts - 1.0, 0.0)
    spread = jnp.sqrt(decoding * fed**2 + others * new**2 + 1.0)
    return ndtr((rows - graph_tokens(c)) / spread)


def layout(c: Context) -> dict[str, Array]:
    """The degrees of the plan."""
    names = ("tp", "attention_dp", "ep", "pp")
    return {name: getattr(c.plan, name) for name in names}


class Passes(NamedTuple):
    """Seconds of a server's passes, for its requests.

    ``decode``: a decode step, per token that each request of a group gains. ``alone``: one
    request's prompt on an idle group. ``joining``: the time that a prompt adds to the passes it
    shares, with its part of their launches. ``fixed``: of a decode pass, what does not grow with
    its requests, 2 t(b / 2) - t(b).
    """

    decode: Spent
    alone: Spent
    joining: Spent
    fixed: Array


def passes(
    c: Context,
    group: Array,
    context: Array,
    fresh: Array,
    cached: Array,
    chunks: Array | None = None,
    together: Array | None = None,
) -> Passes:
    """The passes of a group with ``group`` requests, of which each decodes at ``context`` tokens.

    A prompt of ``fresh`` tokens after ``cached`` ones goes in ``chunks`` passes, as few as the plan
    allows if None, with ``together`` prompt tokens in each of the passes that it shares.
    """
    plan, beside = c.plan, 1.0 - c.engine.prefill_first
    micro = micro_batch(c, group)
    chunks = ceiling(fresh / plan.chunk) if chunks is None else chunks
    each = fresh / chunks
    together = each if together is None else together
    # a pass with drafts feeds drafts + 1 tokens and keeps some of them
    kept = kept_tokens(c)
    fed = 1.0 + plan.drafts
    shared = group * fed * beside + together
    rows = jnp.stack([micro * fed, group * fed, each, shared, micro * fed / 2.0])
    one, part = jnp.asarray(1.0), fresh / together
    attending = pass_terms.prefill_attention(c, one, fresh, cached, chunks)
    decoding = _beside(c, group, context)
    # the layers for each of these numbers of rows, traced once, and what goes on beside them
    with_decodes = decoding.time * beside + attending.time / part
    decodes, prompt = decoding.time, attending.time / chunks
    apart = jnp.stack([decodes, decodes, prompt, with_decodes, decodes / 2.0])
    through = jax.vmap(partial(pass_terms.through_layers, c))(rows, apart)
    fed, steady, alone, shared, half = (trees.take(through, i) for i in range(5))

    head = pass_terms.head(c, one, 1.0).times(jnp.asarray(c.model.laws.prompt_logits))
    waits = 1.0 - beside * (1.0 - c.model.eager_beside_decode)
    launch = pass_terms.waiting(launch=part * waits * eager(c, together))

    def extra(more: Array, less: Array) -> Array:
        return (more - beside * less) * (part / plan.pp)

    added = jax.tree.map(extra, shared, steady)
    own = Passes(
        decode=_decode(c, fed, decoding, group, kept),
        alone=pass_terms.joined(
            alone.times(chunks),
            attending,
            head,
            pass_terms.waiting(launch=chunks * eager(c, each)),
        ),
        joining=pass_terms.joined(added, attending.times(1.0 / plan.pp), launch),
        fixed=2.0 * half.time - fed.time + pass_terms.gaps(c),
    )
    if c.draft is None:
        return own
    small = passes(c.draft, group, context, fresh, cached, chunks, together)
    shares = {"decode": plan.drafts / kept, "alone": c.drafting, "joining": c.drafting}
    more = {k: pass_terms.drafted(getattr(small, k).times(x)) for k, x in shares.items()}
    return own._replace(**{k: pass_terms.joined(getattr(own, k), x) for k, x in more.items()})


def stepping(c: Context, context: Array) -> Callable[..., Array]:
    """A function of (decoding, prompts, new, cached): seconds of a group's step per token gained.

    ``decoding`` requests have ``context`` tokens each; beside them ``prompts`` others feed ``new``
    tokens each that follow ``cached`` ones.
    """
    own = _parts(c, context)
    small = None if c.draft is None else _parts(c.draft, context)

    def step(*batch: Array) -> Array:
        decode, prefill = own(*batch)
        if small is None:
            return decode + prefill
        drafting, prompts = small(*batch)
        share = c.plan.drafts / kept_tokens(c)
        return decode + prefill + share * drafting + c.drafting * prompts

    return step


def _parts(c: Context, context: Array) -> Callable[..., tuple[Array, Array]]:
    """Seconds of decoding in a step, and of the prompts beside it."""
    through, kept = tabulated(c), kept_tokens(c)
    shared = 1.0 - c.engine.prefill_first  # passes with prompts decode, too
    waits = 1.0 - shared * (1.0 - c.model.eager_beside_decode)

    def parts(decoding: Array, prompts: Array, new: Array, cached: Array) -> tuple[Array, Array]:
        fed, rows = prompts * new, shared * decoding
        verified = through(micro_batch(c, decoding) * (1.0 + c.plan.drafts))
        attending = pass_terms.prefill_attention(c, prompts, new, cached)
        more = (through(rows + fed) - shared * through(decoding) + attending.time) / c.plan.pp
        launch = waits * eager(c, fed) * uncaptured(c, rows, prompts, new)
        beside = _beside(c, decoding, context)
        alone = _decode(c, pass_terms.waiting(layers=verified), beside, decoding, kept)
        return alone.time, jnp.where(fed > 0, more + launch, 0.0)

    return parts


def tabulated(c: Context) -> Callable[[Array], Array]:
    """A function of rows: seconds in the layers, from a table of ``FINE`` points to a doubling.

    Linear in logarithms: exact where reading or computing alone counts, within 0.1 % where they
    meet. It keeps programs short that need these seconds at many points.
    """
    points = 2.0 ** (np.arange(FEWEST * FINE, MOST * FINE + 1) / FINE)
    rows = jnp.asarray(points, jnp.result_type(c.plan.tp))

    def seconds(rows: Array) -> Array:
        return pass_terms.through_layers(c, rows).time

    table = jnp.log(jax.vmap(seconds)(rows))

    def through(rows: Array) -> Array:
        at = (jnp.log2(jnp.clip(rows, points[0], points[-1])) - FEWEST) * FINE
        low = jnp.minimum(jnp.floor(at), len(points) - 2.0)
        index, share = low.astype(jnp.int32), at - low
        return jnp.exp(table[index] * (1.0 - share) + table[index + 1] * share)

    return through


def _beside(c: Context, group: Array, context: Array) -> Spent:
    """Attention and launches of a decode step of ``group`` requests."""
    attending = pass_terms.decode_attention(c, micro_batch(c, group), 1.0, context)
    return pass_terms.joined(attending, pass_terms.waiting(launch=pass_terms.gaps(c)))


def _decode(c: Context, fed: Spent, beside: Spent, group: Array, kept: Array) -> Spent:
    """A decode step per token that a request gains, ``fed`` the seconds in its layers' products.

    ``beside``: attention and launches. With d drafts, d + 1 tokens are fed and ``kept``,
    sum_j a^j, j = 0 .. d, are kept. The model's own heads are of one layer each; what another model
    takes to draft is not in it.
    """
    plan, micro = c.plan, micro_batch(c, group)
    if c.draft is None:
        drafting = 1.0 + plan.drafts / jnp.sum(c.shape.layers.count, axis=-1)
        head = pass_terms.head(c, micro, 1.0).times(1.0 + plan.drafts)
    else:
        drafting, head = jnp.asarray(1.0), pass_terms.head(c, micro, 1.0 + plan.drafts)
    return pass_terms.joined(
        pass_terms.joined(fed, beside).times(drafting / kept),
        head.times(1.0 / kept),
        pass_terms.waiting(host=c.engine.sequence_time * group),
    )
