"""A slope at a bound is that of the side that is allowed, and not half of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from tests.unit.estimators.compiled import quickly

STEP = 1e-5
WORK = ij.Workload.of(isl=1024, osl=128, batch=16)
# estimator, model, system, tensor parallel degree, and the number at its bound of 1
CASES = (
    ("economics.planned", "llama-3.1-8b", "h100_sxm", 2.0, "pp"),
    ("economics.planned", "deepseek-v3", "h800_sxm", 8.0, "pp"),
    ("serving", "llama-3.1-8b", "h100_sxm", 2.0, "pp"),
    ("kernels", "palm-540b", "h800_sxm", 8.0, "kv_heads"),
    ("serving", "palm-540b", "h800_sxm", 8.0, "kv_heads"),
    ("economics.planned", "palm-540b", "h800_sxm", 8.0, "kv_heads"),
)


@quickly
def times(estimator, *asked, along):
    """TTFT and TPOT, and their slopes along a direction of the model and the plan.

    Reverse mode agrees with this one by a law of the contract.
    """
    arch, hardware, plan = asked

    def both(arch, plan):
        answer = estimator.estimate(arch, hardware, WORK, plan)
        return jnp.stack([answer.ttft, answer.tpot])

    return jax.jvp(both, (arch, plan), along)


@pytest.mark.parametrize(("name", "model", "system", "tp", "leaf"), CASES)
def test_slopes_at_one(name, model, system, tp, leaf):
    machine, arch = ij.load_system(system), ij.load_model(model).architecture
    estimator, plan = ij.make(name, machine.coefficients), ij.Plan.of(tp=tp)
    still, aside = jax.tree.map(np.zeros_like, (arch, plan))
    if leaf == "pp":
        aside = aside.replace(pp=np.ones(()))
    else:
        still = still.at({f"blocks.{i}.attention.kv_heads": 1.0 for i in range(len(arch.blocks))})
    along = still, aside
    moved = jax.tree.map(lambda x, d: x + STEP * d, (arch, plan), along)
    value, slope = times(estimator, arch, machine.hardware, plan, along=along)
    allowed = (
        times(estimator, moved[0], machine.hardware, moved[1], along=along)[0] - value
    ) / STEP
    for ours, theirs, seconds in zip(slope, allowed, value, strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=2e-3, abs=1e-4 * float(seconds))
