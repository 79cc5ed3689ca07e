"""What a replay is of: its estimator, plan and servers, checked before a request is drawn."""

from collections.abc import Mapping, Sequence

import numpy as np

from infer_jax import legal
from infer_jax.catalog import Model
from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.estimators.serving.plan import deployment
from infer_jax.planning import Layout, PlanPool
from infer_jax.replays.routers import BY_LOAD, BY_PREFIX, ROUTERS
from infer_jax.results import option
from infer_jax.specs import Architecture
from infer_jax.verbs import inputs
from infer_jax.verbs.drafts import Drafting
from infer_jax.verbs.option import either
from infer_jax.verbs.problems import ask, check_name, refuse
from infer_jax.verbs.replay_cluster import ReplayedCluster, pools_of
from infer_jax.verbs.replay_requests import RequestStream
from infer_jax.verbs.replay_server import Sizes, server_of, with_host
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


def cluster_of(
    setup: inputs.Setup,
    model: Serving,
    plan: Deployment,
    split: Sequence[PlanPool],
    router: str | None,
    sizes: Sizes,
    stream: RequestStream,
    drafts: Drafting | None,
) -> ReplayedCluster:
    """The servers: copies of an instance, of its attention ranks, or two pools.

    Raises:
        InputError: a router without ranks or copies, an unknown one, or one by prefix without
            prefixes; ranks with a prefix cache, or with drafts of another model; servers that are
            not replayed, or without room for a cache.
    """
    arch, hardware, tokens = setup.model.architecture, setup.hardware, stream.mean_tokens
    tp, ranks = float(plan.tp), float(plan.attention_dp)
    if router is not None and ranks <= 1 and (split or float(plan.dp) <= 1):
        allowed = f"with {option('ep')} or {option('dp')} of 2 and more: several servers, "
        raise refuse("router", router, f"{allowed}in one pool")
    if ranks > 1 and router in BY_PREFIX:
        allowed = f"with copies ({option('dp')}): ranks' caches are not replayed"
        raise refuse("router", router, allowed)
    check_name("router", router, BY_LOAD if ranks > 1 else ROUTERS)
    if router in BY_PREFIX and not stream.caching:
        raise refuse("router", router, f"with {option('enable_prefix_caching')}")
    if split:
        pools = pools_of(split, model, arch, hardware, (sizes, sizes), tokens, drafts)
        return ReplayedCluster(pools.decode, plan, router, pools)
    degrees = {"tp": tp, "ep": float(plan.ep), "attention_dp": ranks}
    if ranks > 1:
        if stream.caching:
            allowed = f"1 with {option('enable_prefix_caching')}: ranks' caches are not replayed"
            raise refuse("ep", ranks, allowed)
        if drafts is not None and drafts.draft is not None:
            heads = f"on ranks the model's own heads draft ({option('heads')})"
            raise refuse("ep", ranks, f"1 with {option('draft')}: {heads}")
        router = router or ENGINES[model.engine_name].router
    server = server_of(model, arch, hardware, degrees, sizes, tokens, drafts)
    return ReplayedCluster(with_host(server, sizes.host, setup, tp, tokens), plan, router)


def check_run(
    stream: RequestStream, drafts: Drafting | None, count: int, options: dict[str, float]
) -> None:
    """Check that a run of ``count`` requests is one, by its ``warmup``, ``dp`` and ``seeds``.

    Raises:
        InputError: a warm-up of all requests, more copies than requests, several runs that are
            alike, or a prefix cache with drafts.
    """
    if options["warmup"] >= count:
        raise refuse("warmup", options["warmup"], f"fewer than the requests of a run, {count}")
    if options["dp"] > min(count, either(stream.concurrency, count)):
        raise refuse("dp", options["dp"], "at most as many copies as requests")
    if options["seeds"] > 1 and not (stream.random or drafts):
        allowed = "1: nothing is drawn, so that all runs are alike"
        raise refuse("seeds", options["seeds"], allowed)
    if drafts and stream.caching:
        raise refuse("enable_prefix_caching", "yes", f"without {option('drafts')}")


def check_context(model: Model, stream: RequestStream, count: int) -> None:
    """Check that every request is within the model's longest context.

    Raises:
        InputError: a request that a server of the model refuses.
    """
    trace = stream.trace
    if trace is None:
        longest = inputs.workload(stream.prefix + stream.isl, stream.osl, 0.0)
        inputs.check_context(model, longest)
        return
    worst = int(np.argmax((trace.isl + trace.osl)[:count]))
    isl, osl = (float(x[worst]) for x in (trace.isl, trace.osl))
    rule = legal.context(model.architecture, inputs.workload(isl, osl, 0.0))
    if not rule.holds:
        tokens = f"{isl:.12g} tokens in and {osl:.12g} out"
        allowed = rule.allowed() + inputs.context_hint()
        raise InputError(trace.file, f"request {worst + 1} by arrival", tokens, allowed)
