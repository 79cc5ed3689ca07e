"""`infer-jax calibrate`: measured runs of a server become a profile that every verb accepts."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from infer_jax.catalog.files import replacing, write_text
from infer_jax.catalog.measurements import read_runs
from infer_jax.cli import (
    calibrated,
    options as opt,
    picture,
    profile,
    runs as given_runs,
    show,
)
from infer_jax.cli.runtime import prepare
from infer_jax.estimators.serving import ENGINES
from infer_jax.verbs import inputs
from infer_jax.verbs.progress import busy


def calibrate(
    runs: given_runs.Files,
    config: Annotated[
        str, typer.Option("--config", metavar="CONFIG", help="The model that was served.")
    ],
    hardware: opt.HardwareName,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.toml", help="Profile to write.")],
    engine: given_runs.Engine = None,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: given_runs.Dp = None,
    isl: given_runs.Isl = None,
    osl: given_runs.Osl = None,
    concurrency: opt.Concurrency = None,
    request_rate: given_runs.Rate = None,
    sidecar: given_runs.Sidecar = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            metavar="NAME",
            help="Fit these alone, such as decode_factor or vllm.layer_gap; repeat for several.",
        ),
    ] = None,
    drawn: Annotated[
        str | None,
        typer.Option("--picture", metavar="FILE", help="Parity picture; beside --out if not told."),
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Write no picture.")] = False,
    as_json: opt.Json = False,
) -> None:
    """What do measured runs say of a server? Fits it, with intervals, and writes a profile."""
    from infer_jax.calibration.runs import engine_of
    from infer_jax.calibration.server import calibrate_server

    prepare()
    place = drawn or str(out.with_suffix(".png"))
    _check(out, hardware, None if no_picture else place)
    asked = inputs.given(config, hardware, quant, kv_dtype, None)
    found = read_runs(
        [str(path) for path in runs],
        sidecar,
        engine=engine,
        tp=tp,
        pp=pp,
        ep=ep,
        dp=dp,
        isl=isl,
        osl=osl,
        concurrency=concurrency,
        request_rate=request_rate,
    )
    given_runs.agree(found, asked)
    theory = inputs.estimator(inputs.BEST, asked)
    theory = theory.with_(engine=float(ENGINES.index(engine_of(found))))
    with busy("fitting"):
        made = calibrate_server(
            theory, asked.model.architecture, asked.hardware, found, parameter or None
        )
    report = calibrated.report(asked, made)
    text = profile.text(asked, made, calibrated.said(report), out)
    drawn = _write(out, text, asked, made, None if no_picture else place)
    notes = [
        f"Written to {out}. Use it: --hardware {out} --estimator serving.",
        *calibrated.notes(made),
    ]
    if not no_picture:
        lacking = "No picture: matplotlib is not installed (pip install 'infer_jax[plots]')."
        report["picture"] = drawn
        notes.insert(1, f"Picture: {drawn}." if drawn else lacking)
    notes += asked.notes
    if as_json:
        show.as_json({"out": str(out), **report, "notes": notes})
        return
    calibrated.tell(report, notes)


def _check(out: Path, hardware: str, drawn: str | None) -> None:
    """Refuse, before anything is computed, what could not be written after it.

    Raises:
        InputError: a place that cannot be, or the profile that is started from.
    """
    if out.suffix != ".toml" or not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise opt.refuse("--out", str(out), "a .toml file in a folder that can be written")
    if Path(hardware).exists() and out.exists() and out.samefile(hardware):
        raise opt.refuse("--out", str(out), "another file than --hardware, which it starts from")
    if drawn is not None:
        picture.check(drawn)


def _write(out: Path, text: str, asked: inputs.Given, made: Any, place: str | None) -> str | None:
    """Write the profile and its picture, both or neither: the picture that there is."""
    if place is None or find_spec("matplotlib") is None:
        write_text(out, text)
        return None
    with replacing(place) as partial:
        _draw(asked, made, partial)
        write_text(out, text)
    return place


def _draw(asked: inputs.Given, made: Any, out: Path) -> None:
    from infer_jax.plots.parity import Parity, plot_parity
    from infer_jax.plots.style import words

    judged = "fitted" if made.held is None else "calibrated, each run left out in turn"
    panels = {
        name.upper(): Parity(made.measured[k], made.before[k], made.judged[k], made.band()[k])
        for k, name in enumerate(given_runs.OUTPUTS)
        if np.isfinite(made.measured[k]).any()
    }
    title = words(f"{asked.model.name} on {asked.system.name}: measured and predicted")
    plot_parity(panels, out, title=title, judged=judged)
