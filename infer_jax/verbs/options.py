"""The options that several verbs have. What one verb alone has is declared beside it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Union

from infer_jax.verbs.option import (
    PROBABILITY,
    SHARE,
    AnyCase,
    OneOf,
    Option,
    Rents,
    SpreadTokens,
    Time,
    above_zero,
    count,
    look_up,
)

if TYPE_CHECKING:  # verbs are declared without JAX, so that `--help` need not import it
    from infer_jax import catalog, estimators, specs

# a name, a file or folder, or the spec
ModelLike = Union[str, os.PathLike[str], "catalog.Model", "specs.Architecture"]
HardwareLike = Union[str, os.PathLike[str], "catalog.System", "specs.Hardware"]
Place = str | os.PathLike[str]
Places = Place | Sequence[Place]
MOST_GPUS = 1e6  # five times the largest cluster of 2025 (xAI's Colossus, 200,000)
NEWEST = "2026-06"  # month, as ``engines`` has it, which imports JAX; a test holds them equal
WHOLE = count()
SEED = count(0, 2**32 - 1)


# what is asked about
CONFIG = Option(
    "A bundled model by name, a config.json, or a folder that holds one.",
    "CONFIG",
    by_place=True,
    names=look_up("catalog", "list_models"),
)
Config = Annotated[ModelLike, CONFIG]
SYSTEM = Option(
    "A shipped profile, or a .toml file.", "NAME|FILE", names=look_up("catalog", "list_systems")
)
System = Annotated[HardwareLike, SYSTEM]
SYSTEMS = replace(SYSTEM, help="A shipped profile, or a .toml file; repeat to compare.", many=True)
Systems = Annotated[HardwareLike | Sequence[HardwareLike], SYSTEMS]
FORMATS = (
    "Format of all matrices: bf16, fp8, fp8_block, int8, int4, awq, gptq, nvfp4, mxfp4; "
    "the checkpoint's where not given"
)
Quant = Annotated[str | None, Option(f"{FORMATS}.", "FORMAT", AnyCase())]
QUANTS = Option(f"{FORMATS}; repeat to compare.", "FORMAT", AnyCase(), many=True)
Quants = Annotated[str | Sequence[str] | None, QUANTS]
KvDtype = Annotated[str | None, Option("KV cache: bf16, fp16 or fp8.", "FORMAT")]
ESTIMATOR = Option(
    "A name that `infer-jax estimators` lists.", "NAME", names=look_up("estimators", "VARIANTS")
)
EstimatorName = Annotated[str | None, ESTIMATOR]
EstimatorLike = Annotated[Union[str, "estimators.Estimator", None], ESTIMATOR]
CHANGES = "Change a number first: hardware.chip.memory_bandwidth=8e12 or *1.5; may be repeated."
Changes = Annotated[str | Sequence[str] | None, Option(CHANGES, "PATH=VALUE", many=True)]
RENT = "Rent of one GPU; the profile's where not given."
PRICE = above_zero("a price")
Price = Annotated[float | None, Option(RENT, "USD/H", PRICE)]
RENTS = f"{RENT[:-1]}; h100_sxm=2.1 of one system, repeated for several."
RentsLike = float | Mapping[str, float] | Sequence[float | str | Mapping[str, float]] | None
Prices = Annotated[RentsLike, Option(RENTS, "USD/H", Rents(PRICE), many=True)]

# the layout, which ``verbs/split.py`` reads
TP_FLAGS = ("--tp", "-tp", "--tensor-parallel-size", "--tp-size")  # as engines spell it
PP_FLAGS = ("--pp", "-pp", "--pipeline-parallel-size", "--pp-size")
EP_FLAGS = ("--ep", "--expert-parallel-size", "--ep-size")
DP_FLAGS = ("--dp", "-dp", "--data-parallel-size", "--dp-size")
Tp = Annotated[float | None, Option("Tensor parallel degree.", "N", WHOLE, TP_FLAGS)]
Pp = Annotated[float | None, Option("Pipeline parallel degree.", "N", WHOLE, PP_FLAGS)]
EXPERTS = "Expert parallel degree; an instance has tp x pp x ep GPUs."
Ep = Annotated[float | None, Option(EXPERTS, "N", WHOLE, EP_FLAGS)]
Dp = Annotated[float, Option("Copies of the instance (data parallel).", "N", WHOLE, DP_FLAGS)]
LAYOUT = 'As `plan` prints it, in place of --tp and others: "TP4 DP2 EP8", "2 x TP4".'
Layout = Annotated[str | None, Option(LAYOUT, "LAYOUT")]
LAYOUTS = Option(f"{LAYOUT[:-1]}; repeat to compare.", "LAYOUT", many=True)
Layouts = Annotated[str | Sequence[str] | None, LAYOUTS]
VLLM = "vLLM's: whole experts on all --tp x --dp GPUs; --dp is groups of attention."
ExpertParallel = Annotated[bool, Option(VLLM, flags=("--enable-expert-parallel", "-ep"))]
SGLANG = "SGLang's: attention in --dp groups of the --tp GPUs, which hold --ep parts of experts."
DpAttention = Annotated[bool, Option(SGLANG, flags=("--enable-dp-attention",))]
GPUS = count(1, MOST_GPUS, ", five times the GPUs of the largest cluster of 2025")
TotalGpus = Annotated[float | None, Option("GPUs in all.", "N", GPUS)]

# the requests
ISL = Option("Input sequence length of a request.", "TOKENS", WHOLE)
OSL = Option("Output sequence length of a request.", "TOKENS", WHOLE)
Isl = Annotated[float, ISL]
Osl = Annotated[float, OSL]
SPREAD = "2200±600 (or 2200+-600) where requests that arrive by themselves differ"
SPREAD_ISL = f"{ISL.help[:-1]}, 4096 where not given; {SPREAD}."
SPREAD_OSL = f"{OSL.help[:-1]}, 512 where not given; {SPREAD}."
SpreadIsl = Annotated[float | str | None, Option(SPREAD_ISL, "TOKENS", SpreadTokens())]
SpreadOsl = Annotated[float | str | None, Option(SPREAD_OSL, "TOKENS", SpreadTokens())]
Prefix = Annotated[float, Option("Tokens of the prompt that are in the cache.", "TOKENS", count(0))]
RECORD = "Recorded requests: lengths, cached prompts, bursts; in place of --isl, --osl, --prefix."
Trace = Annotated[Place | None, Option(RECORD, "FILE")]
Batch = Annotated[float | None, Option("Requests running at once in one instance.", "N", WHOLE)]
IN_COPIES = Option("Requests running at once in all dp copies.", "N", WHOLE)
Concurrency = Annotated[float | None, IN_COPIES]
RATE = above_zero("a rate")
POLLING = "Passes from one poll for new requests to the next (--scheduler-recv-interval of SGLang)"
Polling = Annotated[float | None, Option(f"{POLLING}; 1 where not given.", "N", WHOLE)]
BALANCE = "Passes that a prompt waits at most for prompts of the other attention groups"
BALANCE += " (attention_dp_config.timeout_iters of TensorRT-LLM with enable_balance)"
BalanceTimeout = Annotated[float | None, Option(f"{BALANCE}; 0 where not given.", "N", WHOLE)]

# limits
TIME = Time()
TTFT = "Limit of the time to first token: 300ms, 0.3s; a bare number is ms."
TPOT = "Limit of the time per output token: 30ms; a bare number is ms."
Ttft = Annotated[float | str | None, Option(TTFT, "TIME", TIME)]
Tpot = Annotated[float | str | None, Option(TPOT, "TIME", TIME)]

# speculative decoding
Draft = Annotated[str | None, Option("A model that drafts (speculative decoding).", "CONFIG")]
HEADS = "Prediction heads (EAGLE, MTP) were trained for the model, which brings none."
Heads = Annotated[bool, Option(HEADS)]
ACCEPTANCE = "Try drafts: the probability that the first is accepted, or a YAML file of lengths."
Acceptance = Annotated[float | str | None, Option(ACCEPTANCE, "P|FILE", PROBABILITY)]

# a server's own
ENGINE = OneOf(look_up("engines", "ENGINES"))
ENGINE_HELP = "vllm, sglang or trtllm; the profile's, else vllm, where not given."
Engine = Annotated[str | None, Option(ENGINE_HELP, "NAME", ENGINE)]
GPU_MEMORY = "Share of the memory the server may use; vLLM's default where not given."
GpuMemory = Annotated[float | None, Option(GPU_MEMORY, "SHARE", SHARE)]
PASS_TOKENS = "Tokens of one pass at most; the engine's default where not given."
PassTokens = Annotated[float | None, Option(PASS_TOKENS, "TOKENS", WHOLE)]
VERSION = (
    "Release of the engine, or month of its software: 0.12.0, 2026-01; the newest that was "
    f"measured, of {NEWEST}, where not given. Older software launches slower."
)
EngineVersion = Annotated[str | None, Option(VERSION, "VERSION|MONTH")]

# measured runs, where their files do not say
RUN_ENGINE = Option("vllm, sglang or trtllm, where files do not say.", "NAME", ENGINE)
RunEngine = Annotated[str | None, RUN_ENGINE]
GROUPS = "Groups of data-parallel attention."
RunDp = Annotated[float | None, Option(GROUPS, "N", WHOLE, DP_FLAGS)]
RunIsl = Annotated[float | None, Option("Mean prompt, where not in files.", "TOKENS", WHOLE)]
RunOsl = Annotated[float | None, Option("Mean output, where not in files.", "TOKENS", WHOLE)]
RunRate = Annotated[float | None, Option("Arrivals per second, where not in files.", "REQ/S", RATE)]
Sidecar = Annotated[Place | None, Option("Facts by file, TOML or JSON (docs/formats.md).", "FILE")]
