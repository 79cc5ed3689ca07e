"""Estimators: one module per published model and one of our own, each an assembly of laws."""

from infer_jax.on_demand import attach_stub

__getattr__, __dir__ = attach_stub(__name__)
