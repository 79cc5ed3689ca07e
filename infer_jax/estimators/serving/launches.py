"""Launches of passes with prompts, with a CUDA graph and without."""

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtr

from infer_jax import engines
from infer_jax.estimators.serving import pass_terms
from infer_jax.estimators.serving.context import Context, select
from infer_jax.estimators.serving.engines import ENGINES

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
