"""``ij.codesign``: a better model shape, split and batch by gradients, within limits."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Union

from infer_jax import verbs
from infer_jax.results import option
from infer_jax.results.problems import by_command, forbid, refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option, seconds_of, without_none

if TYPE_CHECKING:
    from infer_jax.design.toml import DesignSpec

# a file, its tables, or what is read of it
SpecLike = Union[opt.Place, "DesignSpec", Mapping[str, object]]


@verb
def codesign(
    config: Annotated[opt.Place | None, Option.of("CONFIG", flags=("--model",))] = None,
    hardware: Annotated[opt.Place | None, Option.of("NAME|FILE")] = None,
    *,
    spec: Annotated[SpecLike | None, Option.of("SPEC.toml", by_place=True)] = None,
    estimator: opt.EstimatorName = None,
    isl: opt.Isl = 4096,
    osl: opt.Osl = 512,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    target_throughput: Annotated[float | None, Option.of("TOK/S", opt.RATE)] = None,
    out: Annotated[opt.Places | None, Option.of("FOLDER|FILE", many=True)] = None,
    seed: Annotated[int | None, Option.of("N", opt.SEED)] = None,
) -> "verbs.CodesignResult":
    """Which shape, split and batch would be better: least cost at a speed, within limits?

    ``spec`` is a SPEC.toml, its tables as dictionaries, or what ``design.load_spec`` reads of it.
    Without one the heads, experts, split and batch of ``config`` are free, and its parameters held
    within 2 %.

    Args:
        config: Without a file: the model to start from.
        hardware: Without a file: the system.
        spec: What may change, an objective and limits.
        ttft: Limit in s or as a text such as "300ms", as ``tpot``.
        target_throughput: Without a file: least output tokens/s per GPU; less is refused.
        out: A folder for config.json and design.json; or a picture, .png, .svg, .pdf or .html;
            repeat for both.
        seed: Of the random starts.

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
    from infer_jax.design.names import default_tables
    from infer_jax.design.toml import spec_of
    from infer_jax.verbs import pictures
    from infer_jax.verbs.codesign_search import design_results, read_spec, write_design

    model = "model" if by_command() else "config"
    folder, drawn = pictures.split(out, "a folder", bool)
    options = {model: config, "hardware": hardware, "estimator": estimator}
    options |= {"ttft": ttft, "tpot": tpot, "target_throughput": target_throughput}
    if spec is not None:
        forbid("none with a SPEC.toml, which has its own", **options)
        design_spec = read_spec(spec)
    elif config is None or hardware is None:
        needed = f"a file, or {option(model)} and {option('hardware')}"
        raise refuse("SPEC.toml", "missing", needed)
    else:
        times = {"ttft": seconds_of(ttft), "tpot": seconds_of(tpot)}
        limits = without_none(**times, throughput=target_throughput)
        if not limits:
            ways = f"{option('ttft')}, {option('tpot')} or {option('target_throughput')}"
            raise refuse("tpot", "missing", f"a limit: {ways}")
        name = estimator or "economics.planned"
        table = default_tables(os.fspath(config), os.fspath(hardware), name, isl, osl, limits)
        design_spec = spec_of("infer-jax codesign", table)
    designs, flips = design_results(design_spec, seed, with_config=folder is not None)
    if folder is not None:
        ends = [""] if len(designs) == 1 else map(str, range(1, len(designs) + 1))
        designs = tuple(map(write_design, (Path(folder) / end for end in ends), designs))
    found = verbs.CodesignResult(designs, flips)
    for picture in drawn:
        found.draw(picture)
    return found
