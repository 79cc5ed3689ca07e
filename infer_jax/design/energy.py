"""Energy of output tokens: the estimate's own, or the upper bound by board power."""

from jax import Array

from infer_jax.estimators.estimate import Estimate
from infer_jax.physics.energy import joules_per_million_tokens
from infer_jax.specs import Hardware, Workload


def energy(estimate: Estimate, hardware: Hardware, workload: Workload) -> Array:
    """Energy per million output tokens, J: the estimate's own, or that of full board power.

    An estimate without one is taken to draw the full board power all the time: an upper
    bound, as chips that wait for memory draw less. 0 where the profile has no power.
    """
    own = getattr(estimate, "energy", None)
    if own is not None:
        return own
    return joules_per_million_tokens(estimate.chips, hardware.power, estimate.tpot, workload.batch)
