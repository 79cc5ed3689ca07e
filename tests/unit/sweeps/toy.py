"""A theory that compiles at once, with many ties: what sweeps are tried on."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import infer_jax as ij
from infer_jax.estimators import Estimate, Estimator, Limit, Phase
from infer_jax.specs import (
    Architecture,
    Block,
    Chip,
    Dense,
    Hardware,
    Hierarchy,
    Plan,
    Workload,
    number,
    spec,
)
from infer_jax.sweeps import Space, SweepResult


@spec
class Toy(Estimator):
    """tpot = scale (1 + |batch - 5| + tp) / speed of the chip, coarse on purpose."""

    table = "toy"
    scale: Any = number("seconds", unit="s", kind="time", default=1.0)

    @property
    def searches(self) -> bool:
        """It takes any split."""
        return True

    def estimate(self, arch: Any, hardware: Any, workload: Any, plan: Any) -> Estimate:
        rate = hardware.chip.memory_bandwidth
        tpot = self.scale * (1.0 + jnp.abs(workload.batch - 5.0) + 7.0 / plan.tp) / rate
        chips = plan.tp * plan.pp
        cost = (
            chips
            * hardware.price
            / (1.0 + jnp.mod(workload.batch * 3.0 + plan.pp + workload.isl, 7.0))
        )
        need = workload.batch * arch.width
        phase = Phase(
            time=tpot,
            terms={"memory": tpot},
            limits={"memory": Limit(need=need, capacity=hardware.chip.memory * chips)},
            mfu=jnp.mod(workload.isl * 5.0 + plan.tp, 11.0) / 11.0,
            layout={},
        )
        return Estimate(
            ttft=tpot * 2.0 + workload.isl + (workload.osl - 2.0),
            tpot=tpot,
            chips=chips,
            speed=1.0 / tpot,
            throughput=workload.batch / tpot / chips,
            cost=cost,
            input_cost=cost,
            prefill=phase,
            decode=phase,
        )


def arch(width: float = 4.0, blocks: int = 1) -> Architecture:
    block = Block.of(count=2, attention=None, feedforward=Dense.of(width=4, inward=2))
    return Architecture.of(width=width, vocabulary=8, tied=0, blocks=(block,) * blocks)


def hardware(bandwidth: float = 1.0, price: float = 2.0, memory: float = 40.0) -> Hardware:
    chip = Chip.of(flops_16=1, flops_8=1, flops_4=1, memory=memory, memory_bandwidth=bandwidth)
    network = Hierarchy.of(domain=8, domain_bandwidth=1, network_bandwidth=1)
    return Hardware.of(chip=chip, network=network, price=price)


def workload(**axes: Any) -> Workload:
    return Workload.of(isl=1, osl=2).replace(**axes)


def plan(**axes: Any) -> Plan:
    return Plan.of().replace(**axes)


def brute(keys: np.ndarray, ok: np.ndarray, group: np.ndarray | None = None) -> list[int]:
    """The frontier by comparing all with all; of equals the first."""
    group = np.zeros(keys.shape[1], int) if group is None else group
    kept = []
    for i in np.flatnonzero(ok):
        same = ok & (group == group[i])
        as_good = same & np.all(keys <= keys[:, i : i + 1], axis=0)
        better = as_good & np.any(keys < keys[:, i : i + 1], axis=0)
        equal = as_good & ~better
        if not better.any() and np.flatnonzero(equal)[0] == i:
            kept.append(int(i))
    return kept


def sweep(estimator: Any, space: Space, keep: Any, **options: Any) -> SweepResult:
    """``ij.sweep`` in the order of what a test varies."""
    return ij.sweep(space, keep=keep, estimator=estimator, **options)
