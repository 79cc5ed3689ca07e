"""``ij.frontier``: the GPU counts and batches with the best speed at each price."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from infer_jax.estimators import Estimator
from infer_jax.estimators.economics import Grid
from infer_jax.estimators.estimate import decode_context
from infer_jax.specs import Workload
from infer_jax.verbs import frontier_points as points, inputs, pictures
from infer_jax.verbs.asking import verb
from infer_jax.verbs.checks import Time, either, read
from infer_jax.verbs.frontier_result import FrontierResult
from infer_jax.verbs.inputs import Given, HardwareLike, ModelLike
from infer_jax.verbs.limits import long_times
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy

PAPERS = "economics.level4"  # the estimator of the economics paper


class FrontierGrid(NamedTuple):
    """Every point that was evaluated, and of which layouts and batches they are."""

    grid: Grid
    layouts: int
    batches: int
    whole: bool  # degrees that engines run, not real numbers


@verb
def frontier(
    config: ModelLike,
    hardware: HardwareLike,
    *,
    quant: str | None = None,
    kv_dtype: str | None = None,
    isl: float = 4096,
    osl: float = 512,
    prefix: float = 0,
    total_gpus: float | None = None,
    price: float | None = None,
    tpot: Time | None = None,
    demand: float | None = None,
    preference: float = 3.0,
    estimator: str | None = None,
    draft: str | None = None,
    acceptance: float | None = None,
    paper: bool = False,
    real_degrees: bool = False,
    all: bool = False,  # the option's name
    out: str | os.PathLike[str] | None = None,
    set: str | Sequence[str] | None = None,
) -> FrontierResult:
    """Which GPU counts and batches are worth choosing: tokens/s per request against $/Mtok.

    ``tpot`` is a limit: seconds, or a text with a unit such as "30ms"; ``out`` is the picture,
    written where a name is given.

    Raises:
        InputError: a model or system that cannot be read, an estimator that does not search the
            split of the GPUs, a picture that cannot be written.

    >>> import infer_jax as ij
    >>> best = ij.frontier("llama-3.1-8b", "h100_sxm", total_gpus=8)
    >>> bool((best.points.cost[1:] < best.points.cost[:-1]).all()), int(best.points.chips.max())
    (True, 8)
    """
    if out is not None:
        pictures.check(out)
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    work = inputs.workload(isl, osl, prefix)
    inputs.check_context(asked.model, work)
    whole = not (real_degrees or paper or estimator)
    name = points.PLANNED if whole else estimator or (PAPERS if paper else inputs.SEARCHING)
    ideal = inputs.estimator(name, asked)
    if not (whole or ideal.searches):
        raise refuse("--estimator", name, "one that searches the split, such as economics")
    trusted = inputs.trust(name, ideal, asked)
    ideal, drafting = inputs.speculative(ideal, draft, acceptance, asked, paper=paper)
    if paper and total_gpus is not None:
        raise refuse("--total-gpus", total_gpus, "none with --paper, whose grid goes to 2^18")
    with busy("compiling and evaluating"):
        tried = _tried(asked, ideal, work, total_gpus, whole=whole, paper=paper)
    front = tried.grid.under(demand)
    if len(front):
        front = front.thresholds() if paper else front.frontier()
        front = front.take(front.time <= either(read(tpot), np.inf))
    answer = FrontierResult(
        asked=asked,
        estimator=name,
        trust=trusted,
        work=work,
        evaluated=len(tried.grid),
        points=front,
        preference=preference,
        why="" if len(front) else points.why_nothing(tried.grid, demand, read(tpot)),
        all=all,
        notes=[
            *long_times({"tpot": read(tpot)}),
            *_searched(tried, work),
            *drafting,
            *asked.notes,
            *([PREFIX] if prefix else []),
        ],
        pictured=out is not None,
    )
    return answer if out is None or not len(front) else _drawn(answer, str(out))


PREFIX = "The cached prefix shortens prefill alone; this frontier is of decode."


def _tried(
    asked: Given,
    estimator: Estimator,
    work: Workload,
    total: float | None,
    *,
    whole: bool,
    paper: bool,
) -> FrontierGrid:
    """Every point that is looked at, evaluated."""
    if whole:
        layouts, batches = points.engine_layouts(asked, total), points.BATCHES
    else:
        chips, batches = (
            points.papers_axes(asked, estimator) if paper else points.whole_axes(asked, total)
        )
        layouts = points.searched_layouts(chips)
    grid = points.evaluate(estimator, asked, work, layouts, batches)
    return FrontierGrid(grid, len(layouts), len(batches), whole)


def _searched(tried: FrontierGrid, work: Workload) -> list[str]:
    """What every point is of, and which points there are."""
    kind = "layouts" if tried.whole else "numbers of GPUs"
    degrees = "degrees that engines run" if tried.whole else "real numbers that its search finds"
    return [
        f"Decode of one token at {float(decode_context(work)):.12g} tokens of context: "
        f"isl + (osl - 1) / 2 with isl {float(work.isl):.12g} and osl {float(work.osl):.12g}.",
        f"Over {tried.layouts} {kind} of up to {tried.grid.chips.max():.12g} GPUs, each at "
        f"{tried.batches} batches; TP, PP and EP are {degrees}.",
    ]


def _drawn(answer: FrontierResult, out: str) -> FrontierResult:
    """The answer with its picture written, and a sentence about it."""
    if pictures.missing():
        return replace(answer, notes=[*answer.notes, pictures.missing()])
    place = " in place of the earlier file" if Path(out).exists() else ""
    answer.plot(out)
    note = f"Picture: {out} was written{place}; --out names another, --no-picture writes none."
    return replace(answer, picture=out, notes=[*answer.notes, note])
