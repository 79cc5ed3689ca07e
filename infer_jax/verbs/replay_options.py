"""The options that replay alone has: its server, its requests, and when they arrive."""

from typing import Annotated

from infer_jax.verbs import options as opt
from infer_jax.verbs.option import SHARE, Option, above_zero, count

WHOLE = opt.WHOLE

# the server
PrefillTp = Annotated[float | None, Option("GPUs of an instance that prefills.", "N", WHOLE)]
PrefillInstances = Annotated[float | None, Option("Instances that prefill; or 1.", "N", WHOLE)]
DecodeTp = Annotated[float | None, Option("GPUs of an instance that decodes.", "N", WHOLE)]
DecodeInstances = Annotated[float | None, Option("Instances that decode; or 1.", "N", WHOLE)]
ENGINE = "Whose scheduler: vllm, sglang or trtllm; the estimator's where not given."
EngineName = Annotated[str | None, Option(ENGINE, "NAME")]
SLOTS = "Sequences that run at once at most; the engine's default where not given."
PassSequences = Annotated[float | None, Option(SLOTS, "N", WHOLE)]
BLOCK = "Tokens of a cache block; 16 of vLLM, 1 of SGLang, 32 of TensorRT-LLM."
BlockSize = Annotated[float | None, Option(BLOCK, "TOKENS", WHOLE)]
CHUNKED = "Prompts are fed in parts; vLLM and SGLang do, TensorRT-LLM does not by itself."
ChunkedPrefill = Annotated[bool | None, Option(CHUNKED)]
OVERLAP = "A pass is put together while the one before it runs, as engines do by themselves."
AsyncScheduling = Annotated[bool | None, Option(OVERLAP)]
ROUTER = (
    "How requests are routed to the attention ranks of --ep or the copies of --dp: "
    "round_robin, shortest_queue, minimum_tokens, weighted_queue; to copies also cache_aware, "
    "prefix_hash. As the engine does to ranks, and in turn to copies, where not given."
)
Router = Annotated[str | None, Option(ROUTER, "NAME")]
DRAFTS = "Tokens drafted for each request in a pass (num_speculative_tokens)."
Drafts = Annotated[float | None, Option(DRAFTS, "N", count(1, 64))]

# prefixes that prompts share, and host memory
CACHING = (
    "Prompts begin with what earlier ones left in the cache, as engines have it by themselves: of "
    "a trace with hashes, or with --prefix-len."
)
PrefixCaching = Annotated[bool | None, Option(CACHING)]
PREFIX = (
    "Tokens that drawn prompts begin with, before --isl of their own (--random-prefix-len of "
    "`vllm bench serve`)."
)
PrefixLen = Annotated[float | None, Option(PREFIX, "TOKENS", WHOLE)]
PREFIXES = (
    "Different prefixes, equally many prompts of each (--prefix-repetition-num-prefixes there, "
    "--gsp-num-groups of SGLang's); 1 if not given."
)
NumPrefixes = Annotated[float | None, Option(PREFIXES, "N", WHOLE)]
HOST = "Host memory of an instance for blocks that leave the cache (TensorRT-LLM: host_cache_size)."
HostMemory = Annotated[float | None, Option(HOST, "GIB", above_zero("a size"))]

# the requests
Trace = Annotated[opt.Place | None, Option("Requests as recorded, in place of drawn ones.", "FILE")]
IN_FLIGHT = "Requests in flight in all dp copies; with --request-rate at most."
FLAGS = ("--concurrency", "--max-concurrency")
Concurrency = Annotated[float | None, Option(IN_FLIGHT, "N", WHOLE, flags=FLAGS)]
RATE = above_zero("a rate", why="; N at once are a concurrency of N for N prompts")
POISSON = "Requests per second, arriving at random (Poisson, or --burstiness)."
RequestRate = Annotated[float | None, Option(POISSON, "REQ/S", RATE)]
GAMMA = "Shape of the gamma law of times between arrivals: 1 is Poisson, less is burstier."
Burstiness = Annotated[float, Option(GAMMA, "X", above_zero())]
RAMP = "Rate of the first requests, which rises linearly to --request-rate."
RampUp = Annotated[float | None, Option(RAMP, "REQ/S", opt.RATE)]
PROMPTS = "Requests of a run; all of a trace, 10 x --concurrency or 1000 where not given."
Prompts = Annotated[float | None, Option(PROMPTS, "N", count(1, 1e6))]
Isl = Annotated[float | None, Option("Tokens of a prompt; 1024 if not given.", "TOKENS", WHOLE)]
Osl = Annotated[float | None, Option("Tokens of an output; 128 if not given.", "TOKENS", WHOLE)]
RATIO = (
    "Lengths are drawn from this share of --isl and --osl up to them, as InferenceX does; "
    "`vllm bench serve` draws between 1 - X and 1 + X of them. 1 if not given."
)
RangeRatio = Annotated[float | None, Option(RATIO, "SHARE", SHARE)]
WARMUP = "First requests that are served, not counted, such as the burst of --concurrency N."
Warmup = Annotated[float, Option(WARMUP, "N", count(0))]
Seed = Annotated[float, Option("Of all random numbers.", "N", opt.SEED)]
Seeds = Annotated[float, Option("Runs of other random numbers.", "N", count(1, 1000))]
OUT = "A picture, .png, .svg, .pdf, .html, or all requests, .csv."
Out = Annotated[opt.Place | None, Option(OUT, "FILE")]
