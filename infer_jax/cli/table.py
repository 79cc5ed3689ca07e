"""The table of verbs: module and example of each. Read without JAX."""

from collections.abc import Callable
from importlib import import_module
from inspect import getdoc
from typing import Any, NamedTuple


class Verb(NamedTuple):
    """A command: an example, and how its answer is drawn.

    Args:
        example: the words after its name.
        picture: help of ``--out``, where the command, and not its verb, draws the answer.
        drawn: the file of the picture where none is named, in which case ``--no-picture`` is
            an option.
        module: of ``infer_jax.cli``, where it is no verb of the library.
    """

    example: str = ""
    picture: str = ""
    drawn: str = ""
    module: str = ""


PLACE = "Where the picture goes: .png, .svg, .pdf or .html."
PICTURE = "A picture of the answer, too: .png, .svg, .pdf or .html."


VERBS = {
    "frontier": Verb(
        "llama-3.1-70b --hardware h100_sxm --quant fp8 --isl 4096", PLACE, "frontier.png"
    ),
    "estimate": Verb("llama-3.1-8b --hardware h100_sxm --tp 1 --batch 32", PICTURE),
    "memory": Verb("llama-3.1-70b --hardware h100_sxm --tp 4 --max-model-len 8192", PICTURE),
    "layout": Verb("palm-540b --hardware tpu_v4 --total-gpus 64 --batch 512", PICTURE),
    "kernels": Verb("deepseek-v3 --hardware h800_sxm --ep 32 --deepep --batch 2048", PICTURE),
    "measure": Verb("--out my_chip.toml"),
    "offload": Verb("opt-175b --hardware t4_host --isl 512 --osl 32", PLACE, "offload.png"),
    "plan": Verb(
        "llama-3.1-70b --hardware h200_sxm --total-gpus 8 --tpot 30ms",
        picture="A picture: .png, .svg, .pdf or .html; or the folder that starts the first plan.",
    ),
    "deploy": Verb("PLAN.json --out my_service"),
    "replay": Verb("llama-3.1-8b --hardware h100_sxm --tp 1 --request-rate 8 --prompts 400"),
    "traffic": Verb("TRACE.csv --out traffic.png"),
    "sessions": Verb(
        "llama-3.1-8b --hardware h100_sxm --tp 1 --traffic agents.toml --tier host=1024,55,0.5"
    ),
    "fleet": Verb("llama-3.1-8b --hardware h100_sxm --traffic examples/traffic.toml --tp 1"),
    "offline": Verb("llama-3.1-8b --hardware h100_sxm --prompts 1m --isl 512 --osl 256+-256"),
    "report": Verb("llama-3.1-70b --hardware h100_sxm --quant fp8 --tpot 30ms"),
    "models": Verb("llama-3.1-8b", module="listing"),
    "hardware": Verb("h100_sxm", module="listing"),
    "estimators": Verb(module="listing"),
    "doctor": Verb(module="listing"),
    "calibrate": Verb(
        "runs/*.json --config llama-3.1-8b --hardware h100_sxm --tp 1 --out my_h100.toml"
    ),
    "compare": Verb(
        "llama-3.1-8b --hardware h100_sxm --tp 1 --estimator serving --estimator economics.planned",
        PICTURE,
    ),
    "sensitivity": Verb(
        "llama-3.1-70b --hardware h100_sxm --tp 8 --batch 32",
        picture="A tornado picture: .png, .svg, .pdf or .html.",
    ),
    "codesign": Verb("SPEC.toml --out design"),
    "chip": Verb("h100_sxm", PICTURE),
    "sweep": Verb("SPACE.toml --out result.parquet"),
}


def function_of(name: str) -> Callable[..., Any]:
    """The function of a verb, whose module is imported for it."""
    module = f"cli.{VERBS[name].module}" if VERBS[name].module else f"verbs.{name}"
    return getattr(import_module(f"infer_jax.{module}"), name)


def line_of(name: str) -> str:
    """The first line of a verb's help, which is that of its docstring."""
    return (getdoc(function_of(name)) or "").partition("\n")[0]
