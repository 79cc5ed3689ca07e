"""MEASUREMENTS: residuals, fits and their uncertainty. Every fit of the project lives here."""

from infer_jax.calibrate.bands import Band as Band, bands as bands, left_out as left_out
from infer_jax.calibrate.checks import Check as Check, predictive_checks as predictive_checks
from infer_jax.calibrate.cross_validation import (
    Held as Held,
    cross_validate as cross_validate,
    held_out as held_out,
    labelled as labelled,
    random_groups as random_groups,
)
from infer_jax.calibrate.fit import Fit as Fit, at as at, fit as fit
from infer_jax.calibrate.identifiability import (
    Identifiability as Identifiability,
    Identified as Identified,
    identifiability as identifiability,
)
from infer_jax.calibrate.information import Worth as Worth, next_measurements as next_measurements
from infer_jax.calibrate.linearised import Linearised as Linearised
from infer_jax.calibrate.losses import (
    CAUCHY as CAUCHY,
    SOFT_L1 as SOFT_L1,
    Loss as Loss,
    robust as robust,
)
from infer_jax.calibrate.offsets import Offsets as Offsets, offsets as offsets
from infer_jax.calibrate.parameters import Parameters as Parameters, parameters as parameters
from infer_jax.calibrate.problem import (
    Prior as Prior,
    Problem as Problem,
    residuals as residuals,
)
from infer_jax.calibrate.residual import Residual as Residual, learn_residual as learn_residual
from infer_jax.calibrate.scores import (
    Score as Score,
    interval_score as interval_score,
    score as score,
    spearman as spearman,
)
from infer_jax.calibrate.uncertainty import (
    bootstrap as bootstrap,
    correlation as correlation,
    covariance as covariance,
    interval as interval,
)
