"""`infer-jax memory`: what one GPU holds, and how many tokens and requests its cache takes."""

from typing import Annotated

import typer

from infer_jax.cli import options as opt, parsers, show
from infer_jax.verbs.memory import DEFAULTS, memory as ask

Utilization = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a share above 0, of 1 at most", 0.0, 1.0),
        metavar="SHARE",
        help="Share of the memory the server may use; vLLM's default where not given.",
    ),
]
Longest = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="TOKENS",
        help="Longest request; the model's longest context where not given.",
    ),
]
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
        help="Sequences of one pass at most; those of --batch, else 1,024, where not given.",
    ),
]
Block = Annotated[
    float,
    typer.Option(parser=parsers.count(1), metavar="TOKENS", help="Tokens of a cache block."),
]


def memory(
    config: opt.Config,
    hardware: opt.HardwareName,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    gpu_memory_utilization: Utilization = None,
    max_model_len: Longest = None,
    max_num_batched_tokens: PassTokens = None,
    max_num_seqs: PassSequences = None,
    block_size: Block = int(DEFAULTS.block),
    batch: opt.Batch = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    out: opt.Picture = None,
    set: opt.Set = None,
    as_json: opt.Json = False,
) -> None:
    """Does it fit: weights, KV cache, its tokens and requests, as a vLLM server prints them."""
    show.pictured(ask, locals())
