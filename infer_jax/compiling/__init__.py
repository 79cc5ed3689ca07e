"""Programs that run once or over few rows: compiled quickly, kept for the next process."""

from infer_jax.compiling.programs import (
    BRISK as BRISK,
    MANY as MANY,
    QUICK as QUICK,
    SLOPES as SLOPES,
    SOME as SOME,
    full as full,
    host_device as host_device,
    in_same_precision as in_same_precision,
    of_gradients as of_gradients,
    of_rows as of_rows,
    once as once,
    quick as quick,
    wide as wide,
)
from infer_jax.compiling.store import cache_folder as cache_folder, keep_programs as keep_programs
