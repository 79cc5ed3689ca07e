"""The coefficients of the serving model that runs of one server can fit, and their priors."""

import math
from collections.abc import Sequence

import numpy as np

from infer_jax.calibration.problem import Prior
from infer_jax.calibration.runs import InstanceLoad
from infer_jax.calibration.uncertainty import QUANTILES
from infer_jax.catalog.published import serving_coefficients
from infer_jax.errors import InputError
from infer_jax.estimators.serving import ENGINES, GENERATIONS, Serving, shape
from infer_jax.specs import Architecture, leaves

# typical log error of a run once its server's offset is known: TPOT, TTFT. Source: 5.4 and 18.0 %
# in the median over the 41 servers of serving.toml, divided by 0.6745 (the quartile of a normal
# law)
SCALES = (0.08, 0.25)
# scatter of a server's factor over that error: k runs then weigh k / (k + 0.5) against the prior
FACTOR = math.sqrt(2.0)
# the interval of a coefficient is that of the mean over servers; a single server scatters wider by
# the square root of their number, 41 servers under 3 engines, but by at most a factor e
SCATTER, WIDEST = math.sqrt(41 / 3), 1.0
FACTORS = ("decode_factor", "first_factor")
# a setting, not a fit: relative spread of the shares of memory that servers are started with
# (0.85 to 0.95; docs/memory.md)
SETTINGS = {"usable_memory": 0.06}
# coefficients after the factors, about in the order in which they helped on other rows of a server
# (5 rows of each of 37 servers of silicon_sample.csv fitted, the others predicted)
LADDER = (
    "{engine}.layer_gap",
    "{generation}.gemm_{bits}",
    "link",
    "{engine}.front",
    "quantised_gap",
    "usable_memory",
    "expert_kernels",
    "grouped",
    "{engine}.sequence_time",
    "{engine}.eager",
    "weight_read",
    "cache_read",
)
MIXTURE = ("expert_kernels", "grouped")


def coefficients_to_fit(
    serving: Serving, arch: Architecture, loads: Sequence[InstanceLoad], times: np.ndarray
) -> tuple[str, ...]:
    """Coefficients to fit: factors on TPOT and TTFT, then ``LADDER``, no more than ``times`` has.

    ``times``: TPOT and TTFT, 2 x runs, NaN where not measured.
    """
    seen = shape(arch)
    layers = seen.layers
    sizes = {
        float(bits): float(elements)
        for weights in (layers.projections, layers.routed)
        for bits, elements in zip(np.ravel(weights.bits), np.ravel(weights.elements), strict=True)
    }
    facts = {
        "engine": ENGINES[int(serving.engine)],
        "generation": GENERATIONS[int(serving.generation)],
        "bits": f"{max(sizes, key=lambda bits: sizes[bits]):g}",
    }
    known = {*serving_coefficients(), *SETTINGS}
    mixture = bool(np.any(np.asarray(layers.mixture) > 0))
    values = {path: float(value) for path, _, value in leaves(serving)}
    names = [name.format(**facts) for name in LADDER]
    names = [
        name
        for name in names
        # a coefficient that is 0 is not used by this estimator
        if name in known and values.get(name, 0.0) > 0.0
        if mixture or not name.endswith(MIXTURE)
        if name != "link" or any(float(x.plan.instance) > 1.0 for x in loads)
        if name != "quantised_gap" or float(seen.quantised) > 0.0
    ]
    measured = np.isfinite(times)
    factors = [name for name, row in zip(FACTORS, measured, strict=True) if row.any()]
    return (*factors, *names)[: int(measured.sum())]


def priors(serving: Serving, names: Sequence[str]) -> dict[str, Prior]:
    """The prior of each coefficient of a server: its value in ``serving`` and its scatter.

    Raises:
        InputError: a name of which nothing is known.
    """
    known, values = serving_coefficients(), {path: float(x) for path, _, x in leaves(serving)}
    scales = (FACTOR * scale for scale in SCALES)
    factors = dict(zip(FACTORS, scales, strict=True)) | SETTINGS
    priors = {}
    for name in names:
        if name not in factors and name not in known:
            raise InputError("calibrate", "parameter", name, ", ".join((*FACTORS, *known)))
        spread = factors.get(name)
        if spread is None:
            width = math.log(known[name].high / known[name].low) / (2.0 * QUANTILES[0.8])
            spread = min(SCATTER * width, WIDEST)
        priors[name] = Prior(values[name], spread)
    return priors
