"""Options that verbs share. Read by `infer_jax.cli.parsers`; verbs see plain numbers."""

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from infer_jax.catalog import list_models, list_systems
from infer_jax.cli import parsers
from infer_jax.estimators import VARIANTS
from infer_jax.verbs.checks import MOST_GPUS


def begun(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A shell completion: those of ``names`` that begin with the typed text."""

    def those(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return those


Config = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A bundled model by name, a config.json, or a folder that holds one.",
        autocompletion=begun(list_models),
    ),
]
HardwareName = Annotated[
    str,
    typer.Option(
        "--hardware",
        metavar="NAME|FILE",
        help="A shipped profile, or a .toml file.",
        autocompletion=begun(list_systems),
    ),
]
FORMATS = (
    "Format of all matrices: bf16, fp8, fp8_block, int8, int4, awq, gptq, nvfp4, mxfp4; "
    "the checkpoint's where not given"
)
Quant = Annotated[str | None, typer.Option(metavar="FORMAT", help=f"{FORMATS}.")]
KvDtype = Annotated[
    str | None, typer.Option("--kv-dtype", metavar="FORMAT", help="KV cache: bf16, fp16 or fp8.")
]
Isl = Annotated[
    float,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Input sequence length of a request."
    ),
]
Osl = Annotated[
    float,
    typer.Option(
        parser=parsers.count(1), metavar="TOKENS", help="Output sequence length of a request."
    ),
]
SPREAD = "2200±600 (or 2200+-600) where requests that arrive by themselves differ"
SpreadIsl = Annotated[
    float | None,
    typer.Option(
        "--isl",
        parser=parsers.tokens(1),
        metavar="TOKENS",
        help=f"Input sequence length of a request, 4096 where not given; {SPREAD}.",
    ),
]
SpreadOsl = Annotated[
    float | None,
    typer.Option(
        "--osl",
        parser=parsers.tokens(1),
        metavar="TOKENS",
        help=f"Output sequence length of a request, 512 where not given; {SPREAD}.",
    ),
]
Trace = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Requests as they were recorded: lengths, cached prompts and burstiness; in place of "
        "--isl, --osl and --prefix.",
    ),
]
Prefix = Annotated[
    float,
    typer.Option(
        parser=parsers.count(0),
        metavar="TOKENS",
        help="Tokens of the prompt that are in the cache.",
    ),
]
Batch = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="N", help="Requests running at once in one instance."
    ),
]
Concurrency = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1), metavar="N", help="Requests running at once in all dp copies."
    ),
]
Tp = Annotated[
    float | None, typer.Option(parser=parsers.count(1), metavar="N", help="Tensor parallel degree.")
]
Pp = Annotated[
    float | None,
    typer.Option(parser=parsers.count(1), metavar="N", help="Pipeline parallel degree."),
]
Ep = Annotated[
    float | None,
    typer.Option(
        parser=parsers.count(1),
        metavar="N",
        help="Expert parallel degree; an instance has tp x pp x ep GPUs.",
    ),
]
Dp = Annotated[
    float,
    typer.Option(
        parser=parsers.count(1), metavar="N", help="Copies of the instance (data parallel)."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--request-rate",
        parser=parsers.real("a finite rate above 0", 0.0),
        metavar="REQ/S",
        help="Requests per second, arriving at random (Poisson).",
    ),
]
TotalGpus = Annotated[
    float | None,
    typer.Option(
        "--total-gpus",
        parser=parsers.count(1, MOST_GPUS, ", five times the GPUs of the largest cluster of 2025"),
        metavar="N",
        help="GPUs in all.",
    ),
]
Price = Annotated[
    float | None,
    typer.Option(
        parser=parsers.real("a price above 0", 0.0),
        metavar="USD/H",
        help="Rent of one GPU; the profile's where not given.",
    ),
]
Ttft = Annotated[
    float | None,
    typer.Option(
        parser=parsers.duration,
        metavar="TIME",
        help="Limit of the time to first token: 300ms, 0.3s; a bare number is ms.",
    ),
]
Tpot = Annotated[
    float | None,
    typer.Option(
        parser=parsers.duration,
        metavar="TIME",
        help="Limit of the time per output token: 30ms; a bare number is ms.",
    ),
]
EstimatorName = Annotated[
    str | None,
    typer.Option(
        "--estimator",
        metavar="NAME",
        help="A name that `infer-jax estimators` lists.",
        autocompletion=begun(lambda: VARIANTS),
    ),
]
Picture = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="FILE", help="A picture of the answer, too: .png, .svg, .pdf or .html."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="The answer alone: no progress, no notes below it.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a number first: hardware.chip.memory_bandwidth=8e12, or *1.5 of it; "
        "`*` stands for any block. Repeat for several.",
    ),
]
