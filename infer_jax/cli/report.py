"""`infer-jax report`: one page with everything about one plan, and where each number is from."""

from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

from infer_jax import planning
from infer_jax.catalog.files import write_text
from infer_jax.cli import kernels, options as opt, picture, show
from infer_jax.cli.answered import Answers, Chosen, Pool, lead
from infer_jax.cli.reported import page
from infer_jax.cli.runtime import prepare
from infer_jax.compiling import once
from infer_jax.design.sensitivity import analyser, outputs
from infer_jax.estimators import Estimator
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.registry import variant
from infer_jax.estimators.serving import Deployment
from infer_jax.estimators.trust import pools as unseen
from infer_jax.footprint import memory as held_by
from infer_jax.launch import launches, service
from infer_jax.specs import ForwardPass, Plan, Workload
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import frontier_points as points, inputs
from infer_jax.verbs.memory import started
from infer_jax.verbs.progress import busy
from infer_jax.verbs.split import plan_of

GPUS = 8.0  # among which a plan is looked for where nothing is given: one server


def report(
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
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="The page, a name that ends in .html.")
    ] = "report.html",
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """One HTML page: frontier, time, memory, sensitivity, roofline, launch commands, sources."""
    prepare()
    picture.check(out, (".html",), "")
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    given = {"config": config, "hardware": hardware, "quant": quant, "kv-dtype": kv_dtype}
    given |= {"price": price, "total-gpus": total_gpus}
    name = estimator or inputs.BEST
    theory = inputs.estimator(name, asked)
    if theory.searches:
        raise opt.refuse("--estimator", name, "one that takes a split: serving, economics.planned")
    work = inputs.workload(isl, osl, prefix)
    with busy("choosing a plan"):
        if tp is None and pp is None and ep is None:
            _searchable(name, dp, batch)
            wanted = planning.Asked(
                ttft=ttft or np.inf,
                tpot=tpot or np.inf,
                chips=total_gpus or GPUS,
                usual_ttft=ttft is None,
            )
            chosen = _first(asked, theory, work, wanted)
        else:
            plan, _ = plan_of(asked.model.architecture, tp, pp, ep, dp, total_gpus, name)
            t, e, p = (float(x) for x in (plan.tp, plan.ep, plan.pp))
            layout = planning.Layout(tp=t, attention_dp=e, ep=e, pp=p)
            chosen = Chosen(layout, dp, batch or 1.0, "The plan is as given.")
    work = inputs.workload(isl, osl, prefix, chosen.batch)
    with busy("compiling and evaluating"):
        answers = _answers(asked, given, name, theory, work, chosen)
    write_text(Path(out), page(answers, (ttft, tpot)))
    life = answers.life
    summary = {
        **asked.names,
        "report": out,
        "estimator": name,
        "trust": answers.trusted.fields(),
        "layout": chosen.words,
        "plan": chosen.degrees,
        "batch": chosen.batch,
        "feasible": bool(life.feasible),
        "ttft_ms": 1e3 * life.ttft,
        "tpot_ms": 1e3 * life.tpot,
        "speed_tokens_per_s": life.speed,
        "output_cost_per_mtok_usd": life.cost,
        "frontier": answers.rows,
        "launch": {launch.engine: launch.to_dict() for launch in answers.launches},
        "notes": answers.notes,
    }
    if as_json:
        show.as_json(summary)
    else:
        show.say(answers.trusted.says, lead(answers, (ttft, tpot)), f"Report: {out}.")


def _searchable(name: str, dp: float, batch: float | None) -> None:
    """Raise InputError where a plan is to be searched and an option fixes a part of it."""
    if not name.startswith("serving"):
        raise opt.refuse("--tp", "missing", "--tp (with --pp, --ep), or --estimator serving")
    if dp > 1:
        raise opt.refuse("--dp", dp, "with --tp: copies of a plan that is looked for")
    if batch is not None:
        raise opt.refuse("--batch", batch, "with --tp: a plan that is looked for has its own")


def _first(asked: inputs.Given, theory: Any, work: Workload, wanted: planning.Asked) -> Chosen:
    """The plan that `infer-jax plan` prints first, or the nearest miss."""
    size, _ = planning.machine(asked.hardware, asked.system.title)
    side = planning.Side(asked.system.name, asked.hardware, theory, size)
    found = planning.search([side], asked.model.architecture, work, wanted, Deployment.of())
    first = found.first
    gpus = f"{wanted.chips:g} GPUs"
    if first is None:
        raise opt.refuse("--total-gpus", f"{wanted.chips:g}", "more: no layout fits so few GPUs")
    if found.met:
        limits = np.isfinite((wanted.ttft, wanted.tpot)).any() or found.usual
        why = f"The cheapest of {found.configurations} layouts and batches on {gpus}"
        why += " that meet the limits." if limits else "."
        why += f" TTFT is kept within {planning.USUAL_TTFT:g} s." if found.usual else ""
    else:
        broken = ", ".join(f"{name} by {share:.1%}" for name, share in first.excess.items())
        why = f"No plan on {gpus} meets every limit; the nearest breaks {broken}."
    if "prefill" not in first.degrees:
        layout, copies = _layout(first.degrees, "replicas")
        return Chosen(layout, copies, first.batch, why)
    layout, copies = _layout(first.degrees["decode"], "instances")
    prompt = first.degrees["prefill"]
    pool = Pool(*_layout(prompt, "instances"), prompt["batch"])
    return Chosen(layout, copies, first.batch, why, pool)


def _layout(degrees: dict[str, Any], count: str) -> tuple[planning.Layout, float]:
    """Degrees of an instance, and how many there are of it."""
    names = planning.Layout._fields
    layout = planning.Layout(**{name: x for name, x in degrees.items() if name in names})
    return layout, degrees[count]


def _answers(
    asked: inputs.Given,
    given: dict[str, Any],
    name: str,
    theory: Estimator,
    work: Workload,
    chosen: Chosen,
) -> Answers:
    """Every verb's answer about one plan."""
    arch, hardware = asked.model.architecture, asked.hardware
    trusted = inputs.trust(name, theory, asked)
    theory, plan, prompts, common = _plans(name, theory, chosen)
    context = float(work.isl + work.osl)
    said = [] if chosen.prefill is None else [unseen()]
    engine, overheads = started(asked.system)
    engine = engine.with_(context=context)
    planned = inputs.estimator(points.PLANNED, asked)
    splits = points.engine_layouts(asked, given["total-gpus"])
    swept = points.evaluate(planned, asked, work, splits, points.BATCHES)
    front = swept.frontier()
    liked = front.preferred() if len(front) else -1
    served = service(
        given["config"],
        asked.model,
        [asked.system],
        chosen.degrees,
        chosen.batch,
        (float(work.isl), float(work.osl)),
        (given["quant"], given["kv-dtype"]),
    )
    return Answers(
        asked=asked,
        given=given,
        estimator=name,
        trusted=trusted,
        theory=theory,
        work=work,
        chosen=chosen,
        plan=plan,
        life=once(Estimator.estimate_once, theory, arch, hardware, work, plan),
        rows=[points.row(front, i, preferred=i == liked) for i in range(len(front))],
        nothing="" if len(front) else points.why_nothing(swept),
        held=once(held_by, arch, hardware, common, engine, overheads),
        engine=engine,
        elasticities=analyser(outputs, point := Point(theory, arch, hardware, work, plan))(point),
        kernels=_profiles(asked, work, prompts, common),
        launches=launches(served),
        notes=[
            chosen.why,
            *said,
            *asked.notes,
            *inputs.too_long(asked.model, work),
        ],
    )


def _plans(name: str, theory: Estimator, chosen: Chosen) -> tuple[Estimator, Plan, Plan, Plan]:
    """The estimator with its plan, and plain plans of what prefills and of what decodes.

    Memory and kernels know groups of tp GPUs, over which experts are dealt: the same bytes.
    """
    layout, pool = chosen.layout, chosen.prefill
    common = Plan.of(tp=layout.tp, pp=layout.pp, ep=layout.attention_dp, dp=chosen.copies)
    if pool is None:
        served = name.startswith("serving")
        plan = Deployment.of(**layout._asdict(), dp=chosen.copies) if served else common
        return theory, plan, common, common
    first = pool.layout
    prompts = Plan.of(tp=first.tp, pp=first.pp, ep=first.attention_dp, dp=pool.copies)
    plan = Pools.of(
        prefill=Deployment.of(**first._asdict()),
        decode=Deployment.of(**layout._asdict()),
        prefill_copies=pool.copies,
        decode_copies=chosen.copies,
        prefill_batch=pool.batch,
    )
    return Disaggregated.of(target=theory), plan, prompts, common


def _profiles(
    asked: inputs.Given, work: Workload, first: Plan, second: Plan
) -> dict[str, list[dict[str, Any]]]:
    """Kernels of one GPU by the curves of the profile or at the roofline.

    Of prefill under the ``first`` plan, of decode under the ``second``.
    """
    theory, own = variant("kernels").make(), asked.system.coefficients.get("kernels")
    theory = theory.fitted(own) if own else theory

    arch = asked.model.architecture
    made = once(_passes, theory, arch, asked.hardware, work, (first, second))
    return {stage: kernels.rows(arch, found) for stage, found in made.items()}


def _passes(
    theory: Any, arch: Any, hardware: Any, work: Workload, plans: tuple[Plan, Plan]
) -> dict[str, Any]:
    prompt, token = plans
    new = jax.numpy.maximum(work.isl - work.prefix, 1.0)
    passes = (
        ForwardPass(sequences=prompt.ep, new_tokens=new, cached_tokens=work.prefix),
        ForwardPass(
            sequences=jax.numpy.maximum(work.batch, token.ep),
            new_tokens=jax.numpy.ones_like(work.batch),
            cached_tokens=decode_context(work),
        ),
    )
    found = zip(passes, plans, strict=True)
    prefill, decode = (kernels.profiled(theory, arch, hardware, f, plan) for f, plan in found)
    return {"prefill": prefill, "decode": decode}
