"""Profiles, models and files from outside, checked once and turned into specs."""

from infer_jax.catalog.models import (
    Model as Model,
    list_models as list_models,
    load_model as load_model,
)
from infer_jax.catalog.systems import (
    System as System,
    list_systems as list_systems,
    load_system as load_system,
)
