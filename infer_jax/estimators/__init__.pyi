from infer_jax.estimators.attention_feedforward import (
    AttentionFeedforward as AttentionFeedforward,
    Halves as Halves,
)
from infer_jax.estimators.disaggregated import Disaggregated as Disaggregated, Pools as Pools
from infer_jax.estimators.economics import Economics as Economics, Split as Split
from infer_jax.estimators.estimate import (
    Estimate as Estimate,
    Limit as Limit,
    Phase as Phase,
)
from infer_jax.estimators.estimator import Estimator as Estimator, Wrapper as Wrapper
from infer_jax.estimators.known_errors import (
    Trust as Trust,
    measured_within as measured_within,
    trust as trust,
)
from infer_jax.estimators.offloading import (
    JobEstimate as JobEstimate,
    Offload as Offload,
    Offloading as Offloading,
)
from infer_jax.estimators.partitioning import Partitioning as Partitioning, Slice as Slice
from infer_jax.estimators.registry import (
    VARIANTS as VARIANTS,
    Variant as Variant,
    make as make,
)
from infer_jax.estimators.serving import (
    Deployment as Deployment,
    ServerEstimate as ServerEstimate,
    Serving as Serving,
    ServingWorkload as ServingWorkload,
)
from infer_jax.estimators.speculative import Speculative as Speculative
