"""Checks that measured runs are of the given model and system."""

from collections.abc import Sequence

from infer_jax.catalog.measurements import Run
from infer_jax.catalog.models import list_models, model_named
from infer_jax.catalog.systems import list_systems, system_named
from infer_jax.design.what_ifs import stored_bytes
from infer_jax.errors import InputError
from infer_jax.results import option
from infer_jax.verbs.inputs import Setup

# stored bytes of a weight in formats that files name
STORED = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "w8a8": 1.0}
STORED |= dict.fromkeys(("fp4", "nvfp4", "mxfp4", "int4", "awq", "gptq", "w4a16"), 0.55)
DIFFERENT = 1.5  # ratio of stored bytes from which on two formats are not the same


def agree(runs: Sequence[Run], setup: Setup) -> None:
    """Check that runs are of the model, system and number format in question.

    Raises:
        InputError: a run that says so.
    """
    for run in runs:
        model, system = model_named(run.model), system_named(run.system)
        if model is not None and setup.model.name in list_models() and model != setup.model.name:
            allowed = f"{setup.model.name}, the model of {option('config')}; one model to a profile"
            raise InputError(run.place, "model", run.model, allowed)
        name = setup.system.name
        if system is not None and name in list_systems() and system != name:
            raise InputError(run.place, "system", run.system, f"{name}, by {option('hardware')}")
        stored = STORED.get((run.precision or "").lower())
        own = stored_bytes(setup.model.architecture)
        if stored is not None and not 1.0 / DIFFERENT < stored / own < DIFFERENT:
            allowed = f"{own:.2g} bytes a weight, as of {option('config')}; see {option('quant')}"
            raise InputError(run.place, "precision", run.precision, allowed)
