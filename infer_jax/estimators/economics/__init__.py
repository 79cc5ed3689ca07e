"""Inference economics of language models (Erdil 2025, arXiv 2506.04645)."""

from infer_jax.estimators.economics.forward_pass import Split as Split
from infer_jax.estimators.economics.grid import (
    Grid as Grid,
    GridInputs as GridInputs,
    evaluate as evaluate,
    evaluate_layouts as evaluate_layouts,
    paper_axes as paper_axes,
)
from infer_jax.estimators.economics.model import Economics as Economics
