"""Speculative decoding: what drafts, and how much of it is accepted."""

from typing import NamedTuple

import numpy as np

from infer_jax.specs import Architecture

MAX_DRAFTS = 5  # tokens drafted for a pass at most


class Drafting(NamedTuple):
    """The drafter (``None``: the model's own heads), acceptance by position, and notes.

    ``count``: tokens drafted for each request in a pass of a replay.
    """

    draft: Architecture | None
    acceptance: np.ndarray | float
    notes: list[str]
    count: int = 0

    @property
    def words(self) -> str:
        """What a pass of a replay does, in words."""
        count = "1 draft" if self.count == 1 else f"{self.count} drafts"
        return f"a pass verifies {count} and one token more of each request that decodes"

    @property
    def counts(self) -> list[float]:
        """The numbers of drafted tokens to try, 0 among them."""
        curve = np.asarray(self.acceptance)
        most = MAX_DRAFTS if curve.ndim == 0 else min(MAX_DRAFTS, len(curve))
        return [float(d) for d in range(most + 1)]
