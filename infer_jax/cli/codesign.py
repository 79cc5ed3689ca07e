"""`infer-jax codesign`: a model and a layout that hardware likes, from a start, by gradients."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from infer_jax.cli import designed, options as opt, parsers, show
from infer_jax.cli.runtime import prepare
from infer_jax.design.ascent import Progress
from infer_jax.design.default_space import loop
from infer_jax.design.design import optimise
from infer_jax.design.toml import DesignSpec, load_spec, spec_of
from infer_jax.verbs.progress import watched


def codesign(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="SPEC.toml", help="What may change, an objective and limits."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="CONFIG", help="Without a file: the model to start from.")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Without a file: the system.")
    ] = None,
    estimator: opt.EstimatorName = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    target_throughput: Annotated[
        float | None,
        typer.Option(
            parser=parsers.real("a rate above 0", 0.0),
            metavar="TOK/S",
            help="Without a file: least output tokens/s per GPU; less is refused.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write config.json, design.json and path.png here."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the random starts.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Which shape, split and batch would be better: least cost at a speed, within limits?"""
    prepare()
    asked = _asked(spec, model, hardware, estimator, isl, osl, ttft, tpot, target_throughput)
    search = {**asked.search, **({} if seed is None else {"seed": seed})}
    reports = []
    for i, keep in enumerate(asked.keeps):
        with _telling() as report:
            found = optimise(
                asked.estimator,
                asked.space,
                keep,
                start=asked.start,
                feasible=asked.feasible,
                progress=report,
                **search,
            )
        folder = out if out is None or len(asked.keeps) == 1 else out / str(i + 1)
        reports.append(designed.report(asked, found, keep, folder))
        if not as_json:
            designed.show_all(reports[-1])
    if as_json:
        show.as_json(reports[0] if len(reports) == 1 else {"frontier": reports})


def _asked(
    spec: Path | None,
    model: str | None,
    hardware: str | None,
    estimator: str | None,
    isl: float,
    osl: float,
    ttft: float | None,
    tpot: float | None,
    throughput: float | None,
) -> DesignSpec:
    """The problem of a file, or InferSim's loop: a model's split and batch within limits."""
    options = {"--model": model, "--hardware": hardware, "--estimator": estimator}
    options |= {"--ttft": ttft, "--tpot": tpot, "--target-throughput": throughput}
    given = [name for name, value in options.items() if value is not None]
    if spec is not None:
        if given:
            raise opt.refuse(
                given[0], options[given[0]], "none with a SPEC.toml, which has its own"
            )
        return load_spec(spec)
    if model is None or hardware is None:
        raise opt.refuse("SPEC.toml", "missing", "a file, or --model and --hardware")
    limits = {"ttft": ttft, "tpot": tpot, "throughput": throughput}
    limits = {k: v for k, v in limits.items() if v is not None}
    if not limits:
        raise opt.refuse("--tpot", "missing", "a limit: --ttft, --tpot or --target-throughput")
    table = loop(model, hardware, estimator or "economics.planned", isl, osl, limits)
    return spec_of("infer-jax codesign", table)


@contextmanager
def _telling() -> Iterator[Callable[[Progress], None] | None]:
    """A line that says how the search goes, where somebody watches a terminal."""
    if not watched():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("compiling") as status:

        def report(p: Progress) -> None:
            best = "no design keeps the limits yet"
            if np.isfinite(p.objective):
                best = f"best {p.objective:.4g}"
            status.update(f"round {p.round} of {p.rounds}, {best}, {p.seconds:.0f} s")

        yield report
