"""How long is one pass of a server: decoding, a prompt alone, a prompt among others?"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.estimators.estimate import Phase
from infer_jax.estimators.serving import room, terms
from infer_jax.estimators.serving.terms import Spent
from infer_jax.estimators.serving.world import World
from infer_jax.physics import interference
from infer_jax.physics.numerics import ceiling
from infer_jax.physics.speculation import bonus_yield, curve_yield
from infer_jax.specs import ForwardPass, number, spec

FEWEST, MOST, FINE = -2, 24, 8  # a table of rows: 1/4 to 16 million, 8 points to a doubling


@spec
class Pass(Phase):
    """A forward pass, and for how much of it memory is read and arithmetic is done."""

    reading: Array = number("of it memory is read", unit="s", kind="time")
    computing: Array = number("of it arithmetic is done", unit="s", kind="time")


def one_pass(w: World, forward: ForwardPass) -> Pass:
    """One forward pass of an instance, its sequences dealt to the attention groups.

    A pass of few new tokens a sequence decodes: it replays a CUDA graph, attends in the absorbed
    form, and the host and the head see every token. A longer one is a prefill. The sequences of a
    group go through the stages of a pipeline in ``pp`` micro-batches.
    """
    plan, model, new = w.plan, w.model, forward.new_tokens
    sequences = forward.sequences / plan.attention_dp
    micro = micro_batch(w, sequences)
    decodes = new <= model.decode_tokens
    kinds = (
        terms.joined(
            terms.decode_attention(w, micro, new, forward.cached_tokens),
            terms.head(w, micro, new),
            terms.waiting(launch=terms.gaps(w), host=w.engine.sequence_time * sequences),
        ),
        terms.joined(
            terms.prefill_attention(w, micro, new, forward.cached_tokens),
            terms.head(w, micro, 1.0).times(jnp.asarray(model.laws.prompt_logits)),
            terms.waiting(launch=eager(w, new), host=jnp.zeros_like(w.engine.sequence_time)),
        ),
    )
    apart = jax.tree.map(lambda d, p: jnp.where(decodes, d, p), *kinds)
    spent = terms.joined(terms.through_layers(w, micro * new), apart)
    spent = spent.times(jnp.where(decodes, model.decode_factor, model.first_factor))
    limits = {
        "memory": room.limit(w, sequences, forward.cached_tokens + new),
        "expert ranks": room.expert_ranks(w),
    }
    mfu = terms.ideal(w, micro * new) / spent.time
    return Pass(
        time=spent.time,
        terms=spent.terms,
        limits=limits,
        mfu=mfu,
        layout=layout(w),
        reading=spent.reading,
        computing=spent.computing,
    )


def one_token(w: World, forward: ForwardPass) -> Pass:
    """``one_pass``, or where ``plan.drafts`` are made a decode step, per token that each gets.

    It is the step of ``passes``: both ways to serve price a drafted token alike.
    """
    plain = one_pass(w, forward)
    sequences = forward.sequences / w.plan.attention_dp
    fed = terms.through_layers(w, micro_batch(w, sequences) * (1.0 + w.plan.drafts))
    spent = _decode(w, fed, sequences, forward.cached_tokens).times(w.model.decode_factor)
    usual = plain.terms
    if w.draft is not None:
        small = one_pass(w.draft, forward)
        each = terms.drafted(Spent(small.terms, small.reading, small.computing))
        spent = terms.joined(spent, each.times(w.plan.drafts / kept_tokens(w)))
        usual = usual | {"draft": jnp.zeros_like(plain.time)}
    drafted = plain.replace(
        time=spent.time,
        terms={name: spent.terms[name] for name in usual},
        mfu=plain.mfu * plain.time / spent.time,
        reading=spent.reading,
        computing=spent.computing,
    )
    made = w.plan.drafts > 0.0
    return jax.tree.map(lambda d, p: jnp.where(made, d, p), drafted, plain.replace(terms=usual))


def kept_tokens(w: World) -> Array:
    """Tokens that a decode pass gives each request: sum_j a^j, j = 0 .. d, of d drafts.

    1 + sum_j a_1 ... a_j where the acceptance is of each position.
    """
    law = curve_yield if jnp.ndim(w.model.acceptance) else bonus_yield
    return law(w.model.acceptance, w.plan.drafts)


def micro_batch(w: World, sequences: Array) -> Array:
    """Sequences of a group in one stage of a pipeline: an even share, but no part of one."""
    return jnp.maximum(sequences / w.plan.pp, jnp.minimum(sequences, 1.0))


def eager(w: World, tokens: Array) -> Array:
    """Seconds of launches of a pass with ``tokens`` of a prompt, without a CUDA graph.

    f_e (1 + k_I I / I_0) times the gaps of a decode pass: some of the work before a launch is done
    for every token.
    """
    growth = 1.0 + w.model.eager_growth * tokens / w.model.eager_tokens
    return w.engine.eager * growth * terms.gaps(w)


def layout(w: World) -> dict[str, Array]:
    """The degrees of the plan."""
    names = ("tp", "attention_dp", "ep", "pp")
    return {name: getattr(w.plan, name) for name in names}


class Passes(NamedTuple):
    """What a server does for its requests.

    ``decode``: a step per token that each request of a group gets. ``alone``: one request's
    prompt on an idle group. ``joining``: what it adds to passes that decode anyway and may be
    shared with others, without launches; ``launch`` is those of one such pass, of which there are
    ``chunks``.
    """

    decode: Spent
    alone: Spent
    joining: Spent
    launch: Array
    chunks: Array


def passes(
    w: World,
    group: Array,
    context: Array,
    fresh: Array,
    cached: Array,
    prefills: Array | float = 0.0,
) -> Passes:
    """The passes of a group with ``group`` requests, of which each decodes at ``context`` tokens.

    A prompt of ``fresh`` tokens after ``cached`` ones goes in as few chunks as the plan allows;
    ``prefills`` of them begin while each request gets a token.
    """
    plan = w.plan
    micro = micro_batch(w, group)
    chunks = ceiling(fresh / plan.chunk)
    each = fresh / chunks
    # a pass with drafts gives several tokens, and feeds more
    sharing = interference.sharing(prefills * kept_tokens(w), chunks)
    fed = 1.0 + plan.drafts
    rows = jnp.stack([micro * fed, group * fed, each, group * fed + each * sharing])
    fed, steady, alone, beside = _each(w, rows)

    one = jnp.asarray(1.0)
    attending = terms.prefill_attention(w, one, fresh, cached, chunks)
    head = terms.head(w, one, 1.0).times(jnp.asarray(w.model.laws.prompt_logits))
    launch = eager(w, each)
    less = jax.tree.map(jnp.subtract, beside, steady)
    own = Passes(
        decode=_decode(w, fed, group, context),
        alone=terms.joined(
            alone.times(chunks), attending, head, terms.waiting(launch=chunks * launch)
        ),
        joining=terms.joined(less.times(chunks / sharing), attending).times(1.0 / plan.pp),
        launch=launch,
        chunks=chunks,
    )
    if w.draft is None:
        return own
    small = passes(w.draft, group, context, fresh, cached, prefills)
    more = {
        "decode": small.decode.times(plan.drafts / kept_tokens(w)),
        "alone": small.alone.times(w.drafting),
        "joining": small.joining.times(w.drafting),
    }
    with_draft = {k: terms.joined(getattr(own, k), terms.drafted(x)) for k, x in more.items()}
    return own._replace(**with_draft)


def stepping(w: World, context: Array) -> Callable[..., Array]:
    """The law of a group's steps: seconds per token that each decoding request gets.

    Of (decoding, prompts, new, cached): beside ``decoding`` requests with ``context`` tokens
    each, ``prompts`` others feed ``new`` tokens each that follow ``cached`` ones.
    """
    own = _parts(w, context)
    small = None if w.draft is None else _parts(w.draft, context)

    def step(*batch: Array) -> Array:
        decode, prefill = own(*batch)
        if small is None:
            return decode + prefill
        drafting, prompts = small(*batch)
        share = w.plan.drafts / kept_tokens(w)
        return decode + prefill + share * drafting + w.drafting * prompts

    return step


def _parts(w: World, context: Array) -> Callable[..., tuple[Array, Array]]:
    """Seconds of decoding in a step, and of the prompts beside it."""
    through = tabulated(w)

    def parts(decoding: Array, prompts: Array, new: Array, cached: Array) -> tuple[Array, Array]:
        fed = prompts * new
        verified = through(micro_batch(w, decoding) * (1.0 + w.plan.drafts))
        attending = terms.prefill_attention(w, prompts, new, cached)
        more = (through(decoding + fed) - through(decoding) + attending.time) / w.plan.pp
        launch = w.model.eager_beside_decode * eager(w, fed)
        alone = _decode(w, terms.waiting(layers=verified), decoding, context)
        return alone.time, more + jnp.where(fed > 0, launch, 0.0)

    return parts


def tabulated(w: World) -> Callable[[Array], Array]:
    """Seconds in which rows go through the layers, between points ``FINE`` to a doubling.

    Linear in logarithms: exact where reading or computing alone counts, within 0.1 % where they
    meet. A law that asks for many times is then a short program.
    """
    points = 2.0 ** (np.arange(FEWEST * FINE, MOST * FINE + 1) / FINE)
    rows = jnp.asarray(points, jnp.result_type(w.plan.tp))
    table = jnp.log(jax.vmap(lambda n: terms.through_layers(w, n).time)(rows))

    def through(rows: Array) -> Array:
        at = (jnp.log2(jnp.clip(rows, points[0], points[-1])) - FEWEST) * FINE
        low = jnp.minimum(jnp.floor(at), len(points) - 2.0)
        index, share = low.astype(jnp.int32), at - low
        return jnp.exp(table[index] * (1.0 - share) + table[index + 1] * share)

    return through


def _each(w: World, rows: Array) -> list[Spent]:
    """What goes through the layers for each number of rows, traced once."""
    layers = jax.vmap(lambda n: terms.through_layers(w, n))(rows)
    return [jax.tree.map(lambda x, i=i: x[i], layers) for i in range(len(rows))]


def _decode(w: World, fed: Spent, group: Array, context: Array) -> Spent:
    """A decode step per token of a request, ``fed`` being its way through the layers.

    With d drafts, d + 1 tokens are fed and sum_j a^j are kept, j = 0 .. d. The model's own heads
    are of one layer each; what another model takes to draft is not in it.
    """
    plan, micro, kept = w.plan, micro_batch(w, group), kept_tokens(w)
    if w.draft is None:
        drafting = 1.0 + plan.drafts / jnp.sum(w.shape.layers.count, axis=-1)
        head = terms.head(w, micro, 1.0).times(1.0 + plan.drafts)
    else:
        drafting, head = jnp.asarray(1.0), terms.head(w, micro, 1.0 + plan.drafts)
    replayed = terms.joined(
        fed,
        terms.decode_attention(w, micro, 1.0, context),
        terms.waiting(launch=terms.gaps(w)),
    )
    return terms.joined(
        replayed.times(drafting / kept),
        head.times(1.0 / kept),
        terms.waiting(host=w.engine.sequence_time * group),
    )
