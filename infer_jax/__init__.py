"""A differentiable model of LLM inference: latency, memory and cost as pure JAX functions.

>>> import infer_jax as ij
>>> one = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, batch=32)
>>> bool(one.estimate.feasible), 15e-3 < float(one.estimate.tpot) < 25e-3
(True, True)
"""

from infer_jax.on_demand import attach_stub

__version__ = "0.1.0"
__getattr__, __dir__ = attach_stub(__name__)
