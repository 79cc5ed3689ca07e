"""Which measured runs are meant, and do they belong to the model and the system asked about?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from infer_jax.catalog.measurements import Run
from infer_jax.catalog.measurements.names import model_named, system_named
from infer_jax.catalog.models import list_models
from infer_jax.catalog.systems import list_systems
from infer_jax.cli import parsers
from infer_jax.errors import InputError
from infer_jax.estimators.serving import ENGINES, shape
from infer_jax.verbs.inputs import Given

OUTPUTS = ("tpot", "ttft")
# stored bytes of a weight in formats that files name
STORED = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "w8a8": 1.0}
STORED |= dict.fromkeys(("fp4", "nvfp4", "mxfp4", "int4", "awq", "gptq", "w4a16"), 0.55)
APART = 1.5  # ratio of stored bytes from which on two formats are not the same


Files = Annotated[
    list[Path],
    typer.Argument(metavar="RUNS...", help="Benchmark files (docs/formats.md), or folders."),
]
Engine = Annotated[
    str | None,
    typer.Option(
        parser=parsers.one_of(ENGINES),
        metavar="NAME",
        help="vllm, sglang or trtllm, where files do not say.",
    ),
]
Dp = Annotated[
    float | None,
    typer.Option(parser=parsers.count(1), metavar="N", help="Groups of data-parallel attention."),
]
Isl = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Mean prompt, where not in files."
    ),
]
Osl = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Mean output, where not in files."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a rate above 0", 0.0),
        metavar="REQ/S",
        help="Arrivals per second, where not in files.",
    ),
]
Sidecar = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Facts by file, TOML or JSON (docs/formats.md)."),
]


def agree(runs: Sequence[Run], asked: Given) -> None:
    """Refuse runs of another model, system or number format than asked about.

    Raises:
        InputError: a run that says so.
    """
    for run in runs:
        model, system = model_named(run.model), system_named(run.system)
        if model is not None and asked.model.name in list_models() and model != asked.model.name:
            allowed = f"{asked.model.name}, the model of --config; one model to a profile"
            raise InputError(run.place, "model", run.model, allowed)
        name = asked.system.name
        if system is not None and name in list_systems() and system != name:
            raise InputError(run.place, "system", run.system, f"{name}, as --hardware says")
        stored = STORED.get((run.precision or "").lower())
        own = stored_bytes(asked.model.architecture)
        if stored is not None and not 1.0 / APART < stored / own < APART:
            allowed = f"what --config is stored in, {own:.2g} bytes a weight; see --quant"
            raise InputError(run.place, "precision", run.precision, allowed)


def stored_bytes(arch: Any) -> float:
    """Mean stored bytes of a weight of the layers."""
    layers = shape(arch).layers
    kinds = (
        (layers.projections, 1.0),
        (layers.routed, layers.experts),
        (layers.shared, 1.0),
    )
    elements = np.asarray([layers.count * w.elements * copies for w, copies in kinds])
    stored = np.asarray([w.bytes for w, _ in kinds])
    return float(np.sum(elements * stored) / np.sum(elements))


def trends(runs: Sequence[Run]) -> dict[str, np.ndarray]:
    """What errors may go along with, in log, one number a run."""
    named = {"concurrency": "concurrency", "prompt length": "isl", "output length": "osl"}
    found = {k: [getattr(run, name) for run in runs] for k, name in named.items()}
    return {
        k: np.log(np.maximum(values, 1.0))
        for k, values in found.items()
        if all(values) and len(set(values)) > 1
    }
