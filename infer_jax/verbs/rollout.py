"""A plan that was found as what starts it, and the loads that should measure it."""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from pathlib import Path

import jax

from infer_jax import verbs
from infer_jax.catalog.files import check_folder
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment, ServingWorkload
from infer_jax.planning import Choice
from infer_jax.results import Result
from infer_jax.rollouts import Load, Rollout
from infer_jax.rollouts.bench import calibrate_obstacle
from infer_jax.verbs import inputs
from infer_jax.verbs.plan_search import Plans
from infer_jax.verbs.plan_tables import TIMES
from infer_jax.verbs.progress import busy

NO_GPU = "the hardware is given as numbers: a profile says which GPUs it is of"


def rollout_of(plans: Plans, choice: Choice) -> Rollout:
    """What starts a plan on its engine."""
    question, setups = plans.question, [x.setup for x in plans.systems_of(choice)]
    service, used = plans.service_of(choice), [x.system for x in setups]
    if not service.checkpoint.missing and any(x.path == Path() for x in used):
        service = service._replace(checkpoint=service.checkpoint._replace(missing=NO_GPU))
    config, rate, last = question.config, question.requirements.rate, choice.pools[-1]
    flying = question.requirements.concurrency or last.batch * last.copies
    return Rollout(
        choice.engine,
        service,
        tuple(x.name if x.shipped else str(x.path) for x in used),
        os.fspath(config) if isinstance(config, str | os.PathLike) else plans.model.name,
        f"{plans.model.name}: {choice.layout} on {choice.system}",
        Load(
            round(choice.isl), round(choice.osl), 0 if rate else max(round(flying), 1), rate or 0.0
        ),
        float(question.requests.work.prefix),
        (1e3 * choice.ttft, 1e3 * choice.tpot),
        (setups[0].quant, question.kv_dtype),
        promises=tuple(_promises(plans, choice)),
    )


def _promises(plans: Plans, c: Choice) -> Iterator[tuple[str, str, str]]:
    """Times with their limits, the rent, and the odds, in words; of replays beside the law."""
    for name, limit in plans.limits.items():
        sources = ((c, ""), (c.replay and c.replay.times, " by replay"))
        known = [(getattr(x, name, None), where) for x, where in sources]
        words = [f"{1e3 * float(x):.4g} ms{where}" for x, where in known if x]
        if words:
            most = "" if limit == math.inf else f"{1e3 * limit:.4g} ms"
            yield TIMES[name], most, ", ".join(words)
    yield "Rent", "", f"{plans.question.sign}{c.usd_per_hour:.4g} per hour"
    if c.holds is not None:
        yield "Probability that all limits hold", "", f"{100.0 * c.holds:.3g} %"


def written_to(folder: str, verb: Callable[..., Result]) -> Callable[..., Result]:
    """``verb``, whose first plan is written to a new folder that starts it.

    Raises:
        InputError: a folder that cannot be written.
    """
    check_folder(folder)

    @wraps(verb)
    def deployed(*args: object, **options: object) -> Result:
        result = verb(*args, **options)
        assert isinstance(result, verbs.PlanResult)
        if not result.feasible:
            return result
        result.deploy(folder)
        return replace(result, folder=folder)

    return deployed


def with_loads(rollout: Rollout) -> Rollout:
    """The same with the loads of one instance that tell ``calibrate`` most, or why there are none.

    The model and the system are read again by their names.

    Raises:
        InputError: no engine starts the plan.
    """
    from infer_jax.calibration.runs import InstanceLoad
    from infer_jax.calibration.server import first_runs  # which plans need not load

    rollout = rollout.startable()
    if calibrate_obstacle(rollout):
        return rollout
    (one,), load = rollout.service.instances, rollout.load
    degrees = {"tp": one.tp, "pp": one.pp, "ep": one.ep, "attention_dp": one.groups}
    work = ServingWorkload.of(isl=load.isl, osl=load.osl, batch=one.requests)
    with jax.enable_x64(True), busy("choosing the loads of the benchmark"):
        try:
            setup = inputs.setup(rollout.config, rollout.systems[0], *rollout.formats, None)
        except InputError as error:
            return rollout._replace(gaps=(*rollout.gaps, f"Loads for a calibration: {error}."))
        found = first_runs(
            inputs.estimator(inputs.BEST, setup).for_engine(rollout.engine),
            setup.model.architecture,
            setup.hardware,
            InstanceLoad(work, Deployment.of(**degrees)),
            one.group_requests * one.groups,
        )
    runs = [x.load.workload for x in found]
    sizes = [map(round, map(float, (x.isl, x.osl, x.batch))) for x in runs]
    return rollout._replace(measure=tuple(Load(*x) for x in sizes))
