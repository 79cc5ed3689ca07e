"""``ij.replay``: what happens to every request of a trace or a benchmark on a server."""

from typing import TYPE_CHECKING

from infer_jax.results import option
from infer_jax.verbs import options as opt, replay_options as own
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import seconds_of
from infer_jax.verbs.problems import check_name, refuse

if TYPE_CHECKING:
    from infer_jax.verbs.replay_result import ReplayResult


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
    engine_version: opt.EngineVersion = None,
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
) -> "ReplayResult":
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
    import numpy as np

    from infer_jax.engines import ENGINES
    from infer_jax.verbs import inputs, pictures, progress
    from infer_jax.verbs.drafts import DraftOptions
    from infer_jax.verbs.replay_checks import (
        check_context,
        check_run,
        cluster_of,
        priced_engine,
        replayed_plan,
    )
    from infer_jax.verbs.replay_cluster import split_of
    from infer_jax.verbs.replay_requests import drafts_of, request_stream, with_drafts
    from infer_jax.verbs.replay_result import ReplayResult
    from infer_jax.verbs.replay_server import Sizes

    asked = inputs.given(config, hardware, quant, kv_dtype, None, set, engine_version)
    check_name("engine", engine, ENGINES)
    if out is not None:
        pictures.check(out, (*pictures.KINDS, ".csv"), "")
    pools = split_of((prefill_tp, prefill_instances), (decode_tp, decode_instances), (tp, dp))
    plan = replayed_plan(asked.model.architecture, tp, pp, ep, dp, pools)
    name, model = priced_engine(asked, estimator, engine)
    drafted = drafts_of(asked.model, drafts, DraftOptions(draft, acceptance, heads))
    if enable_prefix_caching is None and (drafted is not None or float(plan.ep) > 1):
        enable_prefix_caching = False  # which schedulers look up, and the replay of these does not
    stream = request_stream(
        trace=trace, isl=isl, osl=osl, range_ratio=range_ratio, caching=enable_prefix_caching,
        prefix_len=prefix_len, num_prefixes=num_prefixes, concurrency=concurrency,
        rate=request_rate, burstiness=burstiness, ramp_up=ramp_up,
    )  # fmt: skip
    count = stream.count(prompts)
    check_context(asked.model, stream, count)
    check_run(stream, drafted, count, {"warmup": warmup, "dp": dp, "seeds": seeds})
    if kv_offloading_size is not None and (pools or not stream.caching):
        allowed = f"with {option('enable_prefix_caching')}, in one pool"
        raise refuse("kv_offloading_size", kv_offloading_size, allowed)
    sizes = Sizes(max_num_seqs, max_num_batched_tokens, block_size, gpu_memory_utilization,
                  enable_chunked_prefill, async_scheduling, kv_offloading_size,
                  stream.caching)  # fmt: skip
    cluster = cluster_of(asked, model, plan, pools, router, sizes, stream, drafted)
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
