"""The longest stage of a pipeline, against layers dealt out one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.estimators.serving import Deployment
from infer_jax.physics.pipelining import longest


@pytest.mark.parametrize("layers", [1, 7, 61, 80, 94])
def test_it_is_that_of_layers_dealt_out_in_turn(layers):
    for stages in range(1, 17):
        dealt = np.bincount(np.arange(layers) % stages, minlength=stages)
        result = float(longest(jnp.asarray(float(layers)), jnp.asarray(float(stages))))
        assert result * layers / stages == pytest.approx(dealt.max(), rel=1e-6)


def test_a_step_has_no_slope():
    for point in ((61.0, 4.0), (61.3, 2.2), (0.0, 1.0), (3.0, 8.0)):
        slopes = jax.grad(longest, (0, 1))(*map(jnp.asarray, point))
        assert [float(x) for x in slopes] == [0.0, 0.0]


def test_a_pipeline_goes_at_the_pace_of_its_longest_stage(x64):
    """61 layers in 4 stages decode as 64 do, and the fullest chip holds as much; 64 are even."""
    model, system = ij.load_model("deepseek-r1").architecture, ij.load_system("h200_sxm")
    first, rest = model.blocks
    even = model.replace(blocks=(first, rest.with_(count=61.0)))
    uneven = even.replace(blocks=(first, rest.with_(count=58.0)))
    estimator, plan = ij.make("serving", system.coefficients), Deployment.of(tp=8, pp=4)
    work = ij.Workload.of(isl=2048, osl=256, batch=64)
    estimate = jax.jit(lambda arch: estimator.estimate(arch, system.hardware, work, plan))
    few, many = estimate(uneven), estimate(even)
    # the three dense layers are dealt out with the others
    assert float(few.tpot) == pytest.approx(float(many.tpot), rel=0.01)
    need = [float(x.decode.limits["memory"].need) for x in (few, many)]
    assert need[0] == pytest.approx(need[1], rel=0.01)
