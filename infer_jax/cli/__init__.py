"""The command line: parse, call, print. One file a verb; errors are one sentence and code 2."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from infer_jax.cli import (
    calibrate,
    codesign,
    compare,
    doctor,
    estimate,
    frontier,
    kernels,
    layout,
    listing,
    measure,
    memory,
    offload,
    options as opt,
    plan,
    report,
    sensitivity,
    sweep,
)
from infer_jax.cli.starting import hush
from infer_jax.errors import InputError

NAME, INTERRUPTED = "infer-jax: ", 130


class Verbs(TyperGroup):
    """The group of verbs, which tells every problem of the user's in one sentence."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:
        """Run one command; exit 0, 1 (a device disagrees, or no answer is written), 2 or 130."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        extra |= {"prog_name": "infer-jax", "standalone_mode": False}
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # a name no ASCII terminal can print: no crash
                stream.reconfigure(errors="replace")
        try:
            code = super().main(given, **extra)
            sys.stdout.flush()
        except InputError as error:
            code = _complain(str(error))
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except OSError as error:  # `infer-jax ... | head`, or a full disk
            sys.stdout = None
            if not isinstance(error, BrokenPipeError):
                _complain(f"the answer cannot be written: {error.strerror or error}")
            code = 1
        except Exception as error:
            # usage errors of typer, whose base class has no public name in all its versions
            if not hasattr(error, "format_message"):
                raise
            code = _complain(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]
        sys.exit(code if isinstance(code, int) else 0)


def _complain(sentence: str) -> int:
    sentence = " ".join(sentence.split())
    print(sentence if sentence.startswith(NAME) else f"{NAME}{sentence}", file=sys.stderr)
    return 2


app = typer.Typer(
    cls=Verbs,
    help="What LLM inference takes: time, memory and money, from a differentiable model.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
EXAMPLES = {
    frontier.frontier: "frontier llama-3.1-70b --hardware h100_sxm --quant fp8 --isl 4096",
    estimate.estimate: "estimate llama-3.1-8b --hardware h100_sxm --tp 1 --batch 32",
    memory.memory: "memory llama-3.1-70b --hardware h100_sxm --tp 4 --max-model-len 8192",
    layout.layout: "layout palm-540b --hardware tpu_v4 --total-gpus 64 --batch 512",
    kernels.kernels: "kernels deepseek-v3 --hardware h800_sxm --ep 32 --deepep --batch 4096",
    measure.measure: "measure --out my_chip.toml",
    offload.offload: "offload opt-175b --hardware t4_host --isl 512 --osl 32",
    plan.plan: "plan llama-3.1-70b --hardware h200_sxm --total-gpus 8 --tpot 30ms",
    report.report: "report llama-3.1-70b --hardware h100_sxm --quant fp8 --tpot 30ms",
    listing.models: "models llama-3.1-8b",
    listing.hardware: "hardware h100_sxm",
    listing.estimators: "estimators",
    doctor.doctor: "doctor",
    calibrate.calibrate: "calibrate runs/*.json --config llama-3.1-8b --hardware h100_sxm --tp 1"
    " --out my_h100.toml",
    compare.compare: "compare llama-3.1-8b --hardware h100_sxm --tp 1 --estimator serving"
    " --estimator economics.planned",
    sensitivity.sensitivity: "sensitivity llama-3.1-70b --hardware h100_sxm --tp 8 --batch 32",
    codesign.codesign: "codesign SPEC.toml --out design",
    sweep.sweep: "sweep SPACE.toml --out result.parquet",
}


def _hushing(verb: Callable[..., None]) -> Callable[..., None]:
    """``verb`` with the option that all have and none needs to know of."""

    @wraps(verb)
    def run(*, quiet: bool, **given: Any) -> None:
        hush(quiet)
        verb(**given)

    own = signature(verb)
    quiet = Parameter("quiet", Parameter.KEYWORD_ONLY, default=False, annotation=opt.Quiet)
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), quiet])  # pyright: ignore
    run.__annotations__ = verb.__annotations__ | {"quiet": opt.Quiet}
    return run


for verb, example in EXAMPLES.items():
    app.command(epilog=f"Example: infer-jax {example}")(_hushing(verb))


def main() -> None:
    """The program ``infer-jax``."""
    app()
