"""`infer-jax compare`: two estimators, or a prediction and what was measured, term by term."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from infer_jax.catalog.measurements import Run, read_runs
from infer_jax.cli import options as opt, runs as given_runs, show
from infer_jax.cli.compare_view import SERVERS, show_runs, show_two
from infer_jax.cli.runtime import prepare
from infer_jax.compiling import once
from infer_jax.estimators import Estimate, Estimator
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.specs import Output, Plan, outputs
from infer_jax.verbs import inputs
from infer_jax.verbs.progress import busy
from infer_jax.verbs.split import check_search, plan_of


def compare(
    config: opt.Config,
    hardware: opt.HardwareName,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            "--estimator",
            metavar="NAME",
            help="Two of them, one to set against serving; alone, with --measured.",
        ),
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--measured", metavar="FILE", help="Measured runs; repeat for several files."),
    ] = None,
    engine: given_runs.Engine = None,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: given_runs.Dp = None,
    total_gpus: opt.TotalGpus = None,
    isl: given_runs.Isl = None,
    osl: given_runs.Osl = None,
    batch: opt.Batch = None,
    concurrency: opt.Concurrency = None,
    request_rate: given_runs.Rate = None,
    sidecar: given_runs.Sidecar = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    price: opt.Price = None,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """Where do two estimators differ, or a prediction and a measurement: TTFT, TPOT, every term?"""
    prepare()
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    names = estimator or []
    if runs is None:
        given = {"--engine": engine, "--dp": dp, "--concurrency": concurrency}
        given |= {"--request-rate": request_rate, "--sidecar": sidecar}
        for option, value in given.items():
            if value is not None:
                raise opt.refuse(option, str(value), "only with --measured")
        if not names:
            question = "Which two estimators, or which measurement?"
            raise opt.ask(
                "--estimator",
                question,
                "--estimator (one is set against serving), or --measured FILE",
            )
        best = inputs.BEST if total_gpus is None else inputs.SEARCHING
        names = names if len(names) != 1 else [best, *names]
        if len(names) != 2 or names[0] == names[1]:
            raise opt.refuse("--estimator", ", ".join(names), "two that differ")
        report, compared = _estimators(asked, names, (tp, pp, ep, total_gpus), isl, osl, batch)
    else:
        if total_gpus is not None or batch is not None:
            option = "--total-gpus" if batch is None else "--batch"
            raise opt.refuse(option, "given", "none with --measured: runs say what was run")
        if len(names) > 1:
            raise opt.refuse("--estimator", names[1], "one of them with --measured")
        facts = {"engine": engine, "tp": tp, "pp": pp, "ep": ep, "dp": dp, "isl": isl, "osl": osl}
        facts |= {"concurrency": concurrency, "request_rate": request_rate}
        found = read_runs([str(path) for path in runs], sidecar, **facts)
        given_runs.agree(found, asked)
        report, compared = _measured(asked, names[0] if names else inputs.BEST, found), SERVERS
    if as_json:
        show.as_json({**report, "notes": asked.notes})
        return
    if runs is None:
        show_two(report, compared, asked.notes)
    else:
        show_runs(report, compared, asked.notes)


def _estimators(
    asked: inputs.Given,
    names: Sequence[str],
    split: tuple[float | None, float | None, float | None, float | None],
    isl: float | None,
    osl: float | None,
    batch: float | None,
) -> tuple[dict[str, Any], list[Output]]:
    """Both estimators' answers to one question, and which outputs they are."""
    arch, (tp, pp, ep, total) = asked.model.architecture, split
    work = inputs.workload(4096.0 if isl is None else isl, osl or 512.0, 0.0, batch or 1.0)
    lives, trusted = [], []
    for name in names:
        plan, _ = plan_of(arch, tp, pp, ep, 1.0, total, name)
        theory = inputs.estimator(name, asked)
        check_search(theory, name, total)
        trusted.append(inputs.trust(name, theory, asked))
        with busy(f"compiling and evaluating {name}"):
            lives.append(once(Estimator.estimate_once, theory, arch, asked.hardware, work, plan))
    report = {
        **asked.names,
        "isl_tokens": work.isl,
        "osl_tokens": work.osl,
        "batch": work.batch,
        "estimators": [
            {"name": known.estimator, "trust": known.fields(), **_predicted(life, asked)}
            for known, life in zip(trusted, lives, strict=True)
        ],
    }
    return report, outputs(*lives, view="compare")


def _predicted(life: Estimate, asked: inputs.Given) -> dict[str, Any]:
    compared = outputs(life, view="compare")
    return {
        "feasible": bool(life.feasible),
        "answers": {x.plain_key: x.value(life, asked.hardware.power) for x in compared},
        "prefill_ms": {k: 1e3 * x for k, x in life.prefill.terms.items()},
        "decode_ms": {k: 1e3 * x for k, x in life.decode.terms.items()},
    }


def _measured(asked: inputs.Given, name: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Each run's own figures beside the estimator's for the same load and layout."""
    from infer_jax.calibration.runs import engine_of, load_of

    theory = inputs.estimator(name, asked)
    if theory.searches:
        allowed = "one that takes a split: runs have theirs"
        raise opt.refuse("--estimator", name, allowed)
    arch = asked.model.architecture
    loads = [load_of(run) for run in runs]
    if name == inputs.BEST:
        theory = theory.with_(engine=engine_of(runs))
    if not isinstance(theory, Serving):
        loads = [load._replace(plan=_plain(load.plan)) for load in loads]
    with busy("compiling and evaluating"):
        lives = [
            once(Estimator.estimate_once, theory, arch, asked.hardware, x.workload, x.plan)
            for x in loads
        ]
    return {
        **asked.names,
        "estimator": name,
        "trust": inputs.trust(name, theory, asked).fields(),
        "runs": [
            {
                "run": run.place,
                "isl_tokens": run.isl,
                "osl_tokens": run.osl,
                "concurrency": run.concurrency,
                "request_rate_per_s": run.request_rate,
                "measured": dict(_figures(run)),
                "predicted": _predicted(life, asked),
            }
            for run, life in zip(runs, lives, strict=True)
        ],
    }


def _plain(plan: Deployment) -> Plan:
    """A deployment on as many chips for theories whose instances have tp x pp x ep."""
    return Plan.of(tp=plan.tp * plan.attention_dp / plan.ep, pp=plan.pp, ep=plan.ep)


def _figures(run: Run) -> Iterator[tuple[str, float]]:
    """The outputs of a server that a run has measured, in the units of JSON."""
    speed = run.output_throughput
    found = {
        "ttft": run.ttft.typical,
        "tpot": run.tpot.typical,
        "latency": run.e2el.typical,
        "throughput": speed / run.chips if speed and run.chips else None,
        "power": run.power,
    }
    for output in SERVERS:
        value = found.get(output.name)
        if value is not None:
            yield output.plain_key, output.factor * value
