"""What a replay is of: its estimator, plan and servers, checked before a request is drawn."""

import numpy as np

from infer_jax import legal
from infer_jax.catalog import Model
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving
from infer_jax.results import option
from infer_jax.specs import Architecture, Plan
from infer_jax.verbs import inputs
from infer_jax.verbs.option import either
from infer_jax.verbs.problems import ask, refuse
from infer_jax.verbs.replay_cluster import PoolSplit, ReplayedCluster, pools_of, router_of
from infer_jax.verbs.replay_requests import ReplayDrafts, RequestStream
from infer_jax.verbs.replay_server import Sizes, server_of, with_host
from infer_jax.verbs.split import check_split


def priced_engine(
    asked: inputs.Given, estimator: str | None, engine: str | None
) -> tuple[str, Serving]:
    """The estimator that prices passes, and its name.

    Raises:
        InputError: an estimator of another engine than the one asked for.
    """
    name = either(estimator, f"serving.{engine}" if engine else inputs.BEST)
    model = inputs.serving(name, asked)
    if engine not in (None, model.engine_name):
        other = f"{model.engine_name}, which {name} is of, or another {option('estimator')}"
        raise refuse("engine", engine, other)
    return name, model


def replayed_plan(
    arch: Architecture,
    tp: float | None,
    pp: float | None,
    ep: float | None,
    dp: float,
    pools: PoolSplit | None,
) -> Plan:
    """The plan, if it is one whose scheduler is replayed; of pools the one that decodes.

    Raises:
        InputError: several stages, several attention ranks in a pool, or a split that no engine
            runs.
    """
    ranks = either(ep, 1.0)
    if pools is not None:
        if ranks > 1:
            raise refuse("ep", ranks, "1 in two pools: attention ranks there are not replayed")
        check_split(arch, pools.prefill_tp, 1.0, 1.0)
        tp, dp = pools.decode_tp, pools.decode_instances
    if tp is None:
        raise ask("tp", "On how many GPUs?", option("tp"))
    if either(pp, 1.0) > 1:
        raise refuse("pp", pp, "1: micro-batches of a pipeline are not replayed")
    check_split(arch, tp, 1.0, ranks)
    return Plan.of(tp=tp, ep=ranks, dp=dp)


def cluster_of(
    asked: inputs.Given,
    model: Serving,
    plan: Plan,
    split: PoolSplit | None,
    router: str | None,
    sizes: Sizes,
    stream: RequestStream,
    drafts: ReplayDrafts | None,
) -> ReplayedCluster:
    """The servers: copies of an instance, of its attention ranks, or two pools.

    Raises:
        InputError: servers that are not replayed, or without room for a cache.
    """
    router = router_of(
        plan, router, model.engine_name, drafts, pooled=split is not None, caching=stream.caching
    )
    arch, hardware, tokens = asked.model.architecture, asked.hardware, stream.mean_tokens
    tp, ranks = float(plan.tp), float(plan.ep)
    if split is not None:
        pools = pools_of(split, model, arch, hardware, (sizes, sizes), tokens, drafts)
        return ReplayedCluster(pools.decode, plan, router, pools)
    degrees = {"tp": tp, "ep": ranks, "attention_dp": ranks} if ranks > 1 else {"tp": tp}
    server = server_of(model, arch, hardware, degrees, sizes, tokens, drafts)
    return ReplayedCluster(with_host(server, sizes.host, asked, tp, tokens), plan, router)


def check_run(
    stream: RequestStream, drafts: ReplayDrafts | None, count: int, options: dict[str, float]
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
