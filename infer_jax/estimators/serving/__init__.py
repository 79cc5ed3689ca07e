"""Serving: what real engines do to a model's requests (ours, fitted to measured servers).

How a TTFT comes about: ``model`` chooses coefficients, chip and engine (``context``) and asks
``closed_loop`` or ``open_loop`` of ``loads``; these ask ``passes`` what decode steps and prompts
take, sums of ``pass_terms`` and of launches. How long arrivals wait is a law of
``physics/scheduling``, whose ``open`` adds up their TTFT: ``occupancy`` says how many run,
``prefill_delay`` how long they wait for the running step and for prompts ahead; its parts are the
terms of ``loads.open_ttft_terms``. ``server_estimate`` makes throughput, price, power and limits
of the times. ``price`` is one pass of a replayed scheduler.
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
