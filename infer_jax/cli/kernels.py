"""`infer-jax kernels`: a pass as a sum of kernels, each with its time, work and bound."""

from typing import Annotated

import typer

from infer_jax.cli import options as opt, parsers, show
from infer_jax.specs import Architecture
from infer_jax.verbs import kernel_rows
from infer_jax.verbs.kernel_rows import Profile, profiled as profiled
from infer_jax.verbs.kernels import kernels as ask

Yes = Annotated[bool, typer.Option("--deepep", help="Dispatch and combine by DeepEP.")]
Two = Annotated[bool, typer.Option("--two-batch", help="Two micro-batches that overlap.")]
SmShare = Annotated[
    float,
    typer.Option(
        parser=parsers.real("a share above 0, of 1 at most", 0.0, 1.0),
        metavar="SHARE",
        help="SMs that compute while prefill dispatches.",
    ),
]
PrefillTokens = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Tokens of a prefill pass a group."
    ),
]
Nodes = Annotated[
    float | None, typer.Option(parser=parsers.count(1), metavar="N", help="Nodes of the instance.")
]
Published = Annotated[
    bool, typer.Option("--as-published", help="The authors' assembly, with its quirks.")
]


def kernels(
    config: opt.Config,
    hardware: opt.HardwareName,
    tp: opt.Tp = 1,  # pyright: ignore[reportArgumentType]
    ep: opt.Ep = 1,  # pyright: ignore[reportArgumentType]
    nodes: Nodes = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    batch: opt.Batch = None,
    prefill_tokens: PrefillTokens = None,
    deepep: Yes = False,
    two_batch: Two = False,
    sm_share: SmShare = 1.0,
    price: opt.Price = None,
    as_published: Published = False,
    out: opt.Picture = None,
    set: opt.Set = None,
    as_json: opt.Json = False,
) -> None:
    """What is each kernel's time, FLOP, bytes and bound; TTFT, TPOT and tokens/s per GPU?"""
    show.pictured(ask, locals())


def rows(arch: Architecture, profile: Profile) -> list[dict[str, object]]:
    """One row a kernel, as a report has them."""
    return [dict(row) for row in kernel_rows.rows(arch, profile)]
