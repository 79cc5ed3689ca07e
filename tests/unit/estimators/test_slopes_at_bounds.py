"""A slope at a bound is that of the side that is allowed, and not half of it."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import infer_jax as ij

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


@pytest.mark.parametrize(("name", "model", "system", "tp", "leaf"), CASES)
def test_slopes_at_one(name, model, system, tp, leaf):
    machine, arch = ij.load_system(system), ij.load_model(model).architecture
    estimator, plan = ij.make(name, machine.coefficients), ij.Plan.of(tp=tp)

    def time(x):
        if leaf == "pp":
            answer = estimator.estimate(arch, machine.hardware, WORK, plan.replace(pp=x))
        else:
            blocks: Any = arch.blocks
            blocks = tuple(
                block.replace(attention=block.attention.replace(kv_heads=x)) for block in blocks
            )
            changed = arch.replace(blocks=blocks)
            answer = estimator.estimate(changed, machine.hardware, WORK, plan)
        return jnp.stack([answer.ttft, answer.tpot])

    # of both outputs in one program; that reverse mode agrees is a law of the contract
    both = jax.jit(lambda x: jax.jvp(time, (x,), (jnp.ones_like(x),)))
    value, slope = both(jnp.asarray(1.0))
    allowed = (both(jnp.asarray(1.0 + STEP))[0] - value) / STEP
    for ours, theirs, seconds in zip(slope, allowed, value, strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=2e-3, abs=1e-4 * float(seconds))
