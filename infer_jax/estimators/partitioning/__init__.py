"""Partitioned Transformer inference on a torus (Pope et al. 2022, arXiv 2211.05102)."""

from infer_jax.estimators.partitioning.model import Partitioning as Partitioning
from infer_jax.estimators.partitioning.slices import (
    ATTENTION as ATTENTION,
    LAYOUTS as LAYOUTS,
    TRIED as TRIED,
    Slice as Slice,
    arrangements as arrangements,
    factorisations as factorisations,
    slice_of as slice_of,
)
