"""The search of a co-design: its spec read, its progress, and the files of the best design."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from infer_jax.catalog.files import write_text
from infer_jax.design.ascent import AscentProgress
from infer_jax.design.config_json import export, template
from infer_jax.design.design import optimise
from infer_jax.design.quality_wrapper import QualityWrapper
from infer_jax.design.toml import DesignSpec, load_spec, spec_of
from infer_jax.errors import InputError
from infer_jax.results.numbers import to_json_types
from infer_jax.results.wording import option
from infer_jax.sweeps.reducers import Best
from infer_jax.verbs import options as opt
from infer_jax.verbs.codesign_result import DesignResult, second_estimate
from infer_jax.verbs.limits import unlikely_times
from infer_jax.verbs.progress import busy, is_watched


def read_spec(spec: opt.Place | DesignSpec | Mapping[str, object]) -> DesignSpec:
    """The spec of a file, of tables, or as it is."""
    if isinstance(spec, DesignSpec):
        return spec
    return spec_of("codesign", spec) if isinstance(spec, Mapping) else load_spec(os.fspath(spec))


def design_result(
    spec: DesignSpec, keep: Best, seed: int | None, *, with_config: bool
) -> DesignResult:
    """The best design; ``with_config``: its config.json even if the model is unchanged."""
    search = {**spec.search, **({} if seed is None else {"seed": seed})}
    with busy("searching") as show:

        def report(p: AscentProgress) -> None:
            best = "no design keeps the limits yet"
            if np.isfinite(p.objective):
                best = f"best {p.objective:.4g}"
            show(f"round {p.round} of {p.rounds}, {best}, {p.seconds:.0f} s")

        design = optimise(
            spec.estimator,
            spec.space,
            keep,
            start=spec.start,
            feasible=spec.feasible,
            progress=report if is_watched() else None,
            **search,
        )
    notes = [*unlikely_times(dict(keep.under)), *design.notes]
    law, wrapper = spec.estimator.law, design.point.estimator
    tokens = wrapper.tokens if isinstance(wrapper, QualityWrapper) else 0.0
    if law is not None:
        notes += [f"{warning}." for warning in law.warnings(design.point.arch, tokens)]
    config = None
    if spec.model and (with_config or any(name.startswith("arch.") for name in design.moving)):
        try:
            config, _ = export(design.point.arch, template(spec.model), **spec.formats)
        except InputError as error:
            notes.append(f"No config.json: {error}.")
    second: dict[str, object] | None = None
    if spec.second is not None:
        second = {"name": spec.names[1]}
        for which, point in (("start", design.start), ("design", design.point)):
            other = point.estimator.around(spec.second.innermost)
            second[which] = second_estimate(keep, point._replace(estimator=other))
    return DesignResult(spec, design, keep, second, config, tuple(notes))


def write_design(folder: Path, one: DesignResult) -> DesignResult:
    """``one`` with its files in a folder, which is made: design.json and config.json.

    Raises:
        InputError: the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            str(folder), option("out"), error.strerror, "a folder to write to"
        ) from None
    design = {k: v for k, v in one.fields().items() if k != "config"}
    for name, table in (("design.json", design), ("config.json", one.config)):
        if table is not None:
            write_text(folder / name, json.dumps(to_json_types(table), indent=2) + "\n")
    return replace(one, notes=(*one.notes, f"Written to {folder}."))
