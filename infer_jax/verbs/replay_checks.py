"""What a replay is of: its plan, servers, requests and drafts, checked before one is drawn."""

from collections.abc import Mapping, Sequence

import numpy as np

from infer_jax import legal
from infer_jax.catalog import Model
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment
from infer_jax.estimators.serving.plan import deployment
from infer_jax.estimators.speculative import Drafting
from infer_jax.planning import Layout, PlanPool
from infer_jax.results import option
from infer_jax.results.problems import ask, refuse
from infer_jax.servers.stream import RequestStream
from infer_jax.specs import Architecture
from infer_jax.verbs import inputs
from infer_jax.verbs.drafts import DraftOptions, drafting
from infer_jax.verbs.option import either
from infer_jax.verbs.split import LayoutOptions, check_split


def layout_of(
    arch: Architecture, split: LayoutOptions, pools: Mapping[str, float | None]
) -> tuple[Deployment, Sequence[PlanPool]]:
    """The plan, if it is one whose scheduler is replayed, and the pools that options ask for.

    ``pools``: GPUs and instances of each pool, by their options. Of pools the plan is of the one
    that decodes.

    Raises:
        InputError: one pool without the other, or a single one besides; several stages, several
            attention ranks in a pool, or a split that no engine runs.
    """
    both = split.pools if len(split.pools) > 1 else ()
    if any(value is not None for value in pools.values()):
        for name in ("prefill_tp", "decode_tp"):
            if pools[name] is None:
                raise ask(name, "On how many GPUs is an instance of each pool?", option(name))
        if split.pools or split.copies > 1:
            name = "layout" if split.words else "tp" if split.pools else "dp"
            names = f"{option('prefill_tp')} and {option('decode_tp')}"
            number = split.pools[0].layout.tp if split.pools else split.copies
            raise refuse(name, split.words or number, f"without {names}, which are two pools")
        first, copies, tp, dp = (either(value, 1.0) for value in pools.values())
        sizes = (first, copies), (tp, dp)
        both = [PlanPool(Layout(x, 1.0, 1.0, 1.0), count, 1.0) for x, count in sizes]
    for pool in both:
        if pool.layout != Layout(pool.layout.tp, 1.0, 1.0, 1.0):
            allowed = "TP alone in two pools: attention ranks, stages and chunks are not replayed"
            raise refuse("layout", str(pool.layout), allowed)
        check_split(arch, pool.layout, split.words)
    if both:
        return Deployment.of(tp=both[-1].layout.tp, dp=both[-1].copies), both
    if split.pool is None:
        raise ask("tp", "On how many GPUs?", f"{option('tp')} or {option('layout')}")
    plan = deployment(split.plan(arch))
    if plan.pp > 1:
        allowed = "1: micro-batches of a pipeline are not replayed"
        raise refuse("pp", float(plan.pp), allowed)
    return plan, ()


def check_context(model: Model, stream: RequestStream, count: int) -> None:
    """Check that every request is within the model's longest context.

    Raises:
        InputError: a request that a server of the model refuses.
    """
    trace = stream.trace
    if trace is None:
        inputs.check_context(model, inputs.workload(stream.prefix + stream.isl, stream.osl, 0.0))
        return
    worst = int(np.argmax((trace.isl + trace.osl)[:count]))
    isl, osl = (float(x[worst]) for x in (trace.isl, trace.osl))
    rule = legal.context(model.architecture, inputs.workload(isl, osl, 0.0))
    if not rule.holds:
        tokens = f"{isl:.12g} tokens in and {osl:.12g} out"
        allowed = rule.allowed() + inputs.context_hint()
        raise InputError(trace.file, f"request {worst + 1} by arrival", tokens, allowed)


def drafts_of(model: Model, count: float | None, drafter: DraftOptions) -> Drafting | None:
    """The drafts that options ask for; None where they ask for none.

    Raises:
        InputError: drafts without an acceptance or the other way round, more than the curve of
            acceptance has.
    """
    if count is not None and drafter.acceptance is None:
        ways = f"{option('acceptance', 0.7)}, or a file"
        raise ask("acceptance", "How many drafts are accepted?", ways)
    made = drafting(model, drafter)
    if made is None:
        return None
    if count is None:
        question = "How many tokens does a pass draft for each request?"
        raise ask("drafts", question, option("drafts", 3))
    positions = np.size(made.acceptance)
    if np.ndim(made.acceptance) and count > positions:
        allowed = f"at most {positions}: of later positions no acceptance is known"
        raise refuse("drafts", count, allowed)
    return made._replace(count=int(count))
