"""Which five spaces of ten million points and more are searched, with which estimators?"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.catalog import load_model, load_system
from infer_jax.design import QualityWrapper
from infer_jax.estimators import Estimator, Speculative, Wrapper, make
from infer_jax.physics import decoder
from infer_jax.specs import Plan, Workload, number, part, spec
from infer_jax.sweeps import Axis, Best, Constraint, Space

ESTIMATORS = ("economics.planned", "kernels")
SYSTEM = "h800_sxm"  # the one profile with curves for both
BLOCK = "arch.blocks.0"


class Task(NamedTuple):
    """A space, its estimator, and what is best in it."""

    name: str
    estimator_name: str
    estimator: Any
    space: Space
    keep: Best

    @property
    def size(self) -> int:
        """Points of the grid."""
        count = 1
        for axis in self.space.axes.values():
            count *= len(axis)
        return count


@spec
class Rippled(Wrapper):
    """An estimator whose cost has planted local optima: ripples in the logarithm of three numbers.

    cost (1 + depth sum of sin^2(pi waves log2(x / centre))), x the width, the feedforward's width
    and the batch. No physics: a test of the search.
    """

    target: Estimator = part("the estimator")
    depth: Array = number("height of a ripple", kind="fraction", default=0.3)
    waves: Array = number("ripples in a doubling", kind="size", default=1.5)

    def estimate(self, arch: Any, hardware: Any, workload: Any, plan: Any) -> Any:
        """The estimate, its cost rippled."""
        priced = self.target.estimate(arch, hardware, workload, plan)
        numbers = (
            (arch.width, 3712.0),
            (arch.blocks[0].feedforward.width, 13312.0),
            (workload.batch, 96.0),
        )
        ripple = sum(
            (jnp.sin(jnp.pi * self.waves * jnp.log2(x / centre)) ** 2 for x, centre in numbers),
            start=jnp.asarray(0.0),
        )
        return priced.replace(cost=priced.cost * (1.0 + self.depth * ripple))


def _estimator(name: str) -> Any:
    return make(name, load_system(SYSTEM).coefficients)


def _judged(name: str, target: Any) -> QualityWrapper:
    return QualityWrapper.of(target=target)


def dense(estimator_name: str) -> Task:
    """A dense model of the 8B class: its shape, its split and its batch."""
    axes = {
        "arch.width": Axis.integers(2048, 6144, 128),
        f"{BLOCK}.count": Axis.integers(16, 56, 2),
        f"{BLOCK}.attention.query_heads": Axis.integers(16, 64, 8),
        f"{BLOCK}.attention.kv_heads": Axis.values(2, 4, 8, 16),
        f"{BLOCK}.feedforward.width": Axis.integers(4096, 24576, 1024),
        "workload.batch": Axis.values(8, 16, 32, 64, 96, 128, 192, 256, 384, 512),
        "plan.tp": Axis.values(1, 2, 4, 8),
    }
    where = (
        Constraint(value="parameters", at_least=7.8e9, at_most=8.3e9),
        Constraint(value="aspect", at_least=64, at_most=160),
        Constraint(value=f"{BLOCK}.attention.kv_heads", divides=f"{BLOCK}.attention.query_heads"),
    )
    return _task(
        "dense", estimator_name, "llama-3.1-8b", axes, where, Best("cost", under={"tpot": 0.012})
    )


def mixture(estimator_name: str) -> Task:
    """A mixture of experts of fixed active parameters: experts, their width, depth and split."""
    layer = f"{BLOCK}.feedforward"
    axes = {
        "arch.width": Axis.integers(1024, 4096, 256),
        f"{BLOCK}.count": Axis.integers(24, 64, 8),
        f"{layer}.experts": Axis.integers(32, 512, 32),
        f"{layer}.active": Axis.integers(1, 16),
        f"{layer}.width": Axis.integers(256, 2048, 64),
        "workload.batch": Axis.values(64, 128, 256, 512, 1024, 2048, 4096),
        "plan.ep": Axis.values(1, 2, 4, 8, 16, 32),
    }
    where = (
        Constraint(value="active", at_least=3.2e9, at_most=3.5e9),
        Constraint(value="parameters", at_least=29e9, at_most=32e9),
        Constraint(value="plan.ep", divides=f"{layer}.experts"),
    )
    keep = Best("cost", under={"tpot": 0.02})
    return _task("mixture", estimator_name, "qwen3-30b-a3b", axes, where, keep)


def deployment(estimator_name: str) -> Task:
    """How a large mixture is laid out, and the batch, at a speed."""
    axes = {
        "workload.batch": Axis.integers(1, 49152),
        "plan.tp": Axis.values(1, 2, 4, 8, 16),
        "plan.pp": Axis.values(1, 2, 4, 8, 16, 32, 47),
        "plan.ep": Axis.values(1, 2, 4, 8, 16, 32, 64, 128),
    }
    where = (Constraint(product=("plan.tp", "plan.pp", "plan.ep"), at_most=512),)
    keep = Best("cost", under={"tpot": 0.05})
    return _task("deployment", estimator_name, "qwen3-235b-a22b", axes, where, keep)


def drafting(estimator_name: str) -> Task:
    """A draft model for Llama 3 70B: its shape, on an acceptance that grows with its size."""
    target = load_model("llama-3.1-70b").architecture
    draft = load_model("llama-3.2-1b").architecture
    inner = Speculative.bonus(_estimator(estimator_name), draft, 0.8)
    block = "estimator.target.draft.blocks.0"
    axes = {
        "estimator.target.draft.width": Axis.integers(512, 4096, 64),
        f"{block}.count": Axis.integers(1, 32),
        f"{block}.feedforward.width": Axis.integers(1024, 14336, 512),
        f"{block}.attention.query_heads": Axis.values(8, 16, 24, 32),
        f"{block}.attention.kv_heads": Axis.values(1, 2, 4, 8),
        "workload.batch": Axis.values(1, 2, 4, 8, 16, 32, 64, 128),
        "plan.tp": Axis.values(2, 4, 8),
        "estimator.target.acceptance": Axis.dependent(_acceptance),
    }
    where = (
        Constraint(value=f"{block}.attention.kv_heads", divides=f"{block}.attention.query_heads"),
    )
    system = load_system(SYSTEM)
    space = Space(
        target, system.hardware, Workload.of(isl=2048, osl=512), Plan.of(), axes=axes, where=where
    )
    keep = Best("cost", under={"tpot": 0.02})
    return Task("drafting", estimator_name, QualityWrapper.of(target=inner), space, keep)


def _acceptance(_: Any, point: Any) -> Array:
    """0.9 N / (N + 3e8), N the draft's parameters without its tables: a made-up test curve."""
    counts = decoder.parameters(point.estimator.target.draft)
    size = counts["attention"] + counts["feedforward"]
    return 0.9 * size / (size + 3e8)


def planted(estimator_name: str) -> Task:
    """The dense space with planted local optima."""
    task = dense(estimator_name)
    estimator = QualityWrapper.of(target=Rippled.of(target=_estimator(estimator_name)))
    return task._replace(name="planted", estimator=estimator)


def _task(
    name: str,
    estimator_name: str,
    model: str,
    axes: dict[str, Axis],
    where: tuple[Constraint, ...],
    keep: Best,
) -> Task:
    arch = load_model(model).architecture
    system = load_system(SYSTEM)
    work = Workload.of(isl=2048, osl=512)
    space = Space(arch, system.hardware, work, Plan.of(), axes=axes, where=where)
    return Task(
        name, estimator_name, QualityWrapper.of(target=_estimator(estimator_name)), space, keep
    )


SPACES: dict[str, Callable[[str], Task]] = {
    "dense": dense,
    "mixture": mixture,
    "deployment": deployment,
    "drafting": drafting,
    "planted": planted,
}
