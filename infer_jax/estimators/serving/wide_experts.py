"""What changes where experts on many ranks are served by DeepEP's kernels, as DeepSeek does."""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.plan import WideExperts
from infer_jax.physics import routing
from infer_jax.physics.decoder import total
from infer_jax.physics.network import dispatch
from infer_jax.physics.numerics import maximum


def exchange_time(ctx: Context, wide: WideExperts, rows: Array) -> Array:
    """Seconds in each layer of sending a group's ``rows`` tokens to experts and back.

    Dispatch and combine of DeepEP (``physics.network.dispatch``); each chip sends its share of the
    group's tokens, in the numbers that experts multiply, and gets 16-bit ones back.
    """
    plan, shape = ctx.plan, ctx.shape
    ranks, own = plan.tp * plan.attention_dp, rows * shape.width / plan.tp
    sizes = (own * dispatch.sent_bytes(shape.layers.routed.bits), own * dispatch.COMBINED)
    copies = shape.exchanged * (1.0 - ctx.coefficients.idle_slots)
    uses, nodes = copies * rows * plan.attention_dp, dispatch.nodes_of(ranks, ctx.wire)
    crowds = dispatch.Crowds(*(load_ratio(ctx, wide, uses, places) for places in (plan.ep, nodes)))

    def both_ways(size: Array) -> Array:
        quick = dispatch.low_latency(ranks, copies, size, ctx.wire, crowds.rank)
        thorough = dispatch.normal(ranks, copies, size, ctx.wire, wide.nodes, crowds)
        return jnp.where(wide.kernels > 0.5, quick, thorough)

    return total(both_ways(size) for size in sizes)


def exposed_exchange(ctx: Context, wide: WideExperts, computing: Array, exchange: Array) -> Array:
    """Seconds that ``exchange`` (X) adds to those of ``computing`` (C).

    smax(C + u X, X) - C where two micro-batches alternate, one exchanging while the other computes;
    X without. Normal kernels take a share u of a chip's processors while they run, low-latency
    ones none (deepseek-ai/profile-data at ae7fc07, README).
    """
    taken = jnp.where(wide.kernels > 0.5, 0.0, ctx.coefficients.handing_over)
    overlapped = maximum(computing + taken * exchange, exchange, 1.0 / ctx.coefficients.overlap)
    return jnp.where(wide.two_batch > 0.5, overlapped - computing, exchange)


def load_ratio(ctx: Context, wide: WideExperts, uses: Array, places: Array) -> Array:
    """Load of the busiest rank over the mean load, in each layer; ``places``: ranks, or nodes.

    ``uses``: pairs of a token and an expert that it visits. With copies of popular experts, the
    lesser of that and of experts placed by popularity (``routing.replicated_load``).
    """
    experts, skew = ctx.shape.layers.experts, ctx.coefficients.skew
    uneven = routing.popularity_spread(experts, skew) * jnp.sqrt(places / experts)
    dealt = routing.busiest(uses / places, places, ctx.coefficients.imbalance, uneven)
    placed = routing.replicated_load(experts, wide.copies, places, skew)
    return jnp.where(wide.copies > 0.0, jnp.minimum(dealt, placed), dealt)
