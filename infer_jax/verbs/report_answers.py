"""Every verb's answer about the plan of a report, and its summary."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, SupportsFloat

import jax.numpy as jnp

from infer_jax.catalog.measured_points import MeasuredPoint
from infer_jax.compiling import once
from infer_jax.design.sensitivity import Elasticity, analyser, outputs_without_power
from infer_jax.estimators import Estimate, Estimator
from infer_jax.estimators.disaggregated import OUTSIDE, Pools
from infer_jax.estimators.estimate import decode_context, fresh_tokens
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.known_errors import pools as trust_of_pools
from infer_jax.estimators.registry import variant
from infer_jax.footprint import EngineSettings, StartupMemory, memory as startup_memory
from infer_jax.launch import Launch, budget, launches
from infer_jax.planning import USUAL_TTFT, Choice
from infer_jax.plots.plan_chart import PlanChart, PlanPoint, RunPoint
from infer_jax.results.numbers import digits
from infer_jax.specs import Architecture, ForwardPass, Hardware, Plan, Workload
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import bands, inputs, kernel_rows
from infer_jax.verbs.frontier import frontier
from infer_jax.verbs.frontier_result import FrontierResult, ideal_points
from infer_jax.verbs.inputs import Given
from infer_jax.verbs.kernel_rows import KernelRow
from infer_jax.verbs.memory import server_settings
from infer_jax.verbs.plan_columns import shares
from infer_jax.verbs.plan_launch import servers
from infer_jax.verbs.plan_page import Words, command, command_words, plan_point
from infer_jax.verbs.plan_search import Question
from infer_jax.verbs.report_choice import ReportSelection, ReportSystem, estimator_and_plans

ALIKE = 0.1  # share by which lengths of a measured run may differ from those asked for
HOURS = 730.0  # of a month: 365 x 24 / 12


class ReportData(NamedTuple):
    """The verbs' answers about one plan, and the plans that it was chosen among.

    ``words``: options of every command that the page names, by label; ``costs``: USD per hour and
    month and per million tokens, as JSON has them; ``rows``: the frontier of an ideal server;
    ``memory``: of a GPU of the server that the launch commands start.
    """

    selection: ReportSelection
    words: Mapping[str, Words]
    estimator: Estimator
    work: Workload
    plan: Plan | Pools
    estimate: Estimate
    costs: Mapping[str, float]
    intervals: Mapping[str, Sequence[float]]
    rows: Sequence[Mapping[str, object]]
    memory: StartupMemory
    engine: EngineSettings
    elasticities: list[Elasticity]
    kernels: Mapping[str, Sequence[KernelRow]]
    launches: list[Launch]
    chart: PlanChart
    notes: list[str]

    @property
    def chosen(self) -> Choice:
        """The plan."""
        return self.selection.chosen

    @property
    def system(self) -> ReportSystem:
        """The system of the plan."""
        return self.selection.system


def answers_of(
    selection: ReportSelection, work: Workload, *, named: bool, total: float | None
) -> ReportData:
    """Every verb's answer about one plan.

    ``named``: whether a command can name model and systems; ``total``: GPUs, where they are given.
    """
    question, chosen, (given, trust, form) = selection.question, selection.chosen, selection.system
    arch, hardware = given.model.architecture, given.hardware
    fitted = inputs.estimator(question.estimator, given)
    estimator, plan, prompts, common = estimator_and_plans(fitted, chosen.pools)
    point = Point(estimator, arch, hardware, work, plan)
    estimate = once(Estimator.estimate_once, estimator, arch, hardware, work, plan)
    ideal = _ideal_frontier(question, given, form, total)
    times, pooled = (float(estimate.ttft), float(estimate.tpot)), len(chosen.pools) > 1
    intervals = bands.intervals(fitted, trust, given, times, pools=pooled, load=chosen.batch)
    service = servers(chosen, question, [given], form)
    last, (engine, overheads) = service.instances[-1], server_settings(given.system)
    engine = engine.with_(
        context=float(work.isl + work.osl),
        sequences=float(last.group_requests),
        batched_tokens=float(budget(last, service, fitted.engine_name or "vllm")),
    )
    words = {
        label: command_words(question, x.given.system, x.form, total) if named else {}
        for label, x in selection.systems.items()
    }
    pools = [trust_of_pools()] if pooled else []
    return ReportData(
        selection=selection,
        words=words,
        estimator=estimator,
        work=work,
        plan=plan,
        estimate=estimate,
        costs=_costs(point, estimate, chosen),
        intervals=intervals,
        rows=ideal.rows(),
        memory=once(startup_memory, arch, hardware, common, engine, overheads),
        engine=engine,
        elasticities=analyser(outputs_without_power, point, "estimator", exact=False)(point),
        kernels=_kernels(given, work, (prompts, common)),
        launches=launches(service),
        chart=_chart(selection, replace(chosen, intervals=intervals), words, ideal, total),
        notes=[selection.why, *pools, *given.notes, *([ideal.why] if ideal.why else [])],
    )


def _ideal_frontier(
    question: Question, given: Given, form: str | None, total: float | None
) -> FrontierResult:
    """The frontier of ideal hardware on one system."""
    work = question.requests.work
    answer = frontier(
        question.config,
        given.system,
        quant=form,
        kv_dtype=question.kv_dtype,
        isl=float(work.isl),
        osl=float(work.osl),
        prefix=float(work.prefix),
        total_gpus=total,
        price=question.price,
        set=question.set,
    )
    assert isinstance(answer, FrontierResult)  # of one system
    return answer


def _costs(point: Point, estimate: Estimate, chosen: Choice) -> dict[str, float]:
    """The costs of the plan, also of a prompt token in the cache, for JSON.

    The price of a cached token is such that computed and cached tokens add up to the cost of a
    prompt of which half, or the share given by ``--prefix``, is in the cache.
    """
    isl, prefix = float(point.workload.isl), float(point.workload.prefix)
    cached, pooled = prefix or float(int(isl / 2)), len(chosen.pools) > 1

    def prompt_cost(tokens: float) -> float:
        """USD per million prompts of which that many tokens are cached; of pools, seconds."""
        answer = estimate
        if tokens != prefix:
            work = point.workload.with_(prefix=tokens)
            fixed = point.estimator, point.arch, point.hardware, work, point.plan
            answer = once(Estimator.estimate_once, *fixed)
        if pooled:
            return _prefill_seconds(answer)
        return float(answer.input_cost) * max(isl - tokens, 1.0)

    none, some = prompt_cost(0.0), prompt_cost(cached)
    if pooled:  # a pool is rented, however busy: what it is rented for, by time
        pool = float(estimate.input_cost) * max(isl - prefix, 1.0) / _prefill_seconds(estimate)
        none, some = none * pool, some * pool
    computed = none / max(isl, 1.0)
    return {
        "per_hour_usd": chosen.usd_per_hour,
        "per_month_usd": HOURS * chosen.usd_per_hour,
        "blended_per_mtok_usd": chosen.usd_per_mtok,
        "input_per_mtok_usd": computed,
        "cached_input_per_mtok_usd": (some - (isl - cached) * computed) / cached
        if cached
        else computed,
        "cached_input_tokens": cached,
        "output_per_mtok_usd": float(estimate.cost),
    }


def _prefill_seconds(estimate: Estimate) -> float:
    """Seconds of the pass of a pool that prefills."""
    first = estimate.prefill
    return float(first.time) - sum(float(first.terms[name]) for name in OUTSIDE)


def _chart(
    selection: ReportSelection,
    chosen: Choice,
    words: Mapping[str, Words],
    mine: FrontierResult,
    total: float | None,
) -> PlanChart:
    """The chart of every system and format, with the plan.

    ``mine``: the frontier of an ideal server of its system.
    """
    question, work = selection.question, selection.question.requests.work
    names = {c.label: selection.systems[c.label].given.system.name for c in selection.candidates}

    def ideal(label: str, series: str) -> list[PlanPoint]:
        """The frontier of ideal servers, of decode alone, as ``series``."""
        given, _, form = selection.systems[label]
        front, shell = mine, ""
        if label != chosen.label:
            front = _ideal_frontier(question, given, form, total)
        if words[label]:
            more = {"isl": work.isl, "osl": work.osl, "estimator": "economics.planned"}
            options = {k: x for k, x in words[label].items() if k != "config"}
            shell = command("frontier", words[label]["config"], {**options, **more})
        return ideal_points(series, front.points, shell)

    hidden, points = list[str](), list[PlanPoint]()
    if selection.frontiers is not None:
        choices = [c for front in selection.frontiers.values() for c in front]
        points = [plan_point(c, question, words[c.label]) for c in choices]
        hidden = [f"{chosen.label}, ideal server"]
        names |= {hidden[0]: selection.system.given.system.name}
        points += ideal(chosen.label, hidden[0])
    else:
        points = [point for label in selection.systems for point in ideal(label, label)]
    systems, model = ", ".join(dict.fromkeys(names.values())), selection.system.given.model.name
    limits = question.requirements
    ttft = USUAL_TTFT if selection.usual else limits.ttft
    seconds = [x if x < float("inf") else None for x in (ttft, limits.tpot)]
    return PlanChart.of(
        points,
        names,
        plan_point(chosen, question, words[chosen.label]),
        (seconds[0], seconds[1]),
        measured_runs({c.label: selection.systems[c.label] for c in selection.candidates}, work),
        hidden,
        f"Speed of a request against cost: plans of {model} on {systems}",
    )


def measured_runs(systems: Mapping[str, ReportSystem], work: Workload) -> list[RunPoint]:
    """Measured runs of this model whose lengths are these within a tenth, each system's once."""
    labels = {systems[x].given.system.name: x for x in reversed(list(systems))}
    runs = []
    for label in reversed(labels.values()):
        given = systems[label].given
        for run in given.system.measured:
            pairs = (run.isl, float(work.isl)), (run.osl, float(work.osl))
            if run.model == given.model.name and all(abs(a / b - 1.0) <= ALIKE for a, b in pairs):
                runs.append(_run_point(label, run, float(given.hardware.price)))
    return runs


def _run_point(label: str, run: MeasuredPoint, price: float) -> RunPoint:
    """A measured run as the chart shows it; dollars by the rent of today."""
    requests = run.concurrency / run.latency
    per_second = run.gpus * price / 3600.0
    what = (
        f"{run.model} on {label}: {run.concurrency:.4g} requests in flight on {run.gpus:g} GPUs, "
        f"TTFT {1e3 * run.ttft:.4g} ms, TPOT {1e3 * run.tpot:.4g} ms"
    )
    numbers = {
        "speed": 1.0 / run.tpot,
        "latency": run.latency,
        "ttft": 1e3 * run.ttft,
        "tpot": 1e3 * run.tpot,
        "usd": 1e6 * per_second / (requests * (run.isl + run.osl)),
        "rate": requests * run.osl / run.gpus,
    }
    return RunPoint(label, what, numbers)


def _kernels(given: Given, work: Workload, plans: tuple[Plan, Plan]) -> dict[str, list[KernelRow]]:
    """Kernels of one GPU by the curves of the profile or at the roofline.

    Of prefill under the first plan, of decode under the second.
    """
    estimator, own = variant("kernels").make(), given.system.coefficients.get("kernels")
    estimator = estimator.fitted_to(given.system.coefficients) if own else estimator
    arch = given.model.architecture
    profiles = once(_kernel_passes, estimator, arch, given.hardware, work, plans)
    return {stage: kernel_rows.rows(arch, profile) for stage, profile in profiles.items()}


def _kernel_passes(
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


def lead(answers: ReportData) -> str:
    """The answer in one sentence, with the runner-up in another."""
    estimate, costs, chosen = answers.estimate, answers.costs, answers.chosen
    system, mark = answers.system.given.system, answers.system.trust.mark
    between = answers.intervals.get("tpot_interval80_ms")
    band = ""
    if between:
        slow, fast = (digits(1e3 / x) for x in reversed(between))
        band = f" (80 % of measured servers: {slow} to {fast})"
    title = system.title.partition(" (")[0]
    title = title if title == system.name else f"{title} ({system.name})"
    paid = f"{mark}${digits(costs['blended_per_mtok_usd'])} per million tokens, in and out, and "
    paid += f"${costs['per_month_usd']:,.0f} a month"
    plan = f"{chosen.layout}, "
    if len(chosen.pools) > 1:
        plan = f"{chosen.pools[0]} for prefill and {chosen.pools[1]} for decode, with "
    plan += f"{chosen.batch:.4g} requests in flight in each"
    return (
        f"{chosen.chips:g} x {title} as {plan}, serve "
        f"{answers.system.given.model.name} for {paid}: {mark}{digits(estimate.speed)} tokens/s "
        f"to each request{band}, the first after {mark}{ms(estimate.ttft)}, "
        f"{mark}{digits(chosen.throughput * chosen.chips, 4)} output tokens/s in all. "
        f"{_verdict(answers.selection)}"
    )


def _verdict(selection: ReportSelection) -> str:
    """Whether the plan meets the limits, and what the next system would cost."""
    chosen, limits = selection.chosen, selection.question.requirements
    named = (("TTFT", limits.ttft), ("TPOT", limits.tpot))
    words = [f"{name} {ms(x)}" for name, x in named if 0.0 < x < float("inf")]
    if selection.usual:
        words.insert(0, f"TTFT {USUAL_TTFT:g} s, the usual")
    within = f" within the limits ({', '.join(words)})" if words else ""
    if chosen.excess:
        return f"No plan meets every limit: the nearest breaks {shares(chosen.excess)}."
    others = sorted((c for c in selection.candidates if c is not chosen), key=lambda c: c.rank)
    if not others:
        return f"It is{within}." if words else "It fits."
    text = f"Of {len(selection.candidates)} systems and formats it is the cheapest{within}"
    able = [c for c in others if not c.excess]
    if able and chosen.usd_per_mtok > 0.0:
        more = able[0].usd_per_mtok / chosen.usd_per_mtok - 1.0
        text += f"; next is {able[0].label} at ${digits(able[0].usd_per_mtok)} ({more:+.0%})"
    unable = [f"{c.label} breaks {shares(c.excess)}" for c in others if c.excess]
    return "; ".join([text, *unable]) + "."


def ms(seconds: SupportsFloat) -> str:
    """Milliseconds with their unit."""
    return f"{digits(1e3 * float(seconds))} ms"


def section_command(answers: ReportData, verb: str) -> str:
    """The command that answers one section by itself, where a plain plan says it."""
    pool, work, chosen = answers.chosen.pools[-1], answers.work, answers.chosen
    options = dict(answers.words[chosen.label])
    if not options:  # a model or a system that no command can name
        return ""
    config, total, price = options.pop("config"), options.pop("total-gpus"), options.pop("price")
    split = {"tp": pool.layout.tp, "pp": pool.layout.pp, "ep": pool.layout.attention_dp}
    if verb == "memory":
        engine = answers.engine
        options |= split | {"max-model-len": engine.context, "max-num-seqs": engine.sequences}
        options |= {"max-num-batched-tokens": engine.batched_tokens}
        return command(verb, config, options)
    options |= {"isl": work.isl, "osl": work.osl, "price": price}
    if verb in ("estimate", "sensitivity"):
        if pool.layout.ep != pool.layout.attention_dp or len(chosen.pools) > 1:
            return ""
        estimator = answers.selection.question.estimator
        options |= {**split, "batch": chosen.batch, "estimator": estimator}
        options |= {"prefix": work.prefix} if float(work.prefix) else {}
    if verb == "frontier":
        options["total-gpus"] = total
    return command(verb, config, options)
