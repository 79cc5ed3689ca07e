"""`infer-jax estimate`: one configuration, with every term of its time."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from infer_jax import legal
from infer_jax.catalog.published import Errors
from infer_jax.cli import inputs, options as opt, show
from infer_jax.cli.starting import busy, once, prepare
from infer_jax.estimators import Economics, Estimate, Phase
from infer_jax.estimators.estimate import request_life
from infer_jax.estimators.serving import Served
from infer_jax.specs import Architecture, ForwardPass, Plan
from infer_jax.specs.plan import LAYOUTS


def estimate(
    config: opt.Config,
    hardware: opt.HardwareName,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,  # pyright: ignore[reportArgumentType]
    total_gpus: opt.TotalGpus = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    batch: opt.Batch = None,
    concurrency: opt.Concurrency = None,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    draft: opt.Draft = None,
    acceptance: opt.Acceptance = None,
    as_json: opt.Json = False,
) -> None:
    """What does one configuration answer: TTFT, TPOT, tokens/s, $/Mtok, and where time goes."""
    prepare()
    asked = inputs.given(config, hardware, quant, kv_dtype, price)
    arch = asked.model.architecture
    plan, name = plan_of(arch, tp, pp, ep, dp, total_gpus, estimator)
    theory = inputs.estimator(name, asked.system)
    shipped = inputs.shipped_errors(name, theory, asked.system)
    agree(theory, name, total_gpus)
    if batch is not None and concurrency is not None:
        raise opt.refuse("--concurrency", concurrency, "--batch or --concurrency, not both")
    running = concurrency / dp if concurrency is not None else batch or 1.0
    work = inputs.workload(isl, osl, prefix, running)
    theory, said = inputs.speculative(theory, draft, acceptance, asked, paper=False)
    said += inputs.borrowed(name, asked.system)
    with busy("compiling and evaluating"):
        life: Estimate = once(one_life, theory, arch, asked.hardware, work, plan)
    limits = {
        name: {"limit_ms": 1e3 * limit, "value_ms": 1e3 * value, "met": bool(value <= limit)}
        for name, limit, value in (("ttft", ttft, life.ttft), ("tpot", tpot, life.tpot))
        if limit is not None
    }
    report = {
        **asked.names,
        "estimator": name,
        "isl_tokens": isl,
        "osl_tokens": osl,
        "prefix_tokens": prefix,
        "batch": running,
        "concurrency": running * dp,
        "gpus": life.chips,
        "copies": dp,
        "total_gpus": life.chips * dp,
        "feasible": bool(life.feasible),
        "ttft_ms": 1e3 * life.ttft,
        "tpot_ms": 1e3 * life.tpot,
        "speed_tokens_per_s": life.speed,
        "throughput_per_gpu_tokens_per_s": life.throughput,
        "throughput_tokens_per_s": life.throughput * life.chips * dp,
        "output_cost_per_mtok_usd": life.cost,
        "input_cost_per_mtok_usd": life.input_cost,
        **_loaded(life, asked, shipped),
        "limits": limits,
        "prefill": _phase(life.prefill),
        "decode": _phase(life.decode),
    }
    notes = _notes(report, said, shipped) + asked.notes + inputs.too_long(asked.model, work)
    if as_json:
        show.as_json({**report, "notes": notes})
        return
    _print(report, life, notes)


def plan_of(
    arch: Architecture,
    tp: float | None,
    pp: float | None,
    ep: float | None,
    dp: float,
    total: float | None,
    name: str | None,
) -> tuple[Plan, str]:
    """The plan and the estimator that is meant: a given split, or GPUs to be split."""
    if total is None:
        if tp is None and pp is None and ep is None:
            raise opt.refuse("--tp", "missing", "--tp (with --pp, --ep), or --total-gpus")
        check_split(arch, tp or 1.0, pp or 1.0, ep or 1.0)
        plan = Plan.of(tp=tp or 1.0, pp=pp or 1.0, ep=ep or 1.0, dp=dp)
        return plan, name or inputs.BEST
    if tp is not None or pp is not None or ep is not None:
        raise opt.refuse("--total-gpus", total, "--total-gpus, or --tp, --pp and --ep, not both")
    if total % dp:
        raise opt.refuse("--total-gpus", total, f"a multiple of --dp, {dp:g}")
    return Plan.of(tp=total / dp, dp=dp), name or inputs.SEARCHING


def check_split(arch: Architecture, tp: float, pp: float, ep: float) -> None:
    """Raise InputError unless an engine can deal the model out so; ``infer_jax.legal`` decides."""
    rule = legal.broken(arch, Plan.of(tp=tp, pp=pp, ep=ep))
    if rule is not None:
        raise opt.refuse(f"--{rule.field}", float(rule.value), rule.allowed())


def agree(theory: Any, name: str, total: float | None) -> None:
    """Raise InputError where the estimator searches the split and one is given, or the reverse."""
    if total is None and inputs.searches(theory):
        allowed = "one that takes a split, such as serving; or give --total-gpus"
        raise opt.refuse("--estimator", name, allowed)
    if total is not None and not inputs.searches(theory):
        raise opt.refuse("--estimator", name, "one that searches the split; or give --tp")


def one_life(theory: Any, arch: Any, hardware: Any, work: Any, plan: Any) -> Estimate:
    """``theory.estimate``, with both passes in one loop so that a search is compiled once."""
    if not isinstance(theory, Economics):
        return theory.estimate(arch, hardware, work, plan)
    asked: list[ForwardPass] = []
    blank = Phase(time=work.batch, terms={}, limits={}, mfu=work.batch, layout={})
    asking = SimpleNamespace(step=lambda a, h, forward, p: asked.append(forward) or blank)
    request_life(asking, arch, hardware, work, plan)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *asked)
    phases = jax.lax.map(lambda forward: theory.step(arch, hardware, forward, plan), stacked)
    each = iter([jax.tree.map(lambda x, i=i: x[i], phases) for i in range(len(asked))])
    return request_life(SimpleNamespace(step=lambda *_: next(each)), arch, hardware, work, plan)


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "time_ms": 1e3 * phase.time,
        "terms": {f"{name}_ms": 1e3 * term for name, term in phase.terms.items()},
        "shares": {name: term / phase.time for name, term in phase.terms.items()},
        "mfu": phase.mfu,
        "feasible": bool(phase.feasible),
        "limits": {name: show.limit_of(name, limit) for name, limit in phase.limits.items()},
        "layout": dict(phase.layout),
    }


def _loaded(life: Estimate, asked: inputs.Given, shipped: Errors | None) -> dict[str, Any]:
    """What an estimate of a loaded server says beyond any other."""
    if not isinstance(life, Served):
        return {}
    return {
        **inputs.bands(asked.system, float(life.ttft), float(life.tpot), shipped),
        "latency_ms": 1e3 * life.latency,
        "tpot_with_first_ms": 1e3 * life.tpot_with_first,
        "running": life.running,
        "places": life.places,
        "blended_cost_per_mtok_usd": life.blended_cost,
        "power_per_gpu_w": life.power,
        "output_energy_per_mtok_j": life.energy,
        "input_energy_per_mtok_j": life.input_energy,
        "blended_energy_per_mtok_j": life.blended_energy,
    }


def _notes(report: dict[str, Any], said: list[str], shipped: Errors | None) -> list[str]:
    if "running" in report:
        return [
            f"A server that keeps {report['batch']:.6g} requests in flight; both times are means "
            "and hold the prefills of other requests and all waits.",
            "Time per output token is (latency - time to first token) / (osl - 1); with the first "
            f"token, latency / osl, it is {_of(report['tpot_with_first_ms'])} ms.",
            *(
                f"80 % of measured runs: {name.upper()} {_of(ends[0])} to {_of(ends[1])} ms, by "
                + ("rows left out of the fit." if shipped else "the calibration of this profile.")
                for name in ("ttft", "tpot")
                if (ends := report.get(f"{name}_interval80_ms"))
            ),
            *said,
        ]
    context = report["isl_tokens"] + (report["osl_tokens"] - 1) / 2
    return [
        f"Prefill of {report['isl_tokens'] - report['prefix_tokens']:.12g} new tokens of one "
        f"request on an idle instance; decode of one token for a batch of {report['batch']:.6g} at "
        f"{context:.12g} tokens of context, isl + (osl - 1) / 2.",
        f"Estimator: {report['estimator']}; memory and compute overlap, so that shares may add up "
        "to more than 100 %.",
        *said,
    ]


def _print(report: dict[str, Any], life: Estimate, notes: list[str]) -> None:
    copies = f" x {report['copies']:g} copies" if report["copies"] > 1 else ""
    show.say(f"{report['model']} on {float(life.chips):g} {report['hardware']}{copies}", "")
    for title, phase in (("prefill", life.prefill), ("decode", life.decode)):
        for name, limit in phase.limits.items():
            if limit.need > limit.capacity:
                show.say(f"Not feasible: {title}: {show.broken(name, limit)}.")
    show.table(
        (
            show.Column("answer", left=True),
            show.Column("value"),
            show.Column("unit", left=True),
            show.Column("limit", left=True),
        ),
        [
            ["time to first token", _of(report["ttft_ms"]), "ms", _met(report, "ttft")],
            ["time per output token", _of(report["tpot_ms"]), "ms", _met(report, "tpot")],
            ["speed of a request", _of(life.speed), "tokens/s", ""],
            ["throughput per GPU", _of(life.throughput), "tokens/s", ""],
            ["throughput", _of(report["throughput_tokens_per_s"]), "tokens/s", ""],
            ["output tokens", _of(life.cost), "$/Mtok", ""],
            ["input tokens", _of(life.input_cost), "$/Mtok", ""],
            *(
                [
                    ["output tokens", _of(life.energy), "J/Mtok", ""],
                    ["input tokens", _of(life.input_energy), "J/Mtok", ""],
                    ["power of a GPU", _of(life.power), "W", ""],
                    ["requests running", _of(life.running), "", ""],
                ]
                if isinstance(life, Served)
                else []
            ),
        ],
    )
    both = (life.prefill, life.decode)
    spent = sorted({**life.prefill.terms, **life.decode.terms}, key=lambda k: -_longest(both, k))
    spent = [name for name in spent if not isinstance(life, Served) or _longest(both, name) > 0]
    rows = [[name, *(cell for p in both for cell in _spent(p, name))] for name in spent]
    rows.append(["time", _of(1e3 * life.ttft), "100", _of(1e3 * life.tpot), "100"])
    rows.append(["MFU", "", _of(100 * life.prefill.mfu), "", _of(100 * life.decode.mfu)])
    show.say("")
    show.table(
        (
            show.Column("spent on", left=True),
            *(show.Column(t, u) for t in ("prefill", "decode") for u in ("ms", "%")),
        ),
        rows,
    )
    show.say("")
    show.table(
        (
            show.Column("limit", left=True),
            show.Column("need"),
            show.Column("capacity"),
            show.Column("slack"),
            show.Column("met", left=True),
        ),
        [row for t, p in zip(("prefill", "decode"), both, strict=True) for row in _limits(t, p)],
    )
    for title, phase in (("prefill", life.prefill), ("decode", life.decode)):
        notes.append(f"Layout of {title}: {_layout(phase)}.")
    show.notes(notes)


def _layout(phase: Phase) -> str:
    named = {name: show.digits(x) for name, x in phase.layout.items()}
    if "layout" in named and named["layout"] in "01":
        named["layout"] = LAYOUTS[int(named["layout"])]
    return ", ".join(f"{name} {x}" for name, x in named.items())


def _of(value: Any) -> str:
    return show.digits(value, 4)


def _met(report: dict[str, Any], name: str) -> str:
    limit = report["limits"].get(name)
    if limit is None:
        return ""
    return f"{_of(limit['limit_ms'])} ms: {'met' if limit['met'] else 'broken'}"


def _longest(phases: tuple[Phase, Phase], name: str) -> float:
    return max(float(p.terms[name] / p.time) for p in phases if name in p.terms)


def _spent(phase: Phase, name: str) -> tuple[str, str]:
    if name not in phase.terms:
        return "", ""
    term = phase.terms[name]
    return _of(1e3 * term), show.digits(100 * term / phase.time)


def _limits(title: str, phase: Phase) -> list[list[str]]:
    rows = []
    for name, limit in phase.limits.items():
        if limit.need == limit.capacity == 0:  # nothing asked of a tier that is absent
            continue
        said = show.size if name.endswith("memory") else _of
        met = "yes" if limit.need <= limit.capacity else "no"
        numbers = (limit.need, limit.capacity, limit.capacity - limit.need)
        rows.append([f"{name}, {title}", *(said(x) for x in numbers), met])
    return rows
