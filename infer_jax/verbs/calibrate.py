"""``ij.calibrate``: fits an estimator to measured runs; intervals, and a profile."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from infer_jax import verbs
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option
from infer_jax.verbs.options import ModelLike
from infer_jax.verbs.progress import busy

if TYPE_CHECKING:
    from infer_jax.estimators import Serving

SERVED = replace(opt.CONFIG, help="The model that was served.", by_place=False)


@verb
def calibrate(
    config: Annotated[ModelLike, SERVED],
    hardware: opt.System,
    files: Annotated[opt.Places, Option.of("RUNS...", by_place=True, many=True)],
    *,
    out: Annotated[opt.Places | None, Option.of("FILE", many=True, required=True)] = None,
    estimator: opt.EstimatorLike = None,
    engine: opt.RunEngine = None,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.RunDp = None,
    layout: opt.Layout = None,
    enable_expert_parallel: opt.ExpertParallel = False,
    enable_dp_attention: opt.DpAttention = False,
    isl: opt.RunIsl = None,
    osl: opt.RunOsl = None,
    concurrency: opt.Concurrency = None,
    request_rate: opt.RunRate = None,
    polling: opt.Polling = None,
    balance_timeout: opt.BalanceTimeout = None,
    max_num_seqs: Annotated[float | None, Option.of("N", opt.WHOLE)] = None,
    max_num_batched_tokens: Annotated[float | None, Option.of("TOKENS", opt.WHOLE)] = None,
    prompts: Annotated[float | None, Option.of("N", opt.WHOLE)] = None,
    sidecar: opt.Sidecar = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    parameter: Annotated[str | Sequence[str] | None, Option.of("NAME", many=True)] = None,
) -> "verbs.CalibrateResult":
    """What do measured runs say of a server? Fits it, with intervals, and writes a profile.

    ``files`` may be patterns, ``out`` a list. As many coefficients are fitted by default as there
    are measured times for.

    Args:
        config: the model that was served.
        hardware: the system, whose profile the fit starts from.
        files: Benchmark files (docs/formats.md), or folders.
        out: Profile to write, .toml; or a picture, .png, .svg, .pdf or .html; repeat for both.
        estimator: a name, or an estimator of your own; ``serving`` where not given.
        max_num_seqs: Sequences that run at once at most, where not in files.
        max_num_batched_tokens: Tokens of one pass at most, where not in files.
        prompts: Fit the first N requests of each replayed run; the others are predicted.
        parameter: Fit these alone, such as decode_factor or vllm.layer_gap; repeat for several.

    Runs whose files hold every request are replayed by the engine's scheduler, others are fitted
    by the estimator's closed form. The other options say what was run where the files do not.

    Raises:
        InputError: a file that cannot be read, runs of another model, system or format, a place
            that cannot be written, runs with and without drafts.

    >>> import infer_jax as ij
    >>> runs = "tests/data/server/runs.csv"
    >>> fit = ij.calibrate("llama-3.1-8b", "h100_sxm", runs, parameter="decode_factor")
    >>> low, high = fit.intervals["decode_factor"]
    >>> low < fit.server.fit.values["decode_factor"] < high
    True
    """
    from infer_jax.calibration.profile import profile_text
    from infer_jax.calibration.replayed import benches, calibrate_requests
    from infer_jax.calibration.runs import drafting_runs, engine_of
    from infer_jax.calibration.server import calibrate_server
    from infer_jax.catalog.files import write_text
    from infer_jax.verbs import inputs, pictures
    from infer_jax.verbs.runs import runs_of

    target, drawn = pictures.split(out, "a .toml file", lambda name: Path(name).suffix == ".toml")
    setup = inputs.setup(config, hardware, quant, kv_dtype, None)
    if estimator is None or isinstance(estimator, str):
        name = estimator or inputs.BEST
        start = inputs.estimator(name, setup)
    else:
        start, name = estimator, estimator.table or type(estimator).__name__
    if target is not None:
        pictures.check_profile(Path(target), hardware, start)
    degrees = {"tp": tp, "pp": pp, "ep": ep, "dp": dp}
    split = verbs.LayoutOptions.of(layout, degrees, enable_expert_parallel, enable_dp_attention)
    facts = {"engine": engine, **split.facts(degrees), "isl": isl, "osl": osl}
    facts |= {"concurrency": concurrency, "request_rate": request_rate}
    facts |= {"polling": polling, "balance_timeout": balance_timeout}
    facts |= {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens}
    runs = runs_of(setup, files, sidecar, **facts)
    drafting_runs(runs)
    if start.engine_name:
        start = start.for_engine(engine_of(runs))
    names = ([parameter] if isinstance(parameter, str) else list(parameter or ())) or None
    arch, machine = setup.model.architecture, setup.hardware
    logs = benches(runs, arch, machine, start, prompts)
    why_not = logs if isinstance(logs, str) else None
    if why_not is not None and prompts is not None:
        raise refuse("prompts", prompts, f"with runs that are replayed: {why_not}")
    with busy("fitting"):
        if isinstance(logs, str):
            server = calibrate_server(start, arch, machine, runs, names)
        else:
            server = calibrate_requests(cast("Serving", start), arch, machine, logs, names)
    result = verbs.CalibrateResult(setup, name, server, why_not, target or "")
    for picture in drawn:  # which may fail
        result.draw(picture)
    if target is not None:
        words = server.fitted_in_words, result.summary
        text = profile_text(setup.model, setup.system, server, *words, Path(target))
        write_text(target, text)
    return result
