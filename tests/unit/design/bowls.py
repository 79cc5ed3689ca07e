"""Theories that compile at once, whose optima are known: what designs are tried on."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators import Estimate, Estimator, Limit, Phase
from infer_jax.physics.decoder import active_parameters
from infer_jax.specs import number, spec
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
