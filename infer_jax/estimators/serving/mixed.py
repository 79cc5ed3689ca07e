"""Seconds of a mixed pass: decoding requests and chunks of prompts together."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.estimators.serving import pass_terms
from infer_jax.estimators.serving.context import Context, chosen
from infer_jax.estimators.serving.pass_terms import Spent
from infer_jax.estimators.serving.passes import eager

FEWEST, MOST, FINE = 0, 20, 32  # a table of rows: 1 to a million, 32 points to a doubling
GRAPHS = 512.0  # tokens of the largest CUDA graph that vLLM captures by itself
POINTS = 2.0 ** (np.arange(FEWEST * FINE, MOST * FINE + 1) / FINE)


class Mixed(NamedTuple):
    """Inputs and table by which passes are priced; ``through``: log seconds at ``POINTS`` rows."""

    context: Context
    through: Float[Array, " points"]


def mixed_pass(c: Context, decoding: Array, context: Array, new: Array, pairs: Array) -> Spent:
    """Seconds, by term, of one pass of an attention group that has a single pipeline stage.

    ``decoding`` requests get a token each and have ``context`` tokens in the cache in all; ``new``
    prompt tokens are fed, with ``pairs`` pairs of one of them and one before it.
    """
    through = pass_terms.through_layers(c, jnp.maximum(decoding + new, 1.0))
    return _composed(c, through, decoding, context, new, pairs)


def _composed(
    c: Context, through: Spent, decoding: Array, context: Array, new: Array, pairs: Array
) -> Spent:
    """A pass whose rows go ``through`` the layers together.

    Decoding requests add attention, head, graph launches and host time as in a decode step; prompts
    add attention and launches without a graph as in a prefill, of whose launches decoding requests
    wait for a part. A pass of few tokens replays CUDA graphs.
    """
    model, decodes = c.model, decoding > 0.0
    decoded = pass_terms.joined(
        pass_terms.decode_attention(c, decoding, 1.0, context / jnp.maximum(decoding, 1.0)),
        pass_terms.head(c, decoding, 1.0),
        pass_terms.waiting(launch=pass_terms.gaps(c), host=c.engine.sequence_time * decoding),
    )
    prompts, part, before = as_prompts(new, pairs)
    launches = eager(c, new) * jnp.where(decodes, model.eager_beside_decode, 1.0)
    replays = decoding + new <= captured(c)
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


def captured(c: Context) -> Array:
    """Tokens of the largest pass with prompts that an engine launches by CUDA graphs.

    vLLM V1 captures all of a layer but its attention for passes of any kind of up to
    min(2 max_num_seqs, 512) tokens (``cudagraph_mode`` FULL_AND_PIECEWISE, docs/design/cuda_graphs
    and vllm/config/vllm.py, ``_set_cudagraph_sizes``, at v0.13); its launches count as those of a
    decode pass, which is captured whole. For SGLang and TensorRT-LLM 0: decode passes alone.
    """
    own = jnp.minimum(2.0 * c.plan.max_sequences, GRAPHS)
    none = jnp.zeros_like(own)
    return chosen((none, none, own), c.model.engine)


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

    return Mixed(c, jnp.log(jax.vmap(seconds)(rows)))


def mixed_time(m: Mixed, decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
    """Seconds of ``mixed_pass``, element by element, with the time in the layers from a table.

    Linear in logarithms between points, which is exact where reading or computing alone counts.
    Smooth in ``context`` but for the corners of windows and of a choice of tokens.
    """

    def one(decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
        at = jnp.log2(jnp.clip(decoding + new, POINTS[0], POINTS[-1])) * FINE
        low = jnp.minimum(jnp.floor(at), len(POINTS) - 2.0)
        index, share = low.astype(jnp.int32), at - low
        layers = jnp.exp(m.through[index] * (1.0 - share) + m.through[index + 1] * share)
        through = pass_terms.waiting(layers=layers)
        return _composed(m.context, through, decoding, context, new, pairs).time

    by_element: Callable[..., Array] = jnp.vectorize(one)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return by_element(decoding, context, new, pairs)
