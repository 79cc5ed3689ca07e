"""``ij.replay``: what happens to every request of a trace or a benchmark on a server."""

from collections.abc import Callable
from functools import partial

import numpy as np

from infer_jax import legal
from infer_jax.catalog import Model
from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving
from infer_jax.specs import Architecture, Plan
from infer_jax.verbs import inputs, options as opt, pictures, progress, replay_options as own
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import either
from infer_jax.verbs.problems import ask, check_name, refuse
from infer_jax.verbs.replay_cluster import (
    PoolSplit,
    ReplayRouting,
    check_pools,
    pair_of,
    routing_of,
    run_in_turn,
    run_pools,
    run_routed,
    split_of,
)
from infer_jax.verbs.replay_requests import (
    MAX_REQUESTS,
    PROMPTS,
    TURNS,
    Arriving,
    Lengths,
    Load,
    ReplayDrafts,
    checked,
    drafts_of,
    draw_requests,
    lengths_of,
    randomly,
    shared_prefix,
    with_drafts,
)
from infer_jax.verbs.replay_result import ReplayResult
from infer_jax.verbs.replay_runs import ReplayRun
from infer_jax.verbs.replay_server import ReplayedInstance, Sizes, server_of, with_host
from infer_jax.verbs.speculation import DraftOptions
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
    check_name("--engine", engine, ENGINES)
    if out is not None:
        pictures.check(out, KINDS, "")
    pools = split_of((prefill_tp, prefill_instances), (decode_tp, decode_instances), (tp, dp))
    plan = _plan(asked.model.architecture, tp, pp, ep, dp, pools)
    name, model, its = _estimator(asked, estimator, engine)
    drafted = drafts_of(asked.model, drafts, DraftOptions(draft, acceptance, heads))
    shared = shared_prefix(prefix_len, num_prefixes)
    caching = _caching(enable_prefix_caching, plan, drafted)
    lengths = lengths_of(trace, isl, osl, range_ratio, caching, shared)
    load = checked(Load(concurrency, request_rate, burstiness, ramp_up), lengths)
    count = _count(prompts, load, lengths)
    _check_context(asked.model, lengths, count)
    _check_run(count, warmup, dp, concurrency)
    _check_drawn(seeds, load, lengths, drafted, kv_offloading_size, pools=pools is not None)
    ranks = routing_of(plan, router, its, drafted, pools, caching=lengths.caching)
    sizes = Sizes(max_num_seqs, max_num_batched_tokens, block_size, gpu_memory_utilization,
                  enable_chunked_prefill, async_scheduling, kv_offloading_size)  # fmt: skip
    server, run = _server(asked, model, plan, sizes, lengths, pools, ranks, drafted)
    counted, runs = np.arange(count) >= warmup, []
    with progress.steps("replaying", int(seeds)) as done:
        for i in range(int(seeds)):
            requests = with_drafts(
                drafted, draw_requests(load, lengths, count, (int(seed), i)), seed, i
            )
            runs.append(run(requests, int(dp), concurrency, counted))
            done()
    result = ReplayResult(
        asked=asked,
        estimator=name,
        trust=inputs.trust(name, model, asked),
        plan=plan,
        pools=pools,
        server=server,
        load=load,
        lengths=lengths,
        runs=runs,
        drafts=drafted,
        ranks=ranks,
        limits={k: float(x) for k, x in (("ttft", ttft), ("tpot", tpot)) if x is not None},
    )
    if out is not None:
        result.write(out)
    return result


def _caching(wanted: bool | None, plan: Plan, drafts: ReplayDrafts | None) -> bool | None:
    """Whether prompts are looked up in the cache; None: where they begin alike."""
    replayed = drafts is None and float(plan.ep) <= 1
    return False if wanted is None and not replayed else wanted


def _estimator(
    asked: inputs.Given, estimator: str | None, engine: str | None
) -> tuple[str, Serving, str]:
    """The estimator that prices passes, its name, and the engine that it is of.

    Raises:
        InputError: an estimator of another engine than the one asked for.
    """
    name = either(estimator, f"serving.{engine}" if engine else inputs.BEST)
    model = inputs.serving(name, asked)
    its = model.engine_name
    if engine is not None and engine != its:
        raise refuse("--engine", engine, f"{its}, which {name} is of, or another --estimator")
    return name, model, its


Run = Callable[[Arriving, int, float | None, np.ndarray], ReplayRun]  # a run of copies of a server


def _server(
    asked: inputs.Given,
    model: Serving,
    plan: Plan,
    sizes: Sizes,
    lengths: Lengths,
    pools: PoolSplit | None,
    ranks: ReplayRouting | None,
    drafts: ReplayDrafts | None,
) -> tuple[ReplayedInstance, Run]:
    """An instance that yields tokens, and what runs all of them."""
    given = model.engine_name, model, asked.model.architecture, asked.hardware
    sizes, mean_tokens = sizes._replace(caching=lengths.caching), lengths.mean_tokens
    if ranks is not None and ranks.ranks > 1:
        degrees = {"tp": float(plan.tp), "ep": float(ranks.ranks)}
        degrees |= {"attention_dp": degrees["ep"]}
        server = server_of(*given, degrees, sizes, mean_tokens, drafts)
        return server, partial(run_routed, server, ranks)
    if pools is None:
        tp = float(plan.tp)
        server = server_of(*given, {"tp": tp}, sizes, mean_tokens, drafts)
        server = with_host(server, sizes.host, asked, tp, mean_tokens)
        return server, (
            partial(run_routed, server, ranks) if ranks else partial(run_in_turn, server)
        )
    pair = pair_of(pools, *given, (sizes, sizes), mean_tokens, drafts)
    return pair.decode, lambda requests, _, loop, counted: run_pools(pair, requests, loop, counted)


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
        InputError: several stages, or several attention ranks in a pool.
    """
    ranks = either(ep, 1.0)
    if pools is not None:
        if ranks > 1:
            raise refuse("--ep", ranks, "1 in two pools: attention ranks there are not replayed")
        check_pools(pools, arch)
        tp, dp = pools.decode_tp, pools.decode_instances
    if tp is None:
        raise ask("--tp", "On how many GPUs?", "--tp")
    if either(pp, 1.0) > 1:
        raise refuse("--pp", pp, "1: micro-batches of a pipeline are not replayed")
    check_split(arch, tp, 1.0, ranks)
    return Plan.of(tp=tp, ep=ranks, dp=dp)


def _check_run(count: int, warmup: float, dp: float, concurrency: float | None) -> None:
    """Check that a run of ``count`` requests is as long as its warm-up and copies need.

    Raises:
        InputError: a warm-up of all requests, or more copies than requests.
    """
    if warmup >= count:
        raise refuse("--warmup", warmup, f"fewer than the requests of a run, {count}")
    if dp > min(count, either(concurrency, count)):
        raise refuse("--dp", dp, "at most as many copies as requests")


def _count(prompts: float | None, load: Load, lengths: Lengths) -> int:
    """Requests of a run.

    Raises:
        InputError: more than the trace has, or than a run may have.
    """
    alone = prompts is None and load.rate is None and lengths.trace is None
    drawn_for = TURNS if alone else 1
    flight = either(load.concurrency, 0.0)
    if drawn_for * flight > MAX_REQUESTS:
        runs = "" if drawn_for == 1 else f", or --prompts: a run has {TURNS} for each of them"
        raise refuse("--concurrency", flight, f"at most {MAX_REQUESTS / drawn_for:.12g}{runs}")
    if lengths.trace is not None:
        there = len(lengths.trace)
        if prompts is not None and prompts > there:
            raise refuse("--prompts", prompts, f"at most the {there} requests of the trace")
        return int(either(prompts, there))
    return int(either(prompts, TURNS * flight if load.rate is None else PROMPTS))


def _check_drawn(
    seeds: float,
    load: Load,
    lengths: Lengths,
    drafts: ReplayDrafts | None,
    host: float | None,
    *,
    pools: bool,
) -> None:
    """Do nothing where runs differ, and prompts are not both drafted for and looked up.

    Raises:
        InputError: several runs that are alike; a prefix cache with drafts; host memory without.
    """
    if seeds > 1 and not (randomly(load, lengths) or drafts):
        raise refuse("--seeds", seeds, "1: nothing is drawn, so that all runs are alike")
    if drafts and lengths.caching:
        raise refuse("--enable-prefix-caching", "yes", "without --drafts")
    if host is not None and (pools or not lengths.caching):
        raise refuse("--kv-offloading-size", host, "with --enable-prefix-caching, in one pool")


def _check_context(model: Model, lengths: Lengths, count: int) -> None:
    """Do nothing where every request is within the model's longest context.

    Raises:
        InputError: a request that a server of the model refuses.
    """
    trace = lengths.trace
    if trace is None:
        inputs.check_context(model, inputs.workload(lengths.prefix + lengths.isl, lengths.osl, 0.0))
        return
    worst = int(np.argmax((trace.isl + trace.osl)[:count]))
    isl, osl = (float(x[worst]) for x in (trace.isl, trace.osl))
    rule = legal.context(model.architecture, inputs.workload(isl, osl, 0.0))
    if not rule.holds:
        said = f"{isl:.12g} tokens in and {osl:.12g} out"
        allowed = rule.allowed() + inputs.context_hint()
        raise InputError(trace.file, f"request {worst + 1} by arrival", said, allowed)
