from infer_jax.catalog.published.fitted import (
    ErrorLaw as ErrorLaw,
    Errors as Errors,
    Fitted as Fitted,
    Measured as Measured,
    OperatorPrior as OperatorPrior,
    Within as Within,
    facts as facts,
    law_of as law_of,
    laws as laws,
    operator_priors as operator_priors,
    power_errors as power_errors,
    power_shares as power_shares,
    serving_coefficients as serving_coefficients,
    serving_errors as serving_errors,
    serving_measured as serving_measured,
    unseen as unseen,
    unseen_errors as unseen_errors,
    widen_bands as widen_bands,
)
from infer_jax.catalog.published.papers import (
    economics_hardware as economics_hardware,
    economics_model as economics_model,
    kernels_constants as kernels_constants,
)
from infer_jax.catalog.published.tables import (
    MicroBenchmark as MicroBenchmark,
    measured_rates as measured_rates,
)
