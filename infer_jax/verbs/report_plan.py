"""The plan that a report is about, and the verbs' answers for it."""

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from infer_jax import planning
from infer_jax.compiling import once
from infer_jax.design.sensitivity import analyser, outputs
from infer_jax.estimators import Estimator
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.estimate import decode_context, fresh_tokens
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.known_errors import pools as trust_of_pools
from infer_jax.estimators.registry import variant
from infer_jax.estimators.serving import Deployment
from infer_jax.footprint import memory as held_by
from infer_jax.launch import launches, service
from infer_jax.specs import UNBOUNDED, Architecture, ForwardPass, Hardware, Plan, Workload
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import inputs, kernel_rows
from infer_jax.verbs.checks import either
from infer_jax.verbs.frontier import frontier
from infer_jax.verbs.inputs import Given, HardwareLike, ModelLike
from infer_jax.verbs.kernel_rows import KernelRow
from infer_jax.verbs.memory import started
from infer_jax.verbs.plan_search import Money, Question, Target, Tried, plans
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.report_answers import Answers, Chosen, Limits, Pool
from infer_jax.verbs.requests import requested
from infer_jax.verbs.split import plan_of

GPUS = 8.0  # among which a plan is looked for where nothing is given: one server
Split = tuple[float | None, float | None, float | None, float, float | None]  # tp pp ep dp batch


class Options(NamedTuple):
    """What a report is asked about, as its options have it."""

    config: ModelLike
    hardware: HardwareLike
    quant: str | None
    kv_dtype: str | None
    price: float | None
    total_gpus: float | None
    estimator: str | None
    set: str | Sequence[str] | None

    @property
    def name(self) -> str:
        """The estimator's name."""
        return self.estimator or inputs.BEST

    @property
    def named(self) -> Mapping[str, object]:
        """Options of the commands that a page names; empty where no command says the same."""
        if not all(isinstance(x, str | PathLike) for x in (self.config, self.hardware)):
            return {}
        return {
            "config": str(self.config),
            "hardware": str(self.hardware),
            "quant": self.quant,
            "kv-dtype": self.kv_dtype,
            "price": self.price,
            "total-gpus": self.total_gpus,
        }


def choose(
    asked: Given,
    options: Options,
    split: Split,
    lengths: tuple[float, float, float],
    limits: Limits,
) -> Chosen:
    """The plan as it is given, or the one that ``plan`` puts first."""
    tp, pp, ep, dp, batch = split
    name, total = options.name, options.total_gpus
    inputs.check_context(asked.model, inputs.workload(*lengths))
    if tp is None and pp is None and ep is None:
        _searchable(name, dp, batch)
        return _first(asked, options, lengths, limits)
    plan, _ = plan_of(asked.model.architecture, tp, pp, ep, dp, total, name)
    t, e, p = (float(x) for x in (plan.tp, plan.ep, plan.pp))
    layout = planning.Layout(tp=t, attention_dp=e, ep=e, pp=p)
    return Chosen(layout, dp, either(batch, 1.0), "The plan is as given.")


def _searchable(name: str, dp: float, batch: float | None) -> None:
    """Raise InputError where a plan is to be searched and an option fixes a part of it."""
    if not name.startswith("serving"):
        raise refuse("--tp", "missing", "--tp (with --pp, --ep), or --estimator serving")
    if dp > 1:
        raise refuse("--dp", dp, "with --tp: copies of a plan that is looked for")
    if batch is not None:
        raise refuse("--batch", batch, "with --tp: a plan that is looked for has its own")


def _first(
    asked: Given, options: Options, lengths: tuple[float, float, float], limits: Limits
) -> Chosen:
    """The plan that ``plan`` puts first, or the nearest miss."""
    ttft, tpot = limits
    wanted = planning.Asked(
        ttft=either(ttft, math.inf),
        tpot=either(tpot, math.inf),
        chips=either(options.total_gpus, GPUS),
        usual_ttft=ttft is None,
    )
    target = Target(options.config, [options.quant], options.kv_dtype, options.set)
    tried = Tried(planning.MODES, [UNBOUNDED], Deployment.of(), options.name, 3)
    requests, money = requested(*lengths, None, None), Money(options.price)
    answer = plans(Question(target, [asked.system], None, money, requests, wanted, tried, None))
    first = min(answer.met or answer.missed, key=lambda c: c.rank, default=None)
    gpus = f"{wanted.chips:g} GPUs"
    if first is None:
        raise refuse("--total-gpus", f"{wanted.chips:g}", "more: no layout fits so few GPUs")
    if answer.met:
        limited = np.isfinite((wanted.ttft, wanted.tpot)).any() or answer.usual
        why = f"The cheapest of {answer.configurations} layouts and batches on {gpus}"
        why += " that meet the limits." if limited else "."
        why += f" TTFT is kept within {planning.USUAL_TTFT:g} s." if answer.usual else ""
    else:
        broken = ", ".join(f"{name} by {share:.1%}" for name, share in first.excess.items())
        why = f"No plan on {gpus} meets every limit; the nearest breaks {broken}."
    pools = planning.pools_of(first.degrees)
    if len(pools) == 1:
        layout, copies = _layout(pools[0], "replicas")
        return Chosen(layout, copies, first.batch, why)
    prompt, decode = pools
    layout, copies = _layout(decode, "instances")
    return Chosen(
        layout, copies, first.batch, why, Pool(*_layout(prompt, "instances"), prompt["batch"])
    )


def _layout(degrees: Mapping[str, float], count: str) -> tuple[planning.Layout, float]:
    """Degrees of an instance, and how many there are of it."""
    names = planning.Layout._fields
    layout = planning.Layout(**{name: x for name, x in degrees.items() if name in names})
    return layout, degrees[count]


def answers_of(asked: Given, options: Options, work: Workload, chosen: Chosen) -> Answers:
    """Every verb's answer about one plan."""
    arch, hardware, name = asked.model.architecture, asked.hardware, options.name
    ideal = inputs.estimator(name, asked)
    trusted = inputs.trust(name, ideal, asked)
    estimator, plan, prompts, common = _plans(name, ideal, chosen)
    engine, overheads = started(asked.system)
    engine = engine.with_(context=float(work.isl + work.osl))
    fastest = frontier(
        options.config,
        options.hardware,
        quant=options.quant,
        kv_dtype=options.kv_dtype,
        isl=float(work.isl),
        osl=float(work.osl),
        prefix=float(work.prefix),
        total_gpus=options.total_gpus,
        price=options.price,
        set=options.set,
    )
    wanted = service(
        options.config,
        asked.model,
        [asked.system],
        chosen.degrees,
        chosen.batch,
        (float(work.isl), float(work.osl)),
        (options.quant, options.kv_dtype),
    )
    point = Point(estimator, arch, hardware, work, plan)
    return Answers(
        asked=asked,
        given=options.named,
        name=name,
        trusted=trusted,
        estimator=estimator,
        work=work,
        chosen=chosen,
        plan=plan,
        estimate=once(Estimator.estimate_once, estimator, arch, hardware, work, plan),
        rows=fastest.rows(),
        nothing=fastest.why,
        held=once(held_by, arch, hardware, common, engine, overheads),
        engine=engine,
        elasticities=analyser(outputs, point)(point),
        kernels=_profiles(asked, work, prompts, common),
        launches=launches(wanted),
        notes=[
            chosen.why,
            *([] if chosen.prefill is None else [trust_of_pools()]),
            *asked.notes,
        ],
    )


def _plans(
    name: str, estimator: Estimator, chosen: Chosen
) -> tuple[Estimator, Plan | Pools, Plan, Plan]:
    """The estimator with its plan, and plain plans of what prefills and of what decodes.

    Memory and kernels know groups of tp GPUs, over which experts are dealt: the same bytes.
    """
    layout, pool = chosen.layout, chosen.prefill
    common = Plan.of(tp=layout.tp, pp=layout.pp, ep=layout.attention_dp, dp=chosen.copies)
    if pool is None:
        whole = name.startswith("serving")
        plan = Deployment.of(**layout._asdict(), dp=chosen.copies) if whole else common
        return estimator, plan, common, common
    first = pool.layout
    prompts = Plan.of(tp=first.tp, pp=first.pp, ep=first.attention_dp, dp=pool.copies)
    plan = Pools.of(
        prefill=Deployment.of(**first._asdict()),
        decode=Deployment.of(**layout._asdict()),
        prefill_copies=pool.copies,
        decode_copies=chosen.copies,
        prefill_batch=pool.batch,
    )
    return Disaggregated.of(target=estimator), plan, prompts, common


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
