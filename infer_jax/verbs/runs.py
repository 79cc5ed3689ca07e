"""Reads measured runs, and checks that they are of the given model and system."""

import os
from collections.abc import Sequence

from infer_jax.catalog.measurements import Run, read_runs
from infer_jax.catalog.models import list_models, model_named
from infer_jax.catalog.systems import list_systems, system_named
from infer_jax.design.what_ifs import stored_bytes
from infer_jax.errors import InputError
from infer_jax.results import option
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.options import Place, Places

# stored bytes of a weight in formats that files name
STORED = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "w8a8": 1.0}
STORED |= dict.fromkeys(("fp4", "nvfp4", "mxfp4", "int4", "awq", "gptq", "w4a16"), 0.55)
DIFFERENT = 1.5  # ratio of stored bytes from which on two formats are not the same


def runs_of(setup: Setup, files: Places, sidecar: Place | None, **facts: object) -> Sequence[Run]:
    """The runs in ``files``, of which ``facts`` holds what neither these nor ``sidecar`` say.

    Raises:
        InputError: files that cannot be read; a run of another model, system or number format.
    """
    places = [files] if isinstance(files, str | os.PathLike) else files
    runs = read_runs([os.fspath(place) for place in places], sidecar, **facts)
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
    return runs
