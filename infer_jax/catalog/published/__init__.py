"""The constants that published models use, apart from data-sheet profiles."""

from infer_jax.catalog.published.economics import (
    economics_hardware as economics_hardware,
    economics_hardware_names as economics_hardware_names,
    economics_model as economics_model,
    economics_model_names as economics_model_names,
)
