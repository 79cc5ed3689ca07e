"""The verbs: one public function for each question, which the command calls and prints.

Their answers are attributes of this package, imported on first use: listing verbs imports no JAX.
"""

from infer_jax.on_demand import attach_stub

__getattr__, __dir__ = attach_stub(__name__)
