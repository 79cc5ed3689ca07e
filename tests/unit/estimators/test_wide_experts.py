"""What changes in a pass where experts are on many ranks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.estimators.serving import (
    Deployment,
    Serving,
    WideExperts,
    memory,
    pass_terms,
    shape,
)
from tests.contract.cases import mixture, nodes

SHAPE, ONE = shape(mixture()), jnp.asarray(1.0)


def context(**wide):
    ranks = {"tp": 1, "attention_dp": 16, "ep": 16}
    how = WideExperts.of(**wide)
    return Serving.of().context(SHAPE, nodes(), Deployment.of(**ranks, wide=how)), how


@pytest.mark.parametrize("kernels", ["normal", "low_latency"])
def test_of_two_micro_batches_one_hides_what_the_other_sends(kernels):
    """Between the longer of computing and sending, and their sum; processors hand over, too."""
    c, how = context(kernels=kernels, two_batch=1)
    taken = 24 / 132 if kernels == "normal" else 0.0

    def added(computing, exchange):
        return pass_terms.exposed_exchange(c, how, computing, exchange)

    for computing, exchange in ((3.0, 1.0), (1.0, 3.0), (2.0, 2.0), (0.0, 1.0), (1.0, 0.0)):
        point = jnp.asarray(computing), jnp.asarray(exchange)
        whole = computing + float(added(*point))
        assert max(computing + taken * exchange, exchange) <= whole * (1 + 1e-6)
        assert whole <= computing + (1.0 + taken) * exchange + 1e-6
        assert np.all(np.isfinite(jax.grad(added, argnums=(0, 1))(*point)))
    assert pass_terms.exposed_exchange(*context(kernels=kernels), ONE, 2.0 * ONE) == 2.0


def test_copies_even_out_ranks_and_take_memory():
    (none, _), (some, _) = both = context(), context(copies=8)
    uses = jnp.asarray(1e6)
    uneven, even = (pass_terms.load_ratio(c, how, uses, c.plan.ep) for c, how in both)
    layers = none.shape.layers
    mixed = np.asarray(layers.mixture) > 0.5
    assert np.all(np.asarray(even)[mixed] < np.asarray(uneven)[mixed]) and np.all(even >= 1.0)
    server = memory.server(some, memory.arriving(some))
    held = memory.account_inputs(some, server)[0].layers.experts - layers.experts
    np.testing.assert_allclose(held, 8.0 * layers.mixture)
