"""Calibration: residuals, fits and their uncertainty, for every fit of the project."""

from typing import TYPE_CHECKING

from infer_jax.on_demand import on_demand

if TYPE_CHECKING:
    from infer_jax.calibration.checks import Check as Check, predictive_checks as predictive_checks
    from infer_jax.calibration.cross_validation import (
        LeftOutFold as LeftOutFold,
        cross_validate as cross_validate,
        held_out as held_out,
        labelled as labelled,
        random_groups as random_groups,
    )
    from infer_jax.calibration.error_bands import Band as Band, bands as bands, left_out as left_out
    from infer_jax.calibration.error_law import learned as learned
    from infer_jax.calibration.expected_value import (
        perfect_information as perfect_information,
        shadow_price as shadow_price,
    )
    from infer_jax.calibration.fitted_leaves import (
        Parameters as Parameters,
        parameters as parameters,
    )
    from infer_jax.calibration.fitting import Fit as Fit, at as at, fit as fit
    from infer_jax.calibration.group_offsets import Offsets as Offsets, offsets as offsets
    from infer_jax.calibration.identified import (
        Identifiability as Identifiability,
        Identified as Identified,
        identifiability as identifiability,
    )
    from infer_jax.calibration.information import (
        Worth as Worth,
        next_measurements as next_measurements,
    )
    from infer_jax.calibration.linearised import Linearised as Linearised
    from infer_jax.calibration.losses import (
        CAUCHY as CAUCHY,
        SOFT_L1 as SOFT_L1,
        Loss as Loss,
        robust as robust,
    )
    from infer_jax.calibration.problem import (
        FitProblem as FitProblem,
        Prior as Prior,
        residuals as residuals,
    )
    from infer_jax.calibration.resampling import bootstrap as bootstrap
    from infer_jax.calibration.residual import (
        Residual as Residual,
        learn_residual as learn_residual,
    )
    from infer_jax.calibration.scores import (
        Score as Score,
        interval_score as interval_score,
        score as score,
        spearman as spearman,
    )
    from infer_jax.calibration.server import calibrate_server as calibrate_server
    from infer_jax.calibration.uncertainty import (
        correlation as correlation,
        covariance as covariance,
        interval as interval,
    )

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "checks": "Check predictive_checks",
        "cross_validation": "LeftOutFold cross_validate held_out labelled random_groups",
        "error_bands": "Band bands left_out",
        "error_law": "learned",
        "expected_value": "perfect_information shadow_price",
        "fitted_leaves": "Parameters parameters",
        "fitting": "Fit at fit",
        "group_offsets": "Offsets offsets",
        "identified": "Identifiability Identified identifiability",
        "information": "Worth next_measurements",
        "linearised": "Linearised",
        "losses": "CAUCHY SOFT_L1 Loss robust",
        "problem": "FitProblem Prior residuals",
        "resampling": "bootstrap",
        "residual": "Residual learn_residual",
        "scores": "Score interval_score score spearman",
        "server": "calibrate_server",
        "uncertainty": "correlation covariance interval",
    },
)
