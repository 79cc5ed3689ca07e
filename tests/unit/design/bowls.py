"""Theories that compile at once, whose optima are known: what designs are tried on."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators import Estimate, Estimator, Limit, Phase
from infer_jax.physics import attention as att
from infer_jax.physics.decoder import active_parameters
from infer_jax.physics.network.sharding import stationary_volume, weight_gathered_volume
from infer_jax.physics.numerics import maximum
from infer_jax.specs import Format, GroupedQuery, Latent, number, part, spec
from tests.unit.sweeps import toy


def life(cost: Array, tpot: Array, need: Array, room: Array, price: Array) -> Estimate:
    """An estimate of these few numbers."""
    limits = {"memory": Limit(need=need, capacity=room)}
    phase = Phase(time=tpot, terms={"memory": tpot}, limits=limits, mfu=0.0 * tpot, layout={})
    one = jnp.ones_like(tpot)
    return Estimate(
        ttft=2.0 * tpot, tpot=tpot, chips=one, speed=1.0 / tpot, throughput=1.0 / tpot,
        cost=cost * price, input_cost=cost, prefill=phase, decode=phase,
    )  # fmt: skip


@spec
class Bowl(Estimator):
    """Cost is a bowl in logarithms around (width 900, batch 25, tp 3); time grows with width."""

    depth: Array = number("height of ripples", kind="size", default=0.0)

    @property
    def searches(self) -> bool:
        """It takes any split."""
        return True

    def estimate(self, arch: Any, hardware: Any, workload: Any, plan: Any) -> Estimate:
        u, v = jnp.log(arch.width / 900.0), jnp.log(workload.batch / 25.0)
        w = jnp.log(plan.tp / 3.0)
        bowl = u**2 + 0.5 * v**2 + w**2 + 0.6 * u * v
        cost = jnp.exp(bowl) * (1.0 + self.depth * jnp.sin(9.0 * (u + v)) ** 2)
        tpot = 1e-3 * arch.width * jnp.sqrt(workload.batch) / plan.tp
        room = hardware.chip.memory * 1e3 * plan.tp
        return life(cost, tpot, workload.batch * arch.width, room, hardware.price / 2.0)


def balance(kind: str) -> Any:
    """A theory whose cost is least at the balance point of ``kind``.

    T(x) is constant while memory bounds it and grows as x once arithmetic does, so that
    T / sqrt(x) is least where the two are equal; x is the batch of the workload.
    """

    @spec
    class One(Estimator):
        smoothing: Any = part("temperature", default_factory=lambda: None)

        @property
        def smooths(self) -> bool:
            """It has a temperature."""
            return True

        def estimate(self, arch: Any, hardware: Any, workload: Any, plan: Any) -> Estimate:
            x, chip = workload.batch, hardware.chip
            cost = volume(kind, x) if kind in ("rows", "gathered") else None
            if cost is None:
                work, moved = demand(kind, x)
                time = maximum(work / chip.flops_8, moved / chip.memory_bandwidth, self.smoothing)
                cost = time / jnp.sqrt(x)
            one = jnp.ones_like(cost)
            return life(cost, one, 0.0 * one, one, hardware.price)

    return One.of()


def demand(kind: str, x: Array) -> tuple[Array, Array]:
    """(FLOP, bytes) of one layer at 8 bits: x is a group's heads, heads, tokens, or ranks."""
    cache, context, one = Format.of(bytes=1.0, bits=8.0), jnp.asarray(4096.0), jnp.asarray(1.0)
    if kind == "group":
        core = GroupedQuery.of(query_heads=1, kv_heads=1, head_width=128, value_width=128)
        core = core.replace(query_heads=x)
    elif kind == "heads":  # the report counts 4 FLOP per byte of latent: no rotary part
        core = Latent.of(
            query_heads=1, nope_width=128, rope_width=0, value_width=128, kv_rank=512
        ).replace(query_heads=x)
    else:
        tokens = x if kind == "batch" else 128.0 * x  # 128 requests a rank
        experts, active, elements = 256.0, 8.0, 3.0 * 7168.0 * 2048.0
        return 2.0 * tokens * active * elements, experts * elements * one
    return att.of(core).absorbed_flops(one, context), att.of(core).read_bytes(cache, context)


def volume(kind: str, x: Array) -> Array:
    """Pope's volumes: 64 chips of PaLM 540B (F = 4 E), x the rows, or the chips gathered over."""
    chips, width, hidden = (jnp.asarray(v) for v in (64.0, 18432.0, 73728.0))
    if kind == "rows":
        return stationary_volume(x, chips, width, hidden)
    return weight_gathered_volume(x, jnp.asarray(65536.0), chips, width, hidden)


@spec
class Toll(Estimator):
    """A token costs the rent of 2 N FLOP at a share of the chip's 16-bit rate; prompts nothing."""

    share: Array = number("of the chip's rate", kind="fraction", high=1, default=0.5)

    def estimate(self, arch: Any, hardware: Any, workload: Any, plan: Any) -> Estimate:
        tpot = 2.0 * active_parameters(arch) / (self.share * hardware.chip.flops_16)
        toll = life(1e6 * tpot / 3600.0, tpot, 0.0 * tpot, 1.0 + tpot, hardware.price)
        return toll.replace(input_cost=0.0 * tpot)


def hardware(**changes: float) -> Any:
    return toy.hardware(memory=1e6).replace(**changes)
