"""A plain plan as the plan of one estimator."""

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.estimators.kernels import KernelsPlan
from infer_jax.estimators.serving.plan import Deployment, deployment
from infer_jax.specs import Plan


def test_a_widened_plan_keeps_its_degrees_and_its_precision():
    plan = jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float32), Plan.of(tp=2, pp=3, ep=4, dp=5, layout="2d")
    )
    wide = KernelsPlan.widened(plan)
    assert [float(x) for x in (wide.tp, wide.pp, wide.ep, wide.dp, wide.layout)] == [2, 3, 4, 5, 1]
    assert float(wide.sm_share) == 1.0  # its declared default
    assert (wide.tp * wide.sm_share).dtype == jnp.float32


def test_a_plan_of_its_own_class_is_left_alone():
    own = Deployment.of(tp=2, attention_dp=4)
    assert Deployment.widened(own, attention_dp=jnp.asarray(1.0)) is own


def test_attention_groups_of_a_plain_plan_are_its_expert_ranks():
    plan = Plan.of(tp=2, ep=8)
    wide = deployment(plan)
    assert float(wide.attention_dp) == 8.0
    np.testing.assert_array_equal(wide.chips, plan.chips)
