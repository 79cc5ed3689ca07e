"""Serving: what real engines do to a model's requests (ours, fitted to measured servers).

The way of a TTFT: ``model`` chooses coefficients, chip and engine (``context``) and asks the law of
the load, of requests in flight or of arrivals (``loads``); that asks ``passes`` what decode steps
and prompts take, which are sums of ``pass_terms`` and of launches; waits come before the first
pass; and ``server_estimate`` makes throughput, price, power and limits of the times. ``price`` is
one pass as a replayed scheduler composes it.
"""

from infer_jax.estimators.serving.context import (
    Shape as Shape,
    shape as shape,
    with_formats as with_formats,
)
from infer_jax.estimators.serving.engines import (
    ENGINES as ENGINES,
    GENERATIONS as GENERATIONS,
    Engine as Engine,
    Generation as Generation,
    fitted_engine as fitted_engine,
)
from infer_jax.estimators.serving.model import Serving as Serving
from infer_jax.estimators.serving.plan import (
    Deployment as Deployment,
    ServingWorkload as ServingWorkload,
    WideExperts as WideExperts,
)
from infer_jax.estimators.serving.server_estimate import (
    Pass as Pass,
    ServerEstimate as ServerEstimate,
)
