"""``ij.codesign``: a better model shape, split and batch by gradients, within limits."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np

from infer_jax.catalog.files import write_text
from infer_jax.design.ascent import AscentProgress
from infer_jax.design.config_json import export, template
from infer_jax.design.design import optimise
from infer_jax.design.names import default_tables
from infer_jax.design.quality_wrapper import QualityWrapper
from infer_jax.design.toml import DesignSpec, load_spec, spec_of
from infer_jax.errors import InputError
from infer_jax.results.numbers import plain
from infer_jax.results.wording import by_command, option
from infer_jax.sweeps.reducers import Best
from infer_jax.verbs import options as opt, pictures
from infer_jax.verbs.asking import verb
from infer_jax.verbs.codesign_result import CodesignResult, DesignResult, second_estimate
from infer_jax.verbs.limits import long_times
from infer_jax.verbs.option import Option, seconds_of
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy, watched


@verb
def codesign(
    config: Annotated[
        opt.Place | None,
        Option("Without a file: the model to start from.", "CONFIG", flags=("--model",)),
    ] = None,
    hardware: Annotated[
        opt.Place | None, Option("Without a file: the system.", "NAME|FILE")
    ] = None,
    *,
    spec: Annotated[
        opt.Place | DesignSpec | Mapping[str, object] | None,
        Option("What may change, an objective and limits.", "SPEC.toml", by_place=True),
    ] = None,
    estimator: opt.EstimatorName = None,
    isl: opt.Isl = 4096,
    osl: opt.Osl = 512,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    target_throughput: Annotated[
        float | None,
        Option(
            "Without a file: least output tokens/s per GPU; less is refused.", "TOK/S", opt.RATE
        ),
    ] = None,
    out: Annotated[
        opt.Places | None,
        Option(
            "A folder for config.json and design.json; or a picture, .png, .svg, .pdf or .html; "
            "repeat for both.",
            "FOLDER|FILE",
            many=True,
        ),
    ] = None,
    seed: Annotated[int | None, Option("Of the random starts.", "N", opt.SEED)] = None,
) -> CodesignResult:
    """Which shape, split and batch would be better: least cost at a speed, within limits?

    Args:
        config: without a spec, the model to start from, by name or file: its heads, experts,
            split and batch are free, its parameters held within 2 %.
        hardware: without a spec, the system, by name or file.
        spec: a SPEC.toml, its tables as dictionaries, or what ``design.load_spec`` reads of it.
        ttft: limit in s or as a text such as "300ms", as ``tpot``; ``target_throughput``: least
            output tokens/s per GPU.
        out: a folder for config.json and design.json, or the file of the picture, or both.
        seed: seed of the random starts.

    Raises:
        InputError: a spec that cannot be read, names nothing that is free, or has limits that no
            design found keeps; neither a spec nor a model with a limit.

    >>> import infer_jax as ij
    >>> found = ij.codesign(spec={
    ...     "arch": {"model": "llama-3.2-1b"}, "hardware": {"system": "h100_sxm"},
    ...     "workload": {"isl": 1024, "osl": 128}, "free": {"batch": [1, 64]},
    ...     "objective": {"best": "cost"}, "limits": {"tpot": 0.002},
    ...     "search": {"restarts": 4, "steps": 16},
    ... })
    >>> found.designs[0].design.gain >= 1.0
    True
    """
    model = "model" if by_command() else "config"
    folder, drawn = pictures.split(out, "a folder", bool)
    options = {model: config, "hardware": hardware, "estimator": estimator}
    options |= {"ttft": ttft, "tpot": tpot, "target_throughput": target_throughput}
    if spec is not None:
        for name, value in options.items():
            if value is not None:
                raise refuse(name, value, "none with a SPEC.toml, which has its own")
        design_spec = _read_spec(spec)
    elif config is None or hardware is None:
        needed = f"a file, or {option(model)} and {option('hardware')}"
        raise refuse("SPEC.toml", "missing", needed)
    else:
        limits = {"ttft": seconds_of(ttft), "tpot": seconds_of(tpot)}
        limits |= {"throughput": target_throughput}
        limits = {name: x for name, x in limits.items() if x is not None}
        if not limits:
            ways = f"{option('ttft')}, {option('tpot')} or {option('target_throughput')}"
            raise refuse("tpot", "missing", f"a limit: {ways}")
        name = estimator or "economics.planned"
        table = default_tables(os.fspath(config), os.fspath(hardware), name, isl, osl, limits)
        design_spec = spec_of("infer-jax codesign", table)
    designs: list[DesignResult] = []
    for i, keep in enumerate(design_spec.keeps):
        one = _search(design_spec, keep, seed, with_config=folder is not None)
        if folder is not None:  # as soon as it is computed
            one = _write(Path(folder) / (str(i + 1) if len(design_spec.keeps) > 1 else ""), one)
        designs.append(one)
    found = CodesignResult(tuple(designs), drawn)
    for picture in drawn:
        found.draw(picture)
    return found


def _read_spec(spec: opt.Place | DesignSpec | Mapping[str, object]) -> DesignSpec:
    if isinstance(spec, DesignSpec):
        return spec
    return spec_of("codesign", spec) if isinstance(spec, Mapping) else load_spec(os.fspath(spec))


def _search(spec: DesignSpec, keep: Best, seed: int | None, *, with_config: bool) -> DesignResult:
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
            progress=report if watched() else None,
            **search,
        )
    notes = [*long_times(dict(keep.under)), *design.notes]
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
            second[which] = second_estimate(keep, point._replace(estimator=spec.second))
    return DesignResult(spec, design, keep, second, config, tuple(notes))


def _write(folder: Path, one: DesignResult) -> DesignResult:
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
            write_text(folder / name, json.dumps(plain(table), indent=2) + "\n")
    return replace(one, notes=(*one.notes, f"Written to {folder}."))
