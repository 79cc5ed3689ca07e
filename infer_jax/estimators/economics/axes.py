"""Numbers of GPUs and batches of a frontier: whole ones, or those of the economics paper."""

from collections.abc import Sequence

import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.compiling import once
from infer_jax.estimators.economics.grid import paper_axes
from infer_jax.estimators.economics.model import Economics
from infer_jax.physics import decoder
from infer_jax.physics.feedforward import floored_sparsity
from infer_jax.specs import Architecture, Feedforward, Hardware, Hierarchy

DENSE = 16  # every number of GPUs up to this one is tried
LARGEST = 1024  # GPUs of the largest instance that is tried where no total is given
PER_OCTAVE = 8  # GPUs tried per doubling beyond
Values = Float[np.ndarray, " values"]
# every whole number up to 64, then 24 per doubling
BATCHES: Values = np.unique(
    np.concatenate([np.arange(1.0, 65.0), np.round(np.geomspace(64, 2**18, 12 * 24 + 1))])
)


def searched_layouts(chips: Values) -> Float[np.ndarray, "layouts 3"]:
    """(TP, PP, EP) for an estimator that finds the split of each number of GPUs itself."""
    return np.stack([chips, np.ones_like(chips), np.ones_like(chips)], axis=1)


def gpu_counts(hardware: Hardware, total: float | None = None) -> Values:
    """Numbers of GPUs to try: whole ones up to ``total``, and whole fast domains."""
    total = float(LARGEST if total is None else total)
    octaves = max(np.log2(total / DENSE), 0.0)
    steps: Values = np.arange(1.0, octaves * PER_OCTAVE + 1.0) / PER_OCTAVE
    counts: list[Values] = [np.arange(1.0, DENSE + 1.0), DENSE * 2.0**steps, np.array([total])]
    if isinstance(hardware.network, Hierarchy):  # whole domains: 72, 144, ... of an NVL72
        domain = float(hardware.network.domain)
        counts.append(domain * 2.0 ** np.arange(0.0, max(np.log2(total / domain), -1.0) + 1.0))
    chips: Values = np.unique(np.round(np.concatenate(counts)))
    return chips[chips <= total]


def paper_grid(
    economics: Economics, arch: Architecture, hardware: Hardware
) -> tuple[Values, Values]:
    """(GPUs, batches) of the economics paper: real numbers from the GPUs that hold the weights."""
    stored = once(_stored, economics, arch)
    feeds = [b.feedforward for b in arch.blocks if b.feedforward is not None]
    largest = max((float(s) for s in once(_sparsities, feeds)), default=1.0)
    return paper_axes(float(stored) / float(hardware.chip.memory), largest)


def _stored(economics: Economics, arch: Architecture) -> Array:
    """Bytes of the weights, as the estimator counts projections."""
    return decoder.total(decoder.weight_bytes(arch, economics.laws.projections).values())


def _sparsities(feeds: Sequence[Feedforward]) -> list[Array]:
    """Experts per active expert of each feedforward."""
    return [floored_sparsity(x) for x in feeds]
