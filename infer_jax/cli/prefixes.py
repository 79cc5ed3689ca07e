"""Options of `replay`: prefixes that prompts share, the prefix cache, host memory."""

from typing import Annotated

import typer

from infer_jax.cli import parsers

PrefixCaching = Annotated[
    bool | None,
    typer.Option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        help="Prompts begin with what earlier ones left in the cache, as engines have it by "
        "themselves: of a trace with hashes, or with --prefix-len.",
    ),
]
PrefixLen = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="TOKENS",
        help="Tokens that drawn prompts begin with, before --isl of their own "
        "(--random-prefix-len of `vllm bench serve`).",
    ),
]
NumPrefixes = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="N",
        help="Different prefixes, equally many prompts of each (--prefix-repetition-num-prefixes "
        "there, --gsp-num-groups of SGLang's); 1 if not given.",
    ),
]
HostMemory = Annotated[
    float | None,
    typer.Option(
        "--kv-offloading-size",
        parser=parsers.real("a finite size above 0", 0.0),
        metavar="GIB",
        help="Host memory of an instance for blocks that leave the cache (TensorRT-LLM: "
        "host_cache_size).",
    ),
]
PreemptionMode = Annotated[
    str | None,
    typer.Option(
        "--preemption-mode",
        metavar="MODE",
        help="A request that makes room is computed anew, recompute, or its blocks go to host "
        "memory and come back, swap, as vLLM V0 could; recompute where not given.",
    ),
]
SwapSpace = Annotated[
    float | None,
    typer.Option(
        "--swap-space",
        parser=parsers.real("a finite size above 0", 0.0),
        metavar="GIB",
        help="Host memory of each GPU for --preemption-mode swap; 4 if not given.",
    ),
]
