"""Every verb's answer about the plan of a report."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp

from infer_jax.catalog.measured_points import latency
from infer_jax.compiling import once
from infer_jax.design.sensitivity import analyser, outputs_without_power
from infer_jax.estimators import Estimate, Estimator
from infer_jax.estimators.disaggregated import OUTSIDE
from infer_jax.estimators.estimate import decode_context, fresh_tokens
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.known_errors import pools as trust_of_pools
from infer_jax.estimators.registry import variant
from infer_jax.footprint import memory as held_by
from infer_jax.launch import budget, launches, service
from infer_jax.pages.tradeoff import Plotted, Tradeoff
from infer_jax.planning import USUAL_TTFT
from infer_jax.specs import Architecture, ForwardPass, Hardware, Plan, Workload
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import bands, frontier_page, inputs, kernel_rows
from infer_jax.verbs.frontier import frontier
from infer_jax.verbs.frontier_result import FrontierResult
from infer_jax.verbs.inputs import Given
from infer_jax.verbs.kernel_rows import KernelRow
from infer_jax.verbs.memory import server_settings
from infer_jax.verbs.report_answers import Chosen, Costs, Limits, ReportData
from infer_jax.verbs.report_choice import GPUS, Options, Picked, plans_of
from infer_jax.verbs.report_commands import command, of_plan
from infer_jax.verbs.report_systems import HOURS, runs_of, tradeoff


def answers_of(options: Options, work: Workload, picked: Picked, limits: Limits) -> ReportData:
    """Every verb's answer about one plan."""
    asked, chosen, name = picked.given, picked.chosen, options.name
    arch, hardware = asked.model.architecture, asked.hardware
    fitted = inputs.estimator(name, asked)
    estimator, plan, prompts, common = plans_of(name, fitted, chosen)
    point = Point(estimator, arch, hardware, work, plan)
    estimate = once(Estimator.estimate_once, estimator, arch, hardware, work, plan)
    fastest = _fastest(options, work, asked, picked.form)
    times, pooled = (float(estimate.ttft), float(estimate.tpot)), chosen.prefill is not None
    intervals = bands.intervals(name, fitted, asked, times, pools=pooled, load=chosen.batch)
    wanted = service(
        options.config,
        asked.model,
        [asked.system],
        chosen.degrees,
        chosen.batch,
        (float(work.isl), float(work.osl)),
        (picked.form, options.kv_dtype),
    )
    engine, overheads = server_settings(asked.system)
    # the memory of the server that the launch commands start
    last = wanted.instances[-1]
    server = fitted.engine_name or "vllm"
    tokens = budget(last, wanted, server)
    context, most = float(work.isl + work.osl), float(last.group_requests)
    engine = engine.with_(context=context, sequences=most, batched_tokens=float(tokens))
    pools = [] if chosen.prefill is None else [trust_of_pools()]
    return ReportData(
        picked=picked,
        words=options.words(asked.system, picked.form),
        name=name,
        estimator=estimator,
        work=work,
        plan=plan,
        estimate=estimate,
        costs=_costs(point, estimate, picked, chosen),
        intervals=intervals,
        rows=fastest.rows(),
        held=once(held_by, arch, hardware, common, engine, overheads),
        engine=engine,
        elasticities=analyser(outputs_without_power, point, "estimator", exact=False)(point),
        kernels=_profiles(asked, work, prompts, common),
        launches=launches(wanted),
        tradeoff=_tradeoff(options, work, picked, limits, intervals, fastest),
        notes=[chosen.why, *pools, *asked.notes, *([fastest.why] if fastest.why else [])],
    )


def _fastest(options: Options, work: Workload, asked: Given, form: str | None) -> FrontierResult:
    """The frontier of ideal hardware on one system."""
    fastest = frontier(
        options.config,
        asked.system,
        quant=form,
        kv_dtype=options.kv_dtype,
        isl=float(work.isl),
        osl=float(work.osl),
        prefix=float(work.prefix),
        total_gpus=options.total_gpus,
        price=options.price,
        set=options.set,
    )
    assert isinstance(fastest, FrontierResult)  # of one system
    return fastest


def _costs(point: Point, estimate: Estimate, picked: Picked, chosen: Chosen) -> Costs:
    """The costs of the plan, also of a prompt token in the cache.

    The price of a cached token is such that computed and cached tokens add up to the cost of a
    prompt of which half, or the share given by ``--prefix``, is in the cache.
    """
    work, candidate = point.workload, picked.candidate
    isl, osl, prefix = (float(x) for x in (work.isl, work.osl, work.prefix))
    held = prefix or float(int(isl / 2))

    def paid(tokens: float) -> float:
        """USD per million prompts of which that many tokens are cached."""
        there = estimate
        if tokens != prefix:
            given = point.estimator, point.arch, point.hardware, work.with_(prefix=tokens)
            there = once(Estimator.estimate_once, *given, point.plan)
        input_cost = float(there.input_cost) * max(isl - tokens, 1.0)
        return _seconds(there) if chosen.prefill is not None else input_cost

    none, some = paid(0.0), paid(held)
    if chosen.prefill is not None:  # a pool is rented, however busy: what it is rented for, by time
        pool = float(estimate.input_cost) * max(isl - prefix, 1.0) / _seconds(estimate)
        none, some = none * pool, some * pool
    into = none / max(isl, 1.0)
    rate = candidate.throughput * candidate.gpus
    return Costs(
        hour=candidate.hourly,
        month=HOURS * candidate.hourly,
        blended=candidate.usd,
        into=into,
        out=float(estimate.cost),
        cached=(some - (isl - held) * into) / held if held else into,
        held=held,
        tokens=(rate / osl * isl, rate),
    )


def _seconds(estimate: Estimate) -> float:
    """Seconds of the pass of a pool that prefills."""
    first = estimate.prefill
    return float(first.time) - sum(float(first.terms[name]) for name in OUTSIDE)


def _tradeoff(
    options: Options,
    work: Workload,
    picked: Picked,
    limits: Limits,
    intervals: Mapping[str, Sequence[float]],
    fastest: FrontierResult,
) -> Tradeoff:
    """The chart of every system and format, with the plan."""
    systems = {c.label: c.given.system.name for c in picked.candidates}
    fronts, hidden = picked.frontiers, []
    if fronts is not None:
        plans = fronts.points()
        ideal = f"{picked.label}, ideal server"
        hidden, systems = [ideal], {**systems, ideal: picked.given.system.name}
        plans += _ideal(ideal, options, work, picked.given, picked.form, fastest)
    else:
        plans = []
        for label, form, given in options.each():
            mine = label == picked.label
            points = fastest if mine else _fastest(options, work, given, form)
            plans += _ideal(label, options, work, given, form, points)
    names = ", ".join(dict.fromkeys(systems.values()))
    title = f"Speed of a request against cost: plans of {picked.given.model.name} on {names}"
    chosen = plotted(options, picked, work, intervals)
    ttft, tpot = limits
    bounds = USUAL_TTFT if picked.usual else ttft, tpot
    runs = runs_of(picked.candidates, work)
    return tradeoff(plans, systems, chosen, bounds, runs, hidden, title)


def plotted(
    options: Options, picked: Picked, work: Workload, intervals: Mapping[str, Sequence[float]]
) -> Plotted:
    """The plan of the report as the chart shows it."""
    plan, words = picked.candidate, options.words(picked.given.system, picked.form)
    layout = picked.chosen.layout
    if picked.choice is not None:
        alone = of_plan(picked.choice, words, work, options.name, options.total_gpus or GPUS)
    elif words:
        degrees = {"tp": layout.tp, "pp": layout.pp, "ep": layout.ep, "dp": picked.chosen.copies}
        given = {k: x for k, x in words.items() if k not in ("config", "total-gpus")}
        more = {"isl": work.isl, "osl": work.osl, "batch": plan.batch, "estimator": options.name}
        alone = command("estimate", words["config"], {**given, **degrees, **more})
    else:
        alone = ""
    osl = float(work.osl)
    times = plan.ttft, plan.tpot, osl
    return Plotted(
        series=plan.label,
        layout=plan.layout,
        gpus=plan.gpus,
        batch=plan.batch,
        numbers={
            "speed": 1.0 / plan.tpot,
            "latency": latency(*times),
            "ttft": 1e3 * plan.ttft,
            "tpot": 1e3 * plan.tpot,
            "usd": plan.usd,
            "usd_out": plan.out,
            "rate": plan.throughput,
        },
        bands=bands.ends(intervals, times, (plan.usd, plan.throughput)),
        pools=picked.chosen.prefill is not None,
        command=alone,
    )


def _ideal(
    label: str,
    options: Options,
    work: Workload,
    given: Given,
    form: str | None,
    fastest: FrontierResult,
) -> list[Plotted]:
    """The frontier of ideal hardware, of decode alone."""
    words = dict(options.words(given.system, form))
    asked = ""
    if words:
        more = {"isl": work.isl, "osl": work.osl, "estimator": "economics.planned"}
        asked = command("frontier", words.pop("config"), {**words, **more, "out": None})
    return frontier_page.plotted(label, fastest.points, asked)


def _profiles(
    asked: Given, work: Workload, first: Plan, second: Plan
) -> dict[str, list[KernelRow]]:
    """Kernels of one GPU by the curves of the profile or at the roofline.

    Of prefill under the ``first`` plan, of decode under the ``second``.
    """
    estimator, own = variant("kernels").make(), asked.system.coefficients.get("kernels")
    estimator = estimator.fitted_to(asked.system.coefficients) if own else estimator
    arch = asked.model.architecture
    profiles = once(_passes, estimator, arch, asked.hardware, work, (first, second))
    return {stage: kernel_rows.rows(arch, profile) for stage, profile in profiles.items()}


def _passes(
    estimator: Kernels,
    arch: Architecture,
    hardware: Hardware,
    work: Workload,
    plans: tuple[Plan, Plan],
) -> dict[str, kernel_rows.Profile]:
    """The kernels of the prefill of a prompt in each group, and of a token of every request."""
    prompt, token = plans
    prefill = ForwardPass(
        sequences=prompt.ep, new_tokens=fresh_tokens(work), cached_tokens=work.prefix
    )
    decode = ForwardPass(
        sequences=jnp.maximum(work.batch, token.ep),
        new_tokens=jnp.ones_like(work.batch),
        cached_tokens=decode_context(work),
    )
    return {
        "prefill": kernel_rows.profiled(estimator, arch, hardware, prefill, prompt),
        "decode": kernel_rows.profiled(estimator, arch, hardware, decode, token),
    }
