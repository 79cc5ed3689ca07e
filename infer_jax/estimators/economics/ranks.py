"""Over which chips is a pass laid out? One layout in the degrees of the economics paper."""

from typing import NamedTuple

from jax import Array


class RankLayout(NamedTuple):
    """One layout: chips of a stage, stages, attention split, 1 for 2-D slices and 0 for 1-D,
    expert ranks (None: all it can)."""

    stage: Array
    stages: Array
    split: Array
    two_d: Array
    experts: Array | None = None
