"""``ij.replay``: what happens to every request of a trace or a benchmark on a server."""

from typing import Annotated

from infer_jax import verbs
from infer_jax.results import option
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import (
    SHARE,
    Option,
    above_zero,
    count,
    either,
    seconds_of,
    without_none,
)
from infer_jax.verbs.options import WHOLE

FLAGS = ("--concurrency", "--max-concurrency")
RATE = above_zero("a rate", why="; N at once are a concurrency of N for N prompts")


@verb
def replay(
    config: opt.Config,
    hardware: opt.System,
    *,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,
    layout: opt.Layout = None,
    enable_expert_parallel: opt.ExpertParallel = False,
    enable_dp_attention: opt.DpAttention = False,
    prefill_tp: Annotated[float | None, Option.of("N", WHOLE)] = None,
    prefill_instances: Annotated[float | None, Option.of("N", WHOLE)] = None,
    decode_tp: Annotated[float | None, Option.of("N", WHOLE)] = None,
    decode_instances: Annotated[float | None, Option.of("N", WHOLE)] = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    engine: opt.Engine = None,
    engine_version: opt.EngineVersion = None,
    max_num_seqs: Annotated[float | None, Option.of("N", WHOLE)] = None,
    max_num_batched_tokens: opt.PassTokens = None,
    block_size: Annotated[float | None, Option.of("TOKENS", WHOLE)] = None,
    gpu_memory_utilization: opt.GpuMemory = None,
    enable_chunked_prefill: Annotated[bool | None, Option.of()] = None,
    async_scheduling: Annotated[bool | None, Option.of()] = None,
    enable_prefix_caching: Annotated[bool | None, Option.of()] = None,
    prefix_len: Annotated[float | None, Option.of("TOKENS", WHOLE)] = None,
    num_prefixes: Annotated[float | None, Option.of("N", WHOLE)] = None,
    kv_offloading_size: Annotated[float | None, Option.of("GIB", above_zero("a size"))] = None,
    router: Annotated[str | None, Option.of("NAME")] = None,
    drafts: Annotated[float | None, Option.of("N", count(1, 64))] = None,
    acceptance: opt.Acceptance = None,
    draft: opt.Draft = None,
    heads: opt.Heads = False,
    trace: Annotated[opt.Place | None, Option.of("FILE")] = None,
    concurrency: Annotated[float | None, Option.of("N", WHOLE, flags=FLAGS)] = None,
    request_rate: Annotated[float | None, Option.of("REQ/S", RATE)] = None,
    burstiness: Annotated[float, Option.of("X", above_zero())] = 1.0,
    ramp_up: Annotated[float | None, Option.of("REQ/S", opt.RATE)] = None,
    prompts: Annotated[float | None, Option.of("N", count(1, 1e6))] = None,
    isl: Annotated[float | None, Option.of("TOKENS", WHOLE)] = None,
    osl: Annotated[float | None, Option.of("TOKENS", WHOLE)] = None,
    range_ratio: Annotated[float | None, Option.of("SHARE", SHARE)] = None,
    warmup: Annotated[float, Option.of("N", count(0))] = 0,
    seed: Annotated[float, Option.of("N", opt.SEED)] = 0,
    seeds: Annotated[float, Option.of("N", count(1, 1000))] = 1,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    estimator: opt.EstimatorName = None,
    out: Annotated[opt.Place | None, Option.of("FILE")] = None,
    set: opt.Changes = None,
) -> "verbs.ReplayResult":
    """What happens to each request of a trace or benchmark: percentiles, queue, cache, power.

    The scheduler of an engine, pass by pass, for the requests of a ``trace`` or of a benchmark:
    ``concurrency`` kept in flight, ``request_rate`` a second, or both. Goodput meets ``ttft`` and
    ``tpot``, seconds or a text such as "30ms". ``out``: a picture, or a .csv of all requests.

    Args:
        prefill_tp: GPUs of an instance that prefills.
        prefill_instances: Instances that prefill; or 1.
        decode_tp: GPUs of an instance that decodes.
        decode_instances: Instances that decode; or 1.
        max_num_seqs: Sequences that run at once at most; the engine's default where not given.
        block_size: Tokens of a cache block; 16 of vLLM, 1 of SGLang, 32 of TensorRT-LLM.
        enable_chunked_prefill: Prompts are fed in parts; vLLM and SGLang do, TensorRT-LLM does not
            by itself.
        async_scheduling: A pass is put together while the one before it runs, as engines do by
            themselves.
        enable_prefix_caching: Prompts begin with what earlier ones left in the cache, as engines
            have it by themselves: of a trace with hashes, or with --prefix-len.
        prefix_len: Tokens that drawn prompts begin with, before --isl of their own
            (--random-prefix-len of `vllm bench serve`).
        num_prefixes: Different prefixes, equally many prompts of each
            (--prefix-repetition-num-prefixes there, --gsp-num-groups of SGLang's); 1 if not given.
        kv_offloading_size: Host memory of an instance for blocks that leave the cache
            (TensorRT-LLM: host_cache_size).
        router: How requests are routed to the attention ranks of --ep or the copies of --dp:
            round_robin, shortest_queue, minimum_tokens, weighted_queue; to copies also cache_aware,
            prefix_hash. As the engine does to ranks, and in turn to copies, where not given.
        drafts: Tokens drafted for each request in a pass (num_speculative_tokens).
        trace: Requests as recorded, in place of drawn ones.
        concurrency: Requests in flight in all dp copies; with --request-rate at most.
        request_rate: Requests per second, arriving at random (Poisson, or --burstiness).
        burstiness: Shape of the gamma law of times between arrivals: 1 is Poisson, less is
            burstier.
        ramp_up: Rate of the first requests, which rises linearly to --request-rate.
        prompts: Requests of a run; all of a trace, 10 x --concurrency or 1000 where not given.
        isl: Tokens of a prompt; 1024 if not given.
        osl: Tokens of an output; 128 if not given.
        range_ratio: Lengths are drawn from this share of --isl and --osl up to them, as InferenceX
            does; `vllm bench serve` draws between 1 - X and 1 + X of them. 1 if not given.
        warmup: First requests that are served, not counted, such as the burst of --concurrency N.
        seed: Of all random numbers.
        seeds: Runs of other random numbers.
        out: A picture, .png, .svg, .pdf, .html, or all requests, .csv.

    Raises:
        InputError: a model, system or trace that cannot be read, a plan or an engine that is not
            replayed, a request that the server never holds.

    >>> import infer_jax as ij
    >>> run = ij.replay("llama-3.1-8b", "h100_sxm", tp=1, concurrency=4, prompts=16, isl=512)
    >>> run.throughput > 0, run.to_pandas().shape[0]
    (True, 16)
    """
    import numpy as np

    from infer_jax.servers.cluster import cluster_of
    from infer_jax.servers.instance import Sizes
    from infer_jax.servers.stream import RequestStream, with_drafts
    from infer_jax.specs import UNBOUNDED
    from infer_jax.verbs import inputs, pictures, progress, replay_checks as checks
    from infer_jax.verbs.drafts import DraftOptions

    setup = inputs.setup(config, hardware, quant, kv_dtype, None, set, engine_version)
    if out is not None:
        pictures.check(out, (*pictures.KINDS, ".csv"))
    pools = {"prefill_tp": prefill_tp, "prefill_instances": prefill_instances}
    pools |= {"decode_tp": decode_tp, "decode_instances": decode_instances}
    degrees = {"tp": tp, "pp": pp, "ep": ep, "dp": dp}
    whole = verbs.LayoutOptions.of(layout, degrees, enable_expert_parallel, enable_dp_attention)
    plan, split = checks.layout_of(setup.model.architecture, whole, pools)
    dp = float(plan.dp)
    if max_num_batched_tokens is None and plan.chunk < UNBOUNDED:
        max_num_batched_tokens = float(plan.chunk)
    name = either(estimator, f"serving.{engine}" if engine else inputs.BEST)
    model = inputs.serving(name, setup)
    if engine not in (None, model.engine_name):
        other = f"{model.engine_name}, which {name} is of, or another {option('estimator')}"
        raise refuse("engine", engine, other)
    drafts = either(drafts, float(plan.drafts) or None)
    drafted = checks.drafts_of(setup.model, drafts, DraftOptions(draft, acceptance, heads))
    if enable_prefix_caching is None and (drafted is not None or float(plan.attention_dp) > 1):
        enable_prefix_caching = False  # which schedulers look up, and the replay of these does not
    stream = RequestStream.of(
        trace=trace, isl=isl, osl=osl, range_ratio=range_ratio, caching=enable_prefix_caching,
        prefix_len=prefix_len, num_prefixes=num_prefixes, concurrency=concurrency,
        rate=request_rate, burstiness=burstiness, ramp_up=ramp_up,
    )  # fmt: skip
    count = stream.count(prompts)
    checks.check_context(setup.model, stream, count)
    stream.check_run(count, drafted, warmup=warmup, dp=dp, seeds=seeds)
    if kv_offloading_size is not None and (split or not stream.caching):
        allowed = f"with {option('enable_prefix_caching')}, in one pool"
        raise refuse("kv_offloading_size", kv_offloading_size, allowed)
    sizes = Sizes(max_num_seqs, max_num_batched_tokens, block_size, gpu_memory_utilization,
                  enable_chunked_prefill, async_scheduling, kv_offloading_size,
                  stream.caching)  # fmt: skip
    served = model, setup.model.architecture, setup.system, setup.hardware
    cluster = cluster_of(*served, plan, split, router, sizes, stream, drafted)
    counted, runs = np.arange(count) >= warmup, []
    with progress.busy("replaying") as show:
        for i in range(int(seeds)):
            requests = with_drafts(drafted, stream.draw(count, (int(seed), i)), seed, i)
            runs.append(cluster.run(requests, concurrency, counted))
            show(f"replayed {i + 1} of {seeds:.0f} runs")
    result = verbs.ReplayResult(
        setup=setup,
        estimator=name,
        trust=inputs.trust(name, model, setup, None if split else plan),
        cluster=cluster,
        stream=stream,
        runs=runs,
        limits=without_none(ttft=seconds_of(ttft), tpot=seconds_of(tpot)),
    )
    if out is not None:
        result.write(out)
    return result
