"""MEASUREMENTS: residuals, fits and their uncertainty. Every fit of the project lives here."""

from infer_jax.calibrate.fit import (
    Fit as Fit,
    Prior as Prior,
    fit as fit,
    held_out as held_out,
    residuals as residuals,
)
from infer_jax.calibrate.parameters import Parameters as Parameters, parameters as parameters
from infer_jax.calibrate.uncertainty import (
    correlation as correlation,
    covariance as covariance,
    interval as interval,
)
