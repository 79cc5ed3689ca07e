"""``ij.calibrate``: fits an estimator to measured runs; intervals, and a profile."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from infer_jax.results import option
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option
from infer_jax.verbs.options import HardwareLike, ModelLike
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy

if TYPE_CHECKING:
    from infer_jax.estimators import Estimator, Serving
    from infer_jax.verbs.calibrate_result import CalibrateResult


@verb
def calibrate(
    config: Annotated[
        ModelLike, replace(opt.CONFIG, help="The model that was served.", by_place=False)
    ],
    hardware: opt.System,
    files: Annotated[
        opt.Places,
        Option(
            "Benchmark files (docs/formats.md), or folders.", "RUNS...", by_place=True, many=True
        ),
    ],
    *,
    out: Annotated[
        opt.Places | None,
        Option(
            "Profile to write, .toml; or a picture, .png, .svg, .pdf or .html; repeat for both.",
            "FILE",
            many=True,
            required=True,
        ),
    ] = None,
    estimator: opt.EstimatorLike = None,
    engine: opt.RunEngine = None,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.RunDp = None,
    isl: opt.RunIsl = None,
    osl: opt.RunOsl = None,
    concurrency: opt.Concurrency = None,
    request_rate: opt.RunRate = None,
    polling: opt.Polling = None,
    max_num_seqs: Annotated[
        float | None,
        Option("Sequences that run at once at most, where not in files.", "N", opt.WHOLE),
    ] = None,
    max_num_batched_tokens: Annotated[
        float | None, Option("Tokens of one pass at most, where not in files.", "TOKENS", opt.WHOLE)
    ] = None,
    prompts: Annotated[
        float | None,
        Option(
            "Fit the first N requests of each replayed run; the others are predicted.",
            "N",
            opt.WHOLE,
        ),
    ] = None,
    sidecar: opt.Sidecar = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    parameter: Annotated[
        str | Sequence[str] | None,
        Option(
            "Fit these alone, such as decode_factor or vllm.layer_gap; repeat for several.",
            "NAME",
            many=True,
        ),
    ] = None,
) -> "CalibrateResult":
    """What do measured runs say of a server? Fits it, with intervals, and writes a profile.

    Args:
        config: the model that was served.
        hardware: the system, whose profile the fit starts from.
        files: benchmark files (docs/formats.md), folders of them, or patterns.
        out: the profile to write, a .toml file, or the file of the picture, or a list of both.
        estimator: a name, or an estimator of your own; ``serving`` where not given.
        parameter: coefficients to fit; by default as many as there are measured times for.
        prompts: how many of the first requests of each run are fitted; the others are predicted.

    Runs whose files hold every request are replayed by the engine's scheduler, others are fitted
    by the estimator's closed form. The other options say what was run where the files do not.

    Raises:
        InputError: a file that cannot be read, runs of another model, system or format, a place
            that cannot be written.

    >>> import infer_jax as ij
    >>> runs = "tests/data/server/runs.csv"
    >>> fit = ij.calibrate("llama-3.1-8b", "h100_sxm", runs, parameter="decode_factor")
    >>> low, high = fit.intervals["decode_factor"]
    >>> low < fit.server.fit.values["decode_factor"] < high
    True
    """
    from infer_jax.calibration.replayed import calibrate_requests
    from infer_jax.calibration.runs import engine_of
    from infer_jax.calibration.server import calibrate_server
    from infer_jax.catalog.files import write_text
    from infer_jax.catalog.measurements import read_runs
    from infer_jax.estimators import Estimator
    from infer_jax.verbs import calibrate_profile as profile, inputs, pictures
    from infer_jax.verbs.calibrate_requests import benches
    from infer_jax.verbs.calibrate_result import CalibrateResult
    from infer_jax.verbs.runs import agree

    target, drawn = pictures.split(out, "a .toml file", lambda name: Path(name).suffix == ".toml")
    asked = inputs.given(config, hardware, quant, kv_dtype, None)
    if isinstance(estimator, Estimator):
        start, name = estimator, estimator.table or type(estimator).__name__
    else:
        name = estimator or inputs.BEST
        start = inputs.estimator(name, asked)
    if target is not None:
        _check_target(Path(target), hardware, start)
    facts = {"engine": engine, "tp": tp, "pp": pp, "ep": ep, "dp": dp, "isl": isl, "osl": osl}
    facts |= {"concurrency": concurrency, "request_rate": request_rate, "polling": polling}
    facts |= {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens}
    paths = [files] if isinstance(files, str | os.PathLike) else files
    runs = read_runs([os.fspath(path) for path in paths], sidecar, **facts)
    agree(runs, asked)
    if start.engine_name:
        start = start.for_engine(engine_of(runs))
    names = ([parameter] if isinstance(parameter, str) else list(parameter or ())) or None
    logs = benches(runs, asked, start, prompts)
    arch, machine = asked.model.architecture, asked.hardware
    why_not = logs if isinstance(logs, str) else None
    if why_not is not None and prompts is not None:
        raise refuse("prompts", prompts, f"with runs that are replayed: {why_not}")
    with busy("fitting"):
        if isinstance(logs, str):
            server = calibrate_server(start, arch, machine, runs, names)
        else:
            server = calibrate_requests(cast("Serving", start), arch, machine, logs, names)
    result = CalibrateResult(asked, name, server, why_not)
    for picture in drawn:  # which may fail
        result.draw(picture)
    if target is not None:
        text = profile.text(asked, server, result.fitted_in_words, result.summary, Path(target))
        write_text(target, text)
    return replace(result, out=target or "", drawn=drawn)


def _check_target(path: Path, hardware: HardwareLike, start: "Estimator") -> None:
    """Check, before anything is computed, that the profile can be written.

    Raises:
        InputError: a file that cannot be written, or the profile that the fit starts from; an
            estimator whose coefficients stand in no table of a profile.
    """
    from infer_jax.catalog import System
    from infer_jax.specs import Hardware

    allowed, folder = "", path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        allowed = "a .toml file in a folder that can be written"
    elif isinstance(hardware, Hardware):
        allowed = "with a system by name or file, over whose profile the new one stands"
    elif not start.table:
        allowed = "with an estimator that has a table of a profile"
    else:
        base = hardware.path if isinstance(hardware, System) else Path(hardware)
        if base.exists() and path.exists() and path.samefile(base):
            allowed = f"another file than {option('hardware')}, which it starts from"
    if allowed:
        raise refuse("out", str(path), allowed)
