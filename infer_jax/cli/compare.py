"""`infer-jax compare`: two estimators, or a prediction and what was measured, term by term."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from infer_jax.catalog.measurements import Run, read_runs
from infer_jax.cli import inputs, options as opt, runs as given_runs, show
from infer_jax.cli.estimate import agree, one_life, plan_of
from infer_jax.cli.starting import busy, prepare
from infer_jax.compiling import once
from infer_jax.estimators import Estimate
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.estimators.trust import BORROWED
from infer_jax.specs import Plan

SHOWN = 8  # measured runs that are printed; JSON has all
ANSWERS = {  # of an estimate: title, unit, factor
    "ttft": ("time to first token", "ms", 1e3),
    "tpot": ("time per output token", "ms", 1e3),
    "latency": ("latency of a request", "ms", 1e3),
    "throughput": ("output per GPU", "tokens/s", 1.0),
    "cost": ("output tokens", "$/Mtok", 1.0),
    "input_cost": ("input tokens", "$/Mtok", 1.0),
    "power": ("power of a GPU", "W", 1.0),
}


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
    as_json: opt.Json = False,
) -> None:
    """Where do two estimators differ, or a prediction and a measurement: TTFT, TPOT, every term?"""
    prepare()
    asked = inputs.given(config, hardware, quant, kv_dtype, price)
    names = estimator or []
    if runs is None:
        given = {"--engine": engine, "--dp": dp, "--concurrency": concurrency}
        given |= {"--request-rate": request_rate, "--sidecar": sidecar}
        for option, value in given.items():
            if value is not None:
                raise opt.refuse(option, str(value), "only with --measured")
        best = inputs.BEST if total_gpus is None else inputs.SEARCHING
        names = names if len(names) != 1 else [best, *names]
        if len(set(names)) != 2:
            raise opt.refuse("--estimator", len(names), "two of them, or --measured FILE")
        report = _estimators(asked, names, (tp, pp, ep, total_gpus), isl, osl, batch)
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
        report = _measured(asked, names[0] if names else inputs.BEST, found)
    if as_json:
        show.as_json({**report, "notes": asked.notes})
        return
    if runs is None:
        _print_two(report, asked.notes)
    else:
        _print_runs(report, asked.notes)


def _estimators(
    asked: inputs.Given,
    names: Sequence[str],
    split: tuple[float | None, float | None, float | None, float | None],
    isl: float | None,
    osl: float | None,
    batch: float | None,
) -> dict[str, Any]:
    """Both estimators' answers to one question."""
    arch, (tp, pp, ep, total) = asked.model.architecture, split
    work = inputs.workload(4096.0 if isl is None else isl, osl or 512.0, 0.0, batch or 1.0)
    lives, trusted = [], []
    for name in names:
        plan, _ = plan_of(arch, tp, pp, ep, 1.0, total, name)
        theory = inputs.estimator(name, asked.system)
        agree(theory, name, total)
        trusted.append(inputs.trust(name, theory, asked))
        with busy(f"compiling and evaluating {name}"):
            lives.append(once(one_life, theory, arch, asked.hardware, work, plan))
    return {
        **asked.names,
        "isl_tokens": work.isl,
        "osl_tokens": work.osl,
        "batch": work.batch,
        "estimators": [
            {"name": known.estimator, "trust": known.fields(), **_predicted(life, asked)}
            for known, life in zip(trusted, lives, strict=True)
        ],
    }


def _predicted(life: Estimate, asked: inputs.Given) -> dict[str, Any]:
    answers: dict[str, float | None] = {**_answers(life)}
    if "power" in answers:
        answers["power"] = show.known(asked.hardware.power)(answers["power"])
    return {
        "feasible": bool(life.feasible),
        "answers": {f"{k}_{_suffix(k)}": x for k, x in answers.items()},
        "prefill_ms": {k: 1e3 * x for k, x in life.prefill.terms.items()},
        "decode_ms": {k: 1e3 * x for k, x in life.decode.terms.items()},
    }


def _answers(life: Estimate) -> dict[str, float]:
    """The ``ANSWERS`` that an estimate has, in their units."""
    return {
        key: factor * float(getattr(life, key))
        for key, (_, _, factor) in ANSWERS.items()
        if hasattr(life, key)
    }


def _suffix(key: str) -> str:
    unit = ANSWERS[key][1]
    return {"$/Mtok": "per_mtok_usd", "tokens/s": "tokens_per_s"}.get(unit, unit.lower())


def _measured(asked: inputs.Given, name: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Each run's own figures beside the estimator's for the same load and layout."""
    from infer_jax.calibrate.runs import engine_of, load_of

    theory = inputs.estimator(name, asked.system)
    if inputs.searches(theory):
        allowed = "one that takes a split: runs have theirs"
        raise opt.refuse("--estimator", name, allowed)
    arch = asked.model.architecture
    loads = [load_of(run) for run in runs]
    if name == inputs.BEST:
        theory = theory.but(engine=engine_of(runs))
    if not isinstance(theory, Serving):
        loads = [load._replace(plan=_plain(load.plan)) for load in loads]
    with busy("compiling and evaluating"):
        lives = [once(one_life, theory, arch, asked.hardware, x.workload, x.plan) for x in loads]
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
                "measured": {f"{k}_{_suffix(k)}": x for k, x in _figures(run)},
                "predicted": _predicted(life, asked),
            }
            for run, life in zip(runs, lives, strict=True)
        ],
    }


def _plain(plan: Deployment) -> Plan:
    """A deployment on as many chips for theories whose instances have tp x pp x ep."""
    return Plan.of(tp=plan.tp * plan.attention_dp / plan.ep, pp=plan.pp, ep=plan.ep)


def _figures(run: Run) -> Iterator[tuple[str, float]]:
    """The ``ANSWERS`` that a run has, in their units."""
    speed = run.output_throughput
    found = {
        "ttft": run.ttft.typical,
        "tpot": run.tpot.typical,
        "latency": run.e2el.typical,
        "throughput": speed / run.chips if speed and run.chips else None,
        "power": run.power,
    }
    for key, value in found.items():
        if value is not None:
            yield key, ANSWERS[key][2] * value


def _print_two(report: dict[str, Any], notes: list[str]) -> None:
    one, two = report["estimators"]
    show.say(
        f"{report['model']} on {report['hardware']}: isl {float(report['isl_tokens']):g}, osl "
        f"{float(report['osl_tokens']):g}, batch {float(report['batch']):g}",
        *(each["trust"]["says"] for each in (one, two)),
        "",
    )
    titles = {f"{k}_{_suffix(k)}": (title, unit) for k, (title, unit, _) in ANSWERS.items()}
    heads = (
        show.Column("answer", left=True),
        show.Column("unit", left=True),
        show.Column(_marked(one)),
        show.Column(_marked(two)),
        show.Column("second over first"),
    )
    rows = [
        [*titles[k], *_both(one["answers"].get(k, "-"), two["answers"].get(k, "-"))]
        for k in titles
        if k in one["answers"] or k in two["answers"]
    ]
    show.table(heads, rows)
    for phase in ("prefill", "decode"):
        show.say("")
        terms = [x[f"{phase}_ms"] for x in (one, two)]
        every = sorted(
            {k for each in terms for k in each}, key=lambda k: -max(t.get(k, 0.0) for t in terms)
        )
        show.table(
            (
                show.Column(f"{phase}, spent on", left=True),
                show.Column(_marked(one), "ms"),
                show.Column(_marked(two), "ms"),
                show.Column("second over first"),
            ),
            [
                [k, *_both(*(t.get(k, "-") for t in terms))]
                for k in every
                if any(t.get(k) for t in terms)
            ],
        )
    for each in (one, two):
        if not each["feasible"]:
            show.say("", f"Not feasible by {each['name']}: see infer-jax estimate.")
    show.notes(
        [
            "Terms of one name need not be the same work in two estimators; where memory and "
            "compute overlap, terms add up to more than the time.",
            *notes,
        ]
    )


def _marked(estimator: dict[str, Any]) -> str:
    """An estimator's name as the head of a column, marked where coefficients are borrowed."""
    return f"{estimator['name']} {BORROWED if estimator['trust']['borrowed_from'] else ''}".rstrip()


def _print_runs(report: dict[str, Any], notes: list[str]) -> None:
    known = report["trust"]
    show.say(f"{report['model']} on {report['hardware']}: measured, and predicted", known["says"])
    titles = {f"{k}_{_suffix(k)}": (title, unit) for k, (title, unit, _) in ANSWERS.items()}
    for run in report["runs"][:SHOWN]:
        load = (
            f"concurrency {run['concurrency']:g}"
            if run["request_rate_per_s"] is None
            else f"{run['request_rate_per_s']:g} requests/s"
        )
        lengths = f"isl {run['isl_tokens']:g}, osl {run['osl_tokens']:g}"
        show.say("", f"{run['run']}: {load}, {lengths}", "")
        predicted = run["predicted"]
        show.table(
            (
                show.Column("answer", left=True),
                show.Column("unit", left=True),
                show.Column("measured"),
                show.Column(f"predicted {BORROWED if known['borrowed_from'] else ''}".rstrip()),
                show.Column("predicted over measured"),
            ),
            [
                [*titles[k], *_both(value, predicted["answers"].get(k, "-"))]
                for k, value in run["measured"].items()
            ],
        )
        for phase, title in (("prefill", "first token"), ("decode", "every other token")):
            terms = sorted(predicted[f"{phase}_ms"].items(), key=lambda item: -float(item[1]))
            least = 1e-4 * sum(float(x) for _, x in terms)
            said = [f"{k} {show.digits(x)} ms" for k, x in terms if float(x) > least]
            show.say(f"Predicted {title}: {', '.join(said)}.")
    more = len(report["runs"]) - SHOWN
    said = [f"{more} more runs: --json has all."] if more > 0 else []
    if any(run["request_rate_per_s"] is not None for run in report["runs"]):
        said.append(
            "Requests that arrive by themselves are priced as if as many were kept in flight as "
            "were on average; their time to first token waits by another law."
        )
    show.notes([*said, *notes])


def _both(one: Any, two: Any) -> tuple[str, str, str]:
    cells = [x if isinstance(x, str) else show.or_unknown(x, 4) for x in (one, two)]
    if any(x is None or isinstance(x, str) for x in (one, two)) or not float(one):
        return cells[0], cells[1], "-"
    return cells[0], cells[1], f"{float(two) / float(one):.3g}"
