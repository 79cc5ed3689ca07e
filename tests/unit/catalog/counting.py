"""Parameters of an architecture by the package's laws, which the counts of modules judge."""

import jax

from infer_jax.physics import decoder
from infer_jax.specs import Architecture


def parameters(arch: Architecture, active: bool = False) -> float:
    """All parameters of an architecture, or those one token uses."""
    with jax.enable_x64(True):
        if active:
            return float(decoder.active_parameters(arch))
        return float(decoder.total(decoder.parameters(arch).values()))
