"""JAX's own functions with the types of what they are given, which their signatures lack."""

from infer_jax.typed_jax.compiled import Options as Options, jit as jit
from infer_jax.typed_jax.loops import (
    all_gather as all_gather,
    cond as cond,
    fori_loop as fori_loop,
    pmax as pmax,
    pmin as pmin,
    psum as psum,
)
