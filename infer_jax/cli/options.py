"""Which options do the verbs share, and how is each of them read?

An option is read here once, checked, and refused in one sentence; verbs see plain numbers.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

from infer_jax.catalog import list_models, list_systems
from infer_jax.errors import InputError, UnsaidError
from infer_jax.estimators import VARIANTS

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1e-3}
MOST = 1e12  # tokens, requests, GPUs: beyond any system, within the integers of a float


def count(low: int, high: float = MOST, why: str = "") -> Callable[[str], float]:
    """A parser of whole numbers from ``low`` to ``high``; ``why`` it ends there."""

    def parse(text: str) -> float:
        value = _number(text)
        if value is None or value != math.floor(value) or not low <= value <= high:
            said = f"{short(text)} is not a whole number from {low} to {high:.12g}{why}."
            raise typer.BadParameter(said)
        return value

    return parse


class Tokens(float):
    """Tokens of a request, and by how many (one standard deviation) requests differ from it."""

    deviation: float = 0.0


def tokens(low: int) -> Callable[[str], Tokens]:
    """A parser of whole numbers of tokens, with their spread where it is given.

    >>> [(float(x), x.deviation) for x in map(tokens(0), ("4096", "2200±600", "2200+-600"))]
    [(4096.0, 0.0), (2200.0, 600.0), (2200.0, 600.0)]
    """

    def parse(text: str) -> Tokens:
        mean, sign, spread = str(text).replace("+-", "±").partition("±")
        value = Tokens(count(low)(mean.strip()))
        if sign:
            deviation = _number(spread.strip())
            if deviation is None or not 0.0 <= deviation <= 10.0 * value:
                said = "is not tokens and their spread, such as 2200±600 or 2200+-600"
                raise typer.BadParameter(f"{short(text)} {said} (of at most ten times as many).")
            value.deviation = deviation
        return value

    return parse


def real(allowed: str, low: float, high: float = MOST) -> Callable[[str], float]:
    """A parser of numbers above ``low`` and of at most ``high``, told as ``allowed``."""

    def parse(text: str) -> float:
        value = _number(text)
        if value is None or not low < value <= high:
            raise typer.BadParameter(f"{short(text)} is not {allowed}.")
        return value

    return parse


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """A parser of one of ``names``."""

    def parse(text: str) -> str:
        if text not in names:
            raise typer.BadParameter(f"{short(text)} is not one of {', '.join(names)}.")
        return text

    return parse


def duration(text: str) -> float:
    """Seconds of ``"300ms"``, ``"0.3s"`` or ``"80us"``; a bare number is milliseconds.

    >>> duration("0.3s"), duration("300"), duration("2e2 ms")
    (0.3, 0.3, 0.2)
    """
    match = re.fullmatch(r"([^a-zA-Zµ]+(?:[eE][+-]?\d+)?)\s*(us|ms|s|)", text.strip())
    value = _number(match[1]) if match else None
    if match is None or value is None or not 0.0 < value <= MOST:
        raise typer.BadParameter(f"{short(text)} is not a time such as 300ms, 0.3s or 300 (ms).")
    return value * SECONDS[match[2]]


def duration_or_none(text: str) -> float:
    """Seconds of a time; infinity of ``none``."""
    return math.inf if str(text).strip().casefold() == "none" else duration(text)


def _number(text: str | float) -> float | None:
    """The finite number a text spells in plain ASCII, else None.

    Some releases of typer send defaults, which are numbers, through parsers, others do not.
    """
    text = str(text)
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def short(text: object) -> str:
    """A value as a sentence can quote it: on one line, 60 characters at most."""
    shown = "".join(c if c.isprintable() else "?" for c in str(text))
    return repr(shown if len(shown) <= 60 else shown[:57] + "...")


def refuse(option: str, value: Any, allowed: str) -> InputError:
    """The sentence about one option of the command line."""
    if isinstance(value, float):
        value = f"{value:.12g}"
    return InputError("infer-jax", option, value, allowed)


def ask(option: str, question: str, ways: str) -> InputError:
    """The question about an option that is not given, and the ways to answer it."""
    return UnsaidError("infer-jax", option, question, ways)


probability = real("a probability from 0 to 1", -1e-300, 1.0)


def _begun(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What completes a name as the tab key asks: those of ``names`` that begin so."""

    def begun(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return begun


Config = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A bundled model by name, a config.json, or a folder that holds one.",
        autocompletion=_begun(list_models),
    ),
]
HardwareName = Annotated[
    str,
    typer.Option(
        "--hardware",
        metavar="NAME|FILE",
        help="A shipped profile, or a .toml file.",
        autocompletion=_begun(list_systems),
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
    typer.Option(parser=count(0), metavar="TOKENS", help="Input sequence length of a request."),
]
Osl = Annotated[
    float,
    typer.Option(parser=count(1), metavar="TOKENS", help="Output sequence length of a request."),
]
SPREAD = "2200±600 (or 2200+-600) where requests that arrive by themselves differ"
SpreadIsl = Annotated[
    float | None,
    typer.Option(
        "--isl",
        parser=tokens(0),
        metavar="TOKENS",
        help=f"Input sequence length of a request, 4096 where not given; {SPREAD}.",
    ),
]
SpreadOsl = Annotated[
    float | None,
    typer.Option(
        "--osl",
        parser=tokens(1),
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
Heads = Annotated[
    bool,
    typer.Option(
        "--heads",
        help="Prediction heads (EAGLE, MTP) were trained for the model, which brings none.",
    ),
]
Accepted = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        metavar="P|FILE",
        help="Try drafts: the probability that the first is accepted, or a YAML file of acceptance "
        "lengths; drafted by --draft or by the model's own heads.",
    ),
]
Prefix = Annotated[
    float,
    typer.Option(
        parser=count(0), metavar="TOKENS", help="Tokens of the prompt that are in the cache."
    ),
]
Batch = Annotated[
    float | None,
    typer.Option(parser=count(1), metavar="N", help="Requests running at once in one instance."),
]
Concurrency = Annotated[
    float | None,
    typer.Option(parser=count(1), metavar="N", help="Requests running at once in all dp copies."),
]
Tp = Annotated[
    float | None, typer.Option(parser=count(1), metavar="N", help="Tensor parallel degree.")
]
Pp = Annotated[
    float | None, typer.Option(parser=count(1), metavar="N", help="Pipeline parallel degree.")
]
Ep = Annotated[
    float | None,
    typer.Option(
        parser=count(1),
        metavar="N",
        help="Expert parallel degree; an instance has tp x pp x ep GPUs.",
    ),
]
Dp = Annotated[
    float,
    typer.Option(parser=count(1), metavar="N", help="Copies of the instance (data parallel)."),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--request-rate",
        parser=real("a rate above 0", 0.0),
        metavar="REQ/S",
        help="Requests per second, arriving at random (Poisson).",
    ),
]
MOST_GPUS = 1e6  # five times the largest cluster of 2025 (xAI's Colossus, 200,000)
TotalGpus = Annotated[
    float | None,
    typer.Option(
        "--total-gpus",
        parser=count(1, MOST_GPUS, ", five times the GPUs of the largest cluster of 2025"),
        metavar="N",
        help="GPUs in all.",
    ),
]
Price = Annotated[
    float | None,
    typer.Option(
        parser=real("a price above 0", 0.0),
        metavar="USD/H",
        help="Rent of one GPU; the profile's where not given.",
    ),
]
Ttft = Annotated[
    float | None,
    typer.Option(
        parser=duration,
        metavar="TIME",
        help="Limit of the time to first token: 300ms, 0.3s; a bare number is ms.",
    ),
]
Tpot = Annotated[
    float | None,
    typer.Option(
        parser=duration,
        metavar="TIME",
        help="Limit of the time per output token: 30ms; a bare number is ms.",
    ),
]
Draft = Annotated[
    str | None, typer.Option(metavar="CONFIG", help="A model that drafts (speculative decoding).")
]
Acceptance = Annotated[
    float | None,
    typer.Option(
        parser=probability,
        metavar="P",
        help="Probability that a drafted token is accepted.",
    ),
]
EstimatorName = Annotated[
    str | None,
    typer.Option(
        "--estimator",
        metavar="NAME",
        help="A name that `infer-jax estimators` lists.",
        autocompletion=_begun(lambda: VARIANTS),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="The answer alone: no progress, no notes below it.")
]
