from infer_jax.calibration.bounds import (
    Bounded as Bounded,
    Parameters as Parameters,
    bounded as bounded,
    parameters as parameters,
)
from infer_jax.calibration.cross_validation import (
    LeftOutFold as LeftOutFold,
    bootstrap as bootstrap,
    cross_validate as cross_validate,
    fold_masks as fold_masks,
    predict_held_out as predict_held_out,
    random_groups as random_groups,
)
from infer_jax.calibration.linearised import Linearised as Linearised
from infer_jax.calibration.posterior import (
    perfect_information as perfect_information,
    shadow_price as shadow_price,
)
from infer_jax.calibration.problem import (
    FitProblem as FitProblem,
    Prior as Prior,
    at as at,
    fit as fit,
    residuals as residuals,
)
from infer_jax.calibration.residual import Residual as Residual, learn_residual as learn_residual
from infer_jax.calibration.server import calibrate_server as calibrate_server
from infer_jax.calibration.server_fit import Worth as Worth, next_measurements as next_measurements
from infer_jax.calibration.statistics import (
    Check as Check,
    Offsets as Offsets,
    Score as Score,
    interval_score as interval_score,
    learn_error_law as learn_error_law,
    left_out_log_errors as left_out_log_errors,
    offsets as offsets,
    predictive_checks as predictive_checks,
    score as score,
    spearman as spearman,
)
from infer_jax.calibration.uncertainty import (
    CAUCHY as CAUCHY,
    SOFT_L1 as SOFT_L1,
    Fit as Fit,
    Identifiability as Identifiability,
    Identified as Identified,
    Loss as Loss,
    correlation as correlation,
    covariance as covariance,
    identifiability as identifiability,
    interval as interval,
)
