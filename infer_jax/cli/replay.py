"""`infer-jax replay`: what happens to every request of a trace or a benchmark on a server."""

from typing import Annotated

import typer

from infer_jax.cli import memory, options as opt, parsers, pools, show
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
PrefixCaching = Annotated[
    bool,
    typer.Option(
        "--enable-prefix-caching",
        help="Prompts of a trace with hashes begin with what earlier ones left in the cache.",
    ),
]
Trace = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Requests as recorded, in place of drawn ones."),
]
Burstiness = Annotated[
    float,
    typer.Option(
        parser=parsers.real("a number above 0", 0.0),
        metavar="X",
        help="Shape of the gamma law of times between arrivals: 1 is Poisson, less is burstier.",
    ),
]
AT_ONCE = "a finite rate above 0; all N at once are --concurrency N --prompts N"
Rate = Annotated[
    float | None,
    typer.Option(
        "--request-rate",
        parser=parsers.real(AT_ONCE, 0.0),
        metavar="REQ/S",
        help="Requests per second, arriving at random (Poisson, or --burstiness).",
    ),
]
RampUp = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a finite rate above 0", 0.0),
        metavar="REQ/S",
        help="Rate of the first requests, which rises linearly to --request-rate.",
    ),
]
InFlight = Annotated[
    float | None,
    typer.Option(
        "--concurrency",
        "--max-concurrency",
        parser=parsers.count(1),
        metavar="N",
        help="Requests in flight in all dp copies; with --request-rate at most.",
    ),
]
Prompts = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1, 1e6),
        metavar="N",
        help="Requests of a run; all of a trace, 10 x --concurrency or 1000 where not given.",
    ),
]
Isl = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Tokens of a prompt; 1024 if not given."
    ),
]
Osl = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Tokens of an output; 128 if not given."
    ),
]
RangeRatio = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a share above 0, of 1 at most", 0.0, 1.0),
        metavar="SHARE",
        help="Lengths are drawn from this share of --isl and --osl up to them, as InferenceX does; "
        "`vllm bench serve` draws between 1 - X and 1 + X of them. 1 if not given.",
    ),
]
Warmup = Annotated[
    float,
    typer.Option(
        parser=parsers.count(0),
        metavar="N",
        help="First requests that are served, not counted, such as the burst of --concurrency N.",
    ),
]
Seed = Annotated[
    float,
    typer.Option(parser=parsers.count(0, 2**32 - 1), metavar="N", help="Of all random numbers."),
]
Seeds = Annotated[
    float,
    typer.Option(parser=parsers.count(1, 1000), metavar="N", help="Runs of other random numbers."),
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
    enable_prefix_caching: PrefixCaching = False,
    trace: Trace = None,
    concurrency: InFlight = None,
    request_rate: Rate = None,
    burstiness: Burstiness = 1,
    ramp_up: RampUp = None,
    prompts: Prompts = None,
    isl: Isl = None,
    osl: Osl = None,
    range_ratio: RangeRatio = None,
    warmup: Warmup = 0,
    seed: Seed = 0,
    seeds: Seeds = 1,
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
