"""`infer-jax replay`: what happens to every request of a trace or a benchmark on a server."""

from typing import Annotated

import typer

from infer_jax.cli import (
    drafting,
    memory,
    options as opt,
    parsers,
    pools,
    prefixes,
    replay_load as load,
    show,
)
from infer_jax.cli.runtime import loops_in_one_piece
from infer_jax.verbs.replay import replay as ask

PassTokens = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="TOKENS",
        help="Tokens of one pass at most; the engine's default where not given.",
    ),
]
PassSequences = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="N",
        help="Sequences that run at once at most; the engine's default where not given.",
    ),
]
Block = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="TOKENS",
        help="Tokens of a cache block; 16 of vLLM, 1 of SGLang, 32 of TensorRT-LLM.",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Whose scheduler: vllm, sglang or trtllm; the estimator's where not given.",
    ),
]
Chunked = Annotated[
    bool | None,
    typer.Option(
        "--enable-chunked-prefill/--no-enable-chunked-prefill",
        help="Prompts are fed in parts; vLLM and SGLang do, TensorRT-LLM does not by itself.",
    ),
]
Overlap = Annotated[
    bool | None,
    typer.Option(
        "--async-scheduling/--no-async-scheduling",
        help="A pass is put together while the one before it runs, as engines do by themselves.",
    ),
]
Router = Annotated[
    str | None,
    typer.Option(
        "--router",
        metavar="NAME",
        help="How requests are routed to the attention ranks of --ep or the copies of --dp: "
        "round_robin, shortest_queue, minimum_tokens, weighted_queue; to copies also cache_aware, "
        "prefix_hash. As the engine does to ranks, and in turn to copies, where not given.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="FILE", help="A picture, .png, .svg, .pdf, .html, or all requests, .csv."
    ),
]


def replay(
    config: opt.Config,
    hardware: opt.HardwareName,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,  # pyright: ignore[reportArgumentType]
    prefill_tp: pools.PrefillTp = None,
    prefill_instances: pools.PrefillInstances = None,
    decode_tp: pools.DecodeTp = None,
    decode_instances: pools.DecodeInstances = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    engine: EngineName = None,
    max_num_seqs: PassSequences = None,
    max_num_batched_tokens: PassTokens = None,
    block_size: Block = None,
    gpu_memory_utilization: memory.Utilization = None,
    enable_chunked_prefill: Chunked = None,
    async_scheduling: Overlap = None,
    enable_prefix_caching: prefixes.PrefixCaching = None,
    prefix_len: prefixes.PrefixLen = None,
    num_prefixes: prefixes.NumPrefixes = None,
    kv_offloading_size: prefixes.HostMemory = None,
    preemption_mode: prefixes.PreemptionMode = None,
    swap_space: prefixes.SwapSpace = None,
    router: Router = None,
    drafts: drafting.Drafts = None,
    acceptance: drafting.AcceptanceOrFile = None,
    draft: drafting.Draft = None,
    heads: drafting.Heads = False,
    trace: load.Trace = None,
    concurrency: load.InFlight = None,
    request_rate: load.Rate = None,
    burstiness: load.Burstiness = 1,
    ramp_up: load.RampUp = None,
    prompts: load.Prompts = None,
    isl: load.Isl = None,
    osl: load.Osl = None,
    range_ratio: load.RangeRatio = None,
    warmup: load.Warmup = 0,
    seed: load.Seed = 0,
    seeds: load.Seeds = 1,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    estimator: opt.EstimatorName = None,
    out: Out = None,
    set: opt.Set = None,
    as_json: opt.Json = False,
) -> None:
    """What happens to each request of a trace or benchmark: percentiles, queue, cache, power."""
    given = locals()
    with loops_in_one_piece():
        show.answer(ask, given)
