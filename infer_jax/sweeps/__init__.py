"""Sweeps: grids of configurations, and the frontier, top-k or best that is kept of them."""

from infer_jax.on_demand import attach_stub

__getattr__, __dir__ = attach_stub(__name__)
