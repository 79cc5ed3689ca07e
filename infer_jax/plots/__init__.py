"""Pictures of results, readable in greyscale."""

from infer_jax.on_demand import attach_stub

__getattr__, __dir__ = attach_stub(__name__)
