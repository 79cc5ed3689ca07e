"""Sensitivity and co-design: elasticities, and designs by gradient ascent."""

from infer_jax.on_demand import attach_stub

__getattr__, __dir__ = attach_stub(__name__)
