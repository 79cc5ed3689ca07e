"""The search of a co-design: its spec read, its progress, and the files of the best design."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import numpy as np

from infer_jax.catalog.files import write_text
from infer_jax.catalog.models import export, template
from infer_jax.design.ascent import AscentProgress
from infer_jax.design.design import Design, Search
from infer_jax.design.expected import expected_design
from infer_jax.design.frontier import ChangePath, Flip, change_path, flips, follow
from infer_jax.design.quality_wrapper import QualityWrapper
from infer_jax.design.toml import DesignSpec, load_spec, spec_of
from infer_jax.errors import InputError
from infer_jax.results.numbers import to_json_types
from infer_jax.results.problems import option
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


def design_results(
    spec: DesignSpec, seed: int | None, *, with_config: bool
) -> tuple[tuple[DesignResult, ...], tuple[Flip, ...]]:
    """The best design under each limit, and where a small change of the limit flips it.

    ``with_config``: a config.json even if the model is unchanged.
    """
    options = {**spec.search, **({} if seed is None else {"seed": seed})}
    under = [dict(keep.under) for keep in spec.keeps]
    with busy("searching") as show:

        def report(p: AscentProgress) -> None:
            best = "no design keeps the limits yet"
            if np.isfinite(p.objective):
                best = f"best {p.objective:.4g}"
            show(f"round {p.round} of {p.rounds}, {best}, {p.seconds:.0f} s")

        search = Search.of(spec.estimator, spec.space, spec.keeps[0], feasible=spec.feasible)
        options |= {"start": spec.start, "progress": report if is_watched() else None}
        designs = follow(search, under, **options)
        paths = [change_path(search, *x) for x in zip(designs, repeat(spec.start), under)]
        jumps = flips(search, designs, [x[spec.along] for x in under]) if spec.along else ()
    results = [
        _result(spec, *one, options.get("seed", 0), with_config=with_config)
        for one in zip(spec.keeps, designs, paths, strict=True)
    ]
    return tuple(results), tuple(jumps)


def _result(
    spec: DesignSpec, keep: Best, design: Design, path: ChangePath, seed: int, *, with_config: bool
) -> DesignResult:
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
            other = point.estimator.exchange(point.estimator.innermost, spec.second.innermost)
            second[which] = second_estimate(keep, point._replace(estimator=other))
    expected = None
    if spec.draws is not None:
        with busy("chips over draws"):
            expected = expected_design("codesign", spec.draws, design, spec.base, seed)
    return DesignResult(spec, design, path, keep, second, config, tuple(notes), expected)


def write_design(folder: Path, one: DesignResult) -> DesignResult:
    """``one`` with its files in a folder, which is made: design.json and config.json.

    Raises:
        InputError: the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), option("out"), error.strerror, "one to write to") from None
    design = {k: v for k, v in one.fields().items() if k != "config"}
    for name, table in (("design.json", design), ("config.json", one.config)):
        if table is not None:
            write_text(folder / name, json.dumps(to_json_types(table), indent=2) + "\n")
    return replace(one, notes=(*one.notes, f"Written to {folder}."))
