"""Kernels of a layer as InferSim computes them, quirks included: reproduced, not recommended.

What differs from the corrected assembly: all layers alike but for linear ones; latent attention
is computed with all heads on every tensor rank, linear attention is not divided at all; the
cache load of hybrid models is divided by the layers twice; prompts are counted up to whole ones
only in models that are not hybrid; dispatch and combine are charged to dense models, too, and
an all-reduce once or twice, depending; no head, no router, no latency of any collective.
Source: InferSim, technical report (2025) and program (https://github.com/alibaba/InferSim).
"""

from typing import NamedTuple, Self, TypeVar

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.kernels.coefficients import Coefficients, KernelsPlan
from infer_jax.estimators.kernels.efficiency import (
    Gemm,
    Kernel,
    Rating,
    Routed,
    kernel_at_efficiency,
    measured,
)
from infer_jax.physics import attention as att
from infer_jax.physics.decoder import total
from infer_jax.physics.matmul import rate
from infer_jax.physics.network import dispatch
from infer_jax.physics.numerics import present
from infer_jax.specs import (
    Architecture,
    Dense,
    Experts,
    Feedforward,
    Format,
    ForwardPass,
    GroupedQuery,
    Hardware,
    Latent,
    Linear,
    Torus,
)

Core = GroupedQuery | Latent
Sharded = TypeVar("Sharded", bound=Core)


class PhaseInputs(NamedTuple):
    """The inputs of the laws of one phase; counts are per GPU."""

    model: Coefficients
    arch: Architecture
    hardware: Hardware
    world: Array
    tp: Array
    nodes: Array
    deepep: Array
    two_batch: Array
    sm_share: Array
    stage: str
    tokens: Array  # new tokens of a layer: a batch in decode, the prompts of a pass in prefill
    length: Array  # tokens of a prompt, or of the mean context

    @classmethod
    def of(
        cls,
        model: Coefficients,
        arch: Architecture,
        hardware: Hardware,
        forward: ForwardPass,
        plan: KernelsPlan,
        stage: str,
    ) -> Self:
        """Those of a pass: counts of one GPU and one micro-batch; hybrid models have one alone."""
        context, decodes = forward.cached_tokens, stage == "decode"
        job = cls(
            model=model,
            arch=arch,
            hardware=hardware,
            world=plan.tp * plan.ep,
            tp=plan.tp,
            nodes=plan.nodes_on(hardware),
            deepep=plan.deepep,
            two_batch=plan.two_batch,
            sm_share=plan.sm_share,
            stage=stage,
            tokens=forward.sequences / plan.ep,
            length=context if decodes else context + forward.new_tokens,
        )
        each = job.tokens if job.hybrid else job.tokens / (1.0 + plan.two_batch)
        return job._replace(tokens=each if decodes else each * forward.new_tokens)

    @property
    def memory(self) -> Array:
        """Bytes per second of memory as the tool counts them."""
        chip = self.hardware.chip
        return chip.memory_bandwidth * self.model.memory_share * self.model.byte_giga

    @property
    def groups(self) -> Array:
        """Groups of tensor ranks that experts are spread over, w // t."""
        return jnp.maximum(jnp.floor(self.world / self.tp), 1.0)

    @property
    def hybrid(self) -> bool:
        """Whether some layers are linear."""
        return any(isinstance(b.attention, Linear) for b in self.arch.blocks)

    @property
    def prompts(self) -> Array:
        """Prompts of a prefill pass: whole ones, in hybrid models as many as there are."""
        share = self.tokens / self.length
        return share if self.hybrid else jnp.ceil(share)

    def gemm(self, k: Array, n: Array, weights: Format, *, looked_up: Array | None = None):
        """A projection; its efficiency may be looked up under another width."""
        shape = Gemm(self.tokens, k, n)
        seen = shape if looked_up is None else shape._replace(n=looked_up)
        rating = self.model.efficiency.product(self.hardware.chip, seen, weights)
        moved = k * n * weights.bytes + self.tokens * (k + n) * 2.0
        return self.kernel(shape.flops, moved, weights.bits, rating)

    def kernel(self, flops: Array, moved: Array, bits: Array, rating: Rating) -> Kernel:
        """A kernel at the tool's rate, which takes a tera as 1024 giga."""
        return kernel_at_efficiency(
            flops, moved, rate(self.hardware.chip, bits), rating, self.model.flop_giga
        )

    def load(self, moved: Array) -> Kernel:
        """Bytes through memory: a kernel without arithmetic."""
        peak = rate(self.hardware.chip, jnp.asarray(16.0))
        none = kernel_at_efficiency(0.0 * moved, moved, peak, measured(jnp.ones_like(peak)))
        return none.replace(seconds=moved / self.memory)


def rank_attention(attention: Sharded, tp: Array) -> Sharded:
    """The heads of one tensor rank: whole ones, which may be none."""
    heads = jnp.floor(attention.query_heads / tp)
    if isinstance(attention, Latent):
        return attention.replace(query_heads=heads)
    return attention.replace(query_heads=heads, kv_heads=jnp.floor(attention.kv_heads / tp))


def projections(job: PhaseInputs, attention: Core | Linear) -> dict[str, Kernel]:
    """The projections of an attention layer by the tool's names."""
    width, weights = job.arch.width, attention.weights
    match attention:
        case Linear():
            keys = attention.key_heads * attention.key_width
            values = attention.value_heads * attention.value_width
            fused = 2.0 * keys + 2.0 * values
            first = job.gemm(width, fused, weights)
            more = (fused + 2.0 * attention.value_heads) / fused
            first = first.replace(seconds=first.seconds * more, flops=first.flops * more)
            return {"lin_qkvzba": first, "lin_o_proj": job.gemm(values, width, weights)}
        case GroupedQuery():
            core = rank_attention(attention, job.tp)
            heads = core.query_heads * core.head_width
            fused = heads + 2.0 * core.kv_heads * core.head_width
            return {
                "qkv_proj": job.gemm(width, fused, weights),
                "o_proj": job.gemm(heads, width, weights),
            }
        case Latent():
            core = rank_attention(attention, job.tp)
            heads, plain = core.query_heads, core.nope_width
            shapes = {
                "q_down": (width, core.query_rank),
                "q_up": (core.query_rank, heads * (plain + core.rope_width)),
                "kv_down": (width, core.kv_rank + core.rope_width),
                "bmm_q_wk": (heads * plain, core.kv_rank),
                "bmm_o_wv": (heads * core.kv_rank, core.value_width),
                "o_proj": (heads * core.value_width, width),
            }
            return {name: job.gemm(k, n, weights) for name, (k, n) in shapes.items()}


def per_pair(attention: Core, stage: str) -> Array:
    """FLOP of scores and values per query and key; latent attention absorbed in decode."""
    heads = 2.0 * attention.query_heads
    if isinstance(attention, GroupedQuery):
        return heads * (attention.head_width + attention.value_width)
    if stage == "decode":
        return heads * (2.0 * attention.kv_rank + attention.rope_width)
    return heads * (attention.nope_width + attention.rope_width + attention.value_width)


def core(job: PhaseInputs, attention: Core | Linear) -> dict[str, Kernel]:
    """The attention core, and what it loads from the cache, of one sequence or the batch."""
    chip, source = job.hardware.chip, job.model.efficiency
    batch = job.tokens if job.stage == "decode" else jnp.ones_like(job.tokens)
    if isinstance(attention, Linear):
        count = job.tokens if job.stage == "decode" else job.length
        held = att.of(attention).held_bytes(Format.of(bytes=2.0, bits=16.0), job.length)
        load = job.load(held * batch)
        seconds, rating = source.linear(chip, attention, count, job.stage, held)
        return {
            "lin_core": load.replace(seconds=seconds, lack=rating.lack, row=rating.row),
            "lin_state_load": load,
        }
    cut, cache = rank_attention(attention, job.tp), job.arch.cache
    if job.stage == "decode":
        rating = source.decode(chip, cut, job.tokens, job.length, cache)
        pairs = job.tokens * job.length
    else:
        rating = source.prefill(chip, cut, job.length)
        pairs = job.length * job.length / job.model.causal
    whole = attention if isinstance(attention, Latent) else cut
    again = _linear_share(job.arch) if job.hybrid else 1.0
    held = att.of(cut).held_bytes(cache, job.length) * batch * again
    work = per_pair(whole, job.stage) * pairs
    return {
        "attn_core": job.kernel(work, held, jnp.asarray(16.0), rating),
        "kv_load": job.load(held),
    }


def _linear_share(arch: Architecture) -> Array:
    """Full-attention layers over all layers of a hybrid model."""
    full = total(b.count for b in arch.blocks if not isinstance(b.attention, Linear))
    return full / total(b.count for b in arch.blocks)


def feedforward(job: PhaseInputs, layer: Feedforward) -> dict[str, Kernel]:
    """Routed experts or the dense layer, the load of their weights, and shared experts."""
    width, weights = job.arch.width, layer.weights
    inner = jnp.floor(layer.width / job.tp)
    held = 3.0 * width * inner * weights.bytes
    if isinstance(layer, Dense):
        flops = 6.0 * job.tokens * width * inner
        seen = Gemm(job.tokens, width, jnp.floor(2.0 * layer.width / job.world))
        rating = job.model.efficiency.product(job.hardware.chip, seen, weights)
        moved = held / job.groups
    else:
        flops = 6.0 * job.tokens * layer.active * width * inner
        routed = Routed(layer.replace(width=inner), width, job.tokens, job.world, job.groups)
        rating = job.model.efficiency.routed(job.hardware.chip, routed, job.stage)
        moved = held * layer.experts / job.groups
    mixture = {"moe": job.kernel(flops, moved, weights.bits, rating), "moe_load": job.load(moved)}
    if isinstance(layer, Experts):
        common = inner * layer.shared.width / layer.width
        exists = jnp.where(common > 0, 1.0, 0.0)
        up = job.gemm(width, 2.0 * common, weights)
        down = job.gemm(common, width, weights)
        mixture["shared"] = up.replace(
            seconds=exists * (up.seconds + down.seconds),
            flops=up.flops + down.flops,
            bytes=up.bytes + down.bytes,
            lack=exists * jnp.maximum(up.lack, down.lack),
        )
    return mixture


def communication(job: PhaseInputs) -> dict[str, Array]:
    """Seconds of dispatch, combine and all-reduce of a layer; the first two are 0 on one GPU."""
    layers = [b.feedforward for b in job.arch.blocks if isinstance(b.feedforward, Experts)]
    active = layers[0].active if layers else jnp.asarray(1.0)
    width, share = job.arch.width, job.model.link_share * job.model.byte_giga
    network = job.hardware.network
    if isinstance(network, Torus):
        inside = outside = network.link_bandwidth * share
    else:
        inside, outside = network.domain_bandwidth * share, network.network_bandwidth * share
    inside, outside = present(inside), present(outside)
    slow = jnp.where(job.nodes > 1.0, outside, inside)

    def moved(size: float) -> Array:
        """Seconds of a dispatch or combine of ``size`` bytes an element."""
        gathered = dispatch.seconds(job.tokens * job.world, width, 2.0, slow)
        if job.stage == "decode":
            deep = dispatch.seconds(job.tokens * active, width, size, slow)
        else:
            beyond = job.tokens * (job.nodes - 1.0)
            deep = dispatch.seconds(beyond, width, size, outside)
            deep = deep + dispatch.seconds(job.tokens, width, size, inside)
        chosen = jnp.where(job.deepep > 0.5, deep, gathered)
        return jnp.where(job.world > 1.0, chosen, 0.0)

    ring = dispatch.ring_bytes(job.tp, job.tokens * width * 2.0) / inside
    return {"comm_before": moved(1.0), "comm_after": moved(2.0), "tp_allreduce": ring}
