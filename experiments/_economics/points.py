"""How is a file of the economics paper's points evaluated? One call per (estimator, model, chip).

The authors' program searches pipeline degrees on ticks that end at the batch, and PP = batch is
just feasible; its last tick is 2^(log2 B), which for some B is an ulp above B and then refused.
Such rows are found by moving every limit by 1e-12 to either side: where that changes the answer,
the row is a tie, and theirs may be on either side.
"""

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments._check import Answer, Recipe
from experiments._columns import Input, Output, at_least_zero, difference, flag, positive
from infer_jax.catalog import published
from infer_jax.catalog.published.tables import tables
from infer_jax.compiling import quick
from infer_jax.estimators import Economics
from infer_jax.specs import Architecture, ForwardPass, Hardware, Plan

VARIANTS: dict[str, Callable[[bool], Economics]] = {
    "toy": lambda pipeline: Economics.level2(),
    "paper": lambda pipeline: Economics.level3(),
    "pipeline": Economics.pipeline,
    "full": Economics.level4,
}
NUMBERS = ("n_gpu", "batch", "input_len", "seq_len")
MARGINS = np.array([0.0, 1e-12, -1e-12])
SHORTEST = 16  # rows of a call: a few lengths, so that few programs are compiled


# Thirty programs of a few rows each: compiling takes all the time, so compile quickly.
@partial(jax.jit, compiler_options=quick("cpu"))
def _latencies(
    model: Economics, arch: Architecture, hardware: Hardware, numbers: Any, margins: Any
) -> Any:
    """(margins, rows) seconds and feasibility of one pass."""

    def latency(margin: Any, n: Any, b: Any, c: Any, s: Any) -> Any:
        forward = ForwardPass(sequences=b, new_tokens=s, cached_tokens=c)
        plan = Plan.of().replace(tp=n)
        phase = model.replace(headroom=margin).step(arch, hardware, forward, plan)
        return phase.time, phase.feasible

    rows = jax.vmap(latency, in_axes=(None, 0, 0, 0, 0))
    return jax.vmap(lambda margin: rows(margin, *numbers))(margins)


def _group(row: dict[str, Any]) -> Hashable:
    """Estimator, model, chip and whether pipeline degrees are searched; or what is unknown."""
    known = {
        "estimator": tuple(VARIANTS),
        "model": tuple(tables("economics")["models"]),
        "gpu": tuple(tables("economics")["hardware"]),
    }
    for kind, names in known.items():
        if row[kind] not in names:
            return f"{kind} '{row[kind]}' is not the paper's"
    return (*(row[kind] for kind in known), row["use_pp"])


def _evaluate(key: tuple[str, str, str, bool], rows: list[dict[str, Any]]) -> list[Answer]:
    """The answers of one estimator, model and chip: one vectorised call."""
    estimator, model, gpu, pipeline = key
    hardware, coefficients = published.economics_hardware(gpu)
    variant = VARIANTS[estimator](pipeline).fitted(coefficients)
    length = max(SHORTEST, 2 ** math.ceil(math.log2(len(rows))))
    numbers = np.array([[row[name] for row in rows] for name in NUMBERS])
    numbers = np.pad(numbers, ((0, 0), (0, length - len(rows))), mode="edge")
    with jax.enable_x64(True):
        time, feasible = _latencies(
            variant, published.economics_model(model), hardware, numbers, MARGINS
        )
        seconds = np.where(feasible, time, np.inf)[:, : len(rows)].T.tolist()
    return [_answer(*row) for row in seconds]


def _answer(exact: float, tight: float, loose: float) -> Answer:
    values = [{"latency_s": x} for x in (exact, tight, loose)]
    tie = difference(tight, loose) > OUTPUTS["latency_s"].tolerance
    return Answer(values[0], values[1:] if tie else ())


OUTPUTS = {"latency_s": Output(tolerance=1e-9)}

RECIPE = Recipe(
    source="Erdil 2025 (arXiv 2506.04645), points of the authors' program in float64",
    inputs={
        "estimator": Input(),
        "model": Input(),
        "gpu": Input(),
        "n_gpu": Input(positive),
        "batch": Input(positive),
        "input_len": Input(at_least_zero, absent=0.0),
        "seq_len": Input(positive, absent=1.0),
        "use_pp": Input(flag, absent=False),
    },
    outputs=OUTPUTS,
    evaluate=_evaluate,
    group=_group,
)
