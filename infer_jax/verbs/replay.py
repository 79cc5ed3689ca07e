"""``ij.replay``: what happens to every request of a trace or a benchmark on a server."""

import numpy as np

from infer_jax import legal
from infer_jax.catalog import Model
from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving
from infer_jax.results import option
from infer_jax.specs import Architecture, Plan
from infer_jax.verbs import inputs, options as opt, pictures, progress, replay_options as own
from infer_jax.verbs.asking import verb
from infer_jax.verbs.drafts import DraftOptions
from infer_jax.verbs.option import either, seconds_of
from infer_jax.verbs.problems import ask, check_name, refuse
from infer_jax.verbs.replay_cluster import (
    PoolSplit,
    ReplayedCluster,
    pools_of,
    router_of,
    split_of,
)
from infer_jax.verbs.replay_requests import (
    ReplayDrafts,
    RequestStream,
    drafts_of,
    request_stream,
    with_drafts,
)
from infer_jax.verbs.replay_result import ReplayResult
from infer_jax.verbs.replay_server import Sizes, server_of, with_host
from infer_jax.verbs.split import check_split

KINDS = (*pictures.KINDS, ".csv")


@verb
def replay(
    config: opt.Config,
    hardware: opt.System,
    *,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,
    prefill_tp: own.PrefillTp = None,
    prefill_instances: own.PrefillInstances = None,
    decode_tp: own.DecodeTp = None,
    decode_instances: own.DecodeInstances = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    engine: own.EngineName = None,
    max_num_seqs: own.PassSequences = None,
    max_num_batched_tokens: opt.PassTokens = None,
    block_size: own.BlockSize = None,
    gpu_memory_utilization: opt.GpuMemory = None,
    enable_chunked_prefill: own.ChunkedPrefill = None,
    async_scheduling: own.AsyncScheduling = None,
    enable_prefix_caching: own.PrefixCaching = None,
    prefix_len: own.PrefixLen = None,
    num_prefixes: own.NumPrefixes = None,
    kv_offloading_size: own.HostMemory = None,
    router: own.Router = None,
    drafts: own.Drafts = None,
    acceptance: opt.Acceptance = None,
    draft: opt.Draft = None,
    heads: opt.Heads = False,
    trace: own.Trace = None,
    concurrency: own.Concurrency = None,
    request_rate: own.RequestRate = None,
    burstiness: own.Burstiness = 1.0,
    ramp_up: own.RampUp = None,
    prompts: own.Prompts = None,
    isl: own.Isl = None,
    osl: own.Osl = None,
    range_ratio: own.RangeRatio = None,
    warmup: own.Warmup = 0,
    seed: own.Seed = 0,
    seeds: own.Seeds = 1,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    estimator: opt.EstimatorName = None,
    out: own.Out = None,
    set: opt.Changes = None,
) -> ReplayResult:
    """What happens to each request of a trace or benchmark: percentiles, queue, cache, power.

    The scheduler of an engine, pass by pass, for the requests of a ``trace`` or of a benchmark:
    ``concurrency`` kept in flight, ``request_rate`` a second, or both. Goodput meets ``ttft`` and
    ``tpot``, seconds or a text such as "30ms". ``out``: a picture, or a .csv of all requests.

    Raises:
        InputError: a model, system or trace that cannot be read, a plan or an engine that is not
            replayed, a request that the server never holds.

    >>> import infer_jax as ij
    >>> run = ij.replay("llama-3.1-8b", "h100_sxm", tp=1, concurrency=4, prompts=16, isl=512)
    >>> run.throughput > 0, run.to_pandas().shape[0]
    (True, 16)
    """
    asked = inputs.given(config, hardware, quant, kv_dtype, None, set)
    check_name("engine", engine, ENGINES)
    if out is not None:
        pictures.check(out, KINDS, "")
    pools = split_of((prefill_tp, prefill_instances), (decode_tp, decode_instances), (tp, dp))
    plan = _plan(asked.model.architecture, tp, pp, ep, dp, pools)
    name, model = _estimator(asked, estimator, engine)
    drafted = drafts_of(asked.model, drafts, DraftOptions(draft, acceptance, heads))
    if enable_prefix_caching is None and (drafted is not None or float(plan.ep) > 1):
        enable_prefix_caching = False  # which schedulers look up, and the replay of these does not
    stream = request_stream(
        trace=trace, isl=isl, osl=osl, range_ratio=range_ratio, caching=enable_prefix_caching,
        prefix_len=prefix_len, num_prefixes=num_prefixes, concurrency=concurrency,
        rate=request_rate, burstiness=burstiness, ramp_up=ramp_up,
    )  # fmt: skip
    count = stream.count(prompts)
    _check_context(asked.model, stream, count)
    _check_run(stream, drafted, count, {"warmup": warmup, "dp": dp, "seeds": seeds})
    if kv_offloading_size is not None and (pools or not stream.caching):
        allowed = f"with {option('enable_prefix_caching')}, in one pool"
        raise refuse("kv_offloading_size", kv_offloading_size, allowed)
    sizes = Sizes(max_num_seqs, max_num_batched_tokens, block_size, gpu_memory_utilization,
                  enable_chunked_prefill, async_scheduling, kv_offloading_size,
                  stream.caching)  # fmt: skip
    cluster = _cluster(asked, model, plan, pools, router, sizes, stream, drafted)
    counted, runs = np.arange(count) >= warmup, []
    with progress.steps("replaying", int(seeds)) as done:
        for i in range(int(seeds)):
            requests = with_drafts(drafted, stream.draw(count, (int(seed), i)), seed, i)
            runs.append(cluster.run(requests, concurrency, counted))
            done()
    limits = {name: seconds_of(limit) for name, limit in (("ttft", ttft), ("tpot", tpot))}
    result = ReplayResult(
        asked=asked,
        estimator=name,
        trust=inputs.trust(name, model, asked),
        cluster=cluster,
        stream=stream,
        runs=runs,
        limits={name: limit for name, limit in limits.items() if limit is not None},
    )
    if out is not None:
        result.write(out)
    return result


def _estimator(
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


def _plan(
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


def _cluster(
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


def _check_run(
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


def _check_context(model: Model, stream: RequestStream, count: int) -> None:
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
