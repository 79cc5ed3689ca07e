"""Which coefficients runs of one server can fit, and how servers scatter about the shipped ones."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from infer_jax.catalog.published import serving_coefficients
from infer_jax.estimators.serving.context import Shape
from infer_jax.specs import Plan

# typical log error of a run once its server's offset is known, of TPOT and TTFT. Source: 5.4 and
# 18.0 % in the median over the 41 servers of serving.toml, divided by 0.6745 (the quartile of a
# normal law)
RUN_ERRORS = {"tpot": 0.08, "ttft": 0.25}
# scatter of a server's factor over that error: k runs then weigh k / (k + 0.5) against the prior
FACTORS = {"tpot": "decode_factor", "ttft": "first_factor"}
FACTOR_SCATTER = math.sqrt(2.0)
# the interval of a coefficient is that of the mean over servers; a single server scatters wider by
# the square root of their number, 41 servers under 3 engines, but by at most a factor e
SERVER_SCATTER, MAX_SPREAD = math.sqrt(41 / 3), 1.0
REACH = 1.2815515655446004  # deviations from the middle to either end of an 80 % interval
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


def ladder(
    values: Mapping[str, float],
    engine: str,
    generation: str,
    model: Shape,
    plans: Sequence[Plan],
    outputs: Collection[str],
) -> tuple[str, ...]:
    """Factors on the measured ``outputs``, then those of ``LADDER`` that this server uses.

    ``values``: the coefficients by dotted path; one that is 0 is not used by this variant.
    """
    layers = model.layers
    sizes = {
        float(bits): float(elements)
        for weights in (layers.projections, layers.routed)
        for bits, elements in zip(np.ravel(weights.bits), np.ravel(weights.elements), strict=True)
    }
    bits = f"{max(sizes, key=lambda bits: sizes[bits]):g}"
    fitted = {*serving_coefficients(), *SETTINGS}
    mixture = bool(np.any(np.asarray(layers.mixture) > 0))
    names = [x.format(engine=engine, generation=generation, bits=bits) for x in LADDER]
    return (
        *(factor for output, factor in FACTORS.items() if output in outputs),
        *(
            name
            for name in names
            if name in fitted and values.get(name, 0.0) > 0.0
            if mixture or not name.endswith(MIXTURE)
            if name != "link" or any(float(plan.instance) > 1.0 for plan in plans)
            if name != "quantised_gap" or float(model.quantised) > 0.0
        ),
    )


def spreads() -> dict[str, float]:
    """The deviation of the logarithm of each coefficient from server to server."""
    factors = {name: FACTOR_SCATTER * RUN_ERRORS[output] for output, name in FACTORS.items()}
    fitted: dict[str, float] = {}
    for name, known in serving_coefficients().items():
        deviation = math.log(known.high / known.low) / (2.0 * REACH)
        fitted[name] = min(SERVER_SCATTER * deviation, MAX_SPREAD)
    return {**factors, **fitted, **SETTINGS}
