"""The options that replay alone has: its server, its requests, and when they arrive."""

from typing import Annotated

from infer_jax.verbs import options as opt
from infer_jax.verbs.option import SHARE, Option, above_zero, count

# the server
PrefillTp = Annotated[float | None, Option("GPUs of an instance that prefills.", "N", opt.WHOLE)]
PrefillInstances = Annotated[float | None, Option("Instances that prefill; or 1.", "N", opt.WHOLE)]
DecodeTp = Annotated[float | None, Option("GPUs of an instance that decodes.", "N", opt.WHOLE)]
DecodeInstances = Annotated[float | None, Option("Instances that decode; or 1.", "N", opt.WHOLE)]
EngineName = Annotated[
    str | None,
    Option("Whose scheduler: vllm, sglang or trtllm; the estimator's where not given.", "NAME"),
]
PassSequences = Annotated[
    float | None,
    Option(
        "Sequences that run at once at most; the engine's default where not given.", "N", opt.WHOLE
    ),
]
BlockSize = Annotated[
    float | None,
    Option(
        "Tokens of a cache block; 16 of vLLM, 1 of SGLang, 32 of TensorRT-LLM.",
        "TOKENS",
        opt.WHOLE,
    ),
]
ChunkedPrefill = Annotated[
    bool | None,
    Option("Prompts are fed in parts; vLLM and SGLang do, TensorRT-LLM does not by itself."),
]
AsyncScheduling = Annotated[
    bool | None,
    Option("A pass is put together while the one before it runs, as engines do by themselves."),
]
Router = Annotated[
    str | None,
    Option(
        "How requests are routed to the attention ranks of --ep or the copies of --dp: "
        "round_robin, shortest_queue, minimum_tokens, weighted_queue; to copies also cache_aware, "
        "prefix_hash. As the engine does to ranks, and in turn to copies, where not given.",
        "NAME",
    ),
]
Drafts = Annotated[
    float | None,
    Option(
        "Tokens drafted for each request in a pass (num_speculative_tokens).", "N", count(1, 64)
    ),
]

# prefixes that prompts share, and host memory
PrefixCaching = Annotated[
    bool | None,
    Option(
        "Prompts begin with what earlier ones left in the cache, as engines have it by "
        "themselves: of a trace with hashes, or with --prefix-len."
    ),
]
PrefixLen = Annotated[
    float | None,
    Option(
        "Tokens that drawn prompts begin with, before --isl of their own (--random-prefix-len of "
        "`vllm bench serve`).",
        "TOKENS",
        opt.WHOLE,
    ),
]
NumPrefixes = Annotated[
    float | None,
    Option(
        "Different prefixes, equally many prompts of each (--prefix-repetition-num-prefixes "
        "there, --gsp-num-groups of SGLang's); 1 if not given.",
        "N",
        opt.WHOLE,
    ),
]
SIZE = above_zero("a size")
HostMemory = Annotated[
    float | None,
    Option(
        "Host memory of an instance for blocks that leave the cache (TensorRT-LLM: "
        "host_cache_size).",
        "GIB",
        SIZE,
    ),
]

# the requests
Trace = Annotated[opt.Place | None, Option("Requests as recorded, in place of drawn ones.", "FILE")]
Concurrency = Annotated[
    float | None,
    Option(
        "Requests in flight in all dp copies; with --request-rate at most.",
        "N",
        opt.WHOLE,
        flags=("--concurrency", "--max-concurrency"),
    ),
]
AT_ONCE = "; all N at once are --concurrency N --prompts N"
RequestRate = Annotated[
    float | None,
    Option(
        "Requests per second, arriving at random (Poisson, or --burstiness).",
        "REQ/S",
        above_zero("a rate", why=AT_ONCE),
    ),
]
Burstiness = Annotated[
    float,
    Option(
        "Shape of the gamma law of times between arrivals: 1 is Poisson, less is burstier.",
        "X",
        above_zero(),
    ),
]
RampUp = Annotated[
    float | None,
    Option(
        "Rate of the first requests, which rises linearly to --request-rate.", "REQ/S", opt.RATE
    ),
]
Prompts = Annotated[
    float | None,
    Option(
        "Requests of a run; all of a trace, 10 x --concurrency or 1000 where not given.",
        "N",
        count(1, 1e6),
    ),
]
Isl = Annotated[float | None, Option("Tokens of a prompt; 1024 if not given.", "TOKENS", opt.WHOLE)]
Osl = Annotated[float | None, Option("Tokens of an output; 128 if not given.", "TOKENS", opt.WHOLE)]
RangeRatio = Annotated[
    float | None,
    Option(
        "Lengths are drawn from this share of --isl and --osl up to them, as InferenceX does; "
        "`vllm bench serve` draws between 1 - X and 1 + X of them. 1 if not given.",
        "SHARE",
        SHARE,
    ),
]
Warmup = Annotated[
    float,
    Option(
        "First requests that are served, not counted, such as the burst of --concurrency N.",
        "N",
        count(0),
    ),
]
Seed = Annotated[float, Option("Of all random numbers.", "N", opt.SEED)]
Seeds = Annotated[float, Option("Runs of other random numbers.", "N", count(1, 1000))]
Out = Annotated[
    opt.Place | None,
    Option("A picture, .png, .svg, .pdf, .html, or all requests, .csv.", "FILE"),
]
