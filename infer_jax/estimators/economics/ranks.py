"""The layout of a pass over chips, in the degrees of the economics paper."""

from typing import NamedTuple

from jax import Array


class RankLayout(NamedTuple):
    """One layout: chips of a stage, stages, attention split, 1 for 2-D and 0 for 1-D tensor
    parallelism, expert ranks (None: as many as the law of the variant gives)."""

    stage: Array
    stages: Array
    split: Array
    two_d: Array
    experts: Array | None = None
