"""``ij.frontier``: the GPU counts and batches with the best speed at each price."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from infer_jax.estimators import Estimator
from infer_jax.estimators.economics import Grid
from infer_jax.estimators.estimate import decode_context
from infer_jax.specs import Workload
from infer_jax.verbs import frontier_points as points, inputs, options as opt, pictures
from infer_jax.verbs.asking import verb
from infer_jax.verbs.frontier_result import FrontierResult
from infer_jax.verbs.frontiers_result import FrontiersResult
from infer_jax.verbs.inputs import Given
from infer_jax.verbs.limits import long_times
from infer_jax.verbs.option import PROBABILITY, Option, above_zero, count, either, seconds_of
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy
from infer_jax.verbs.texts import unique_texts

PAPERS = "economics.level4"  # the estimator of the economics paper


class FrontierGrid(NamedTuple):
    """Every evaluated point, and the layouts and batches of the grid."""

    grid: Grid
    layouts: int
    batches: int
    whole: bool  # whether degrees are those that engines run, not real numbers


@verb
def frontier(
    config: opt.Config,
    hardware: opt.Systems,
    *,
    quant: opt.Quants = None,
    kv_dtype: opt.KvDtype = None,
    isl: Annotated[
        float,
        Option(
            "Input sequence length of a request; 0: decode passes attend to its output alone.",
            "TOKENS",
            count(0),
        ),
    ] = 4096,
    osl: opt.Osl = 512,
    prefix: opt.Prefix = 0,
    total_gpus: opt.TotalGpus = None,
    price: opt.Price = None,
    tpot: opt.Tpot = None,
    demand: Annotated[
        float | None,
        Option(
            "Keep points that serve at most this many tokens/s over all requests.",
            "TOK/S",
            opt.RATE,
        ),
    ] = None,
    preference: Annotated[
        float,
        Option(
            "The preferred point has the largest speed^X / cost.",
            "X",
            above_zero("an exponent", 100.0),
        ),
    ] = 3.0,
    estimator: opt.EstimatorName = None,
    draft: opt.Draft = None,
    acceptance: Annotated[
        float | None, Option("Probability that a drafted token is accepted.", "P", PROBABILITY)
    ] = None,
    paper: Annotated[
        bool,
        Option(
            "As the economics paper does it: economics.level4 (where --estimator is not given), "
            "its grid of 400 x 400 real numbers, its 1000 latency thresholds."
        ),
    ] = False,
    real_degrees: Annotated[
        bool,
        Option("TP, PP and EP as real numbers, the best that the estimator's search finds."),
    ] = False,
    all: Annotated[bool, Option("Print every row of the frontier.")] = False,  # the option's name
    out: Annotated[
        opt.Place | None,
        Option("The picture: .png, .svg, .pdf or .html.", "FILE", default="frontier.png"),
    ] = None,
    set: opt.Changes = None,
) -> FrontierResult | FrontiersResult:
    """Which GPU counts and batches are worth choosing: tokens/s per request against $/Mtok.

    Of several systems or formats every one has its frontier, and they are drawn together.
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
        pictures.check(out, page=True)
    systems, _ = inputs.systems_of(hardware, None)
    formats = unique_texts(quant) or [None]
    every = {
        system.name + (f", {form}" if len(formats) > 1 else ""): inputs.given(
            config, system, form, kv_dtype, price, set
        )
        for system, form in product(systems, formats)
    }
    work = inputs.workload(isl, osl, prefix)
    for each in every.values():
        inputs.check_context(each.model, work)
    whole = not (real_degrees or paper or estimator)
    name = points.PLANNED if whole else estimator or (PAPERS if paper else inputs.SEARCHING)
    limits = _Limits(total_gpus, demand, seconds_of(tpot))
    if paper and total_gpus is not None:
        raise refuse("--total-gpus", total_gpus, "none with --paper, whose grid goes to 2^18")
    way = _Way(name, draft, acceptance, whole, paper)
    fronts = [_front(each, work, way, limits, preference, all) for each in every.values()]
    notes = [PREFIX] if prefix else []
    fronts = [replace(x, notes=[*x.notes, *notes], pictured=out is not None) for x in fronts]
    named = dict(zip(every, fronts, strict=True))
    answer = fronts[0] if len(fronts) == 1 else FrontiersResult.of(named)
    return answer if out is None or not answer.drawn else _drawn(answer, str(out))


class _Limits(NamedTuple):
    """Limits of points: GPUs, tokens/s over all requests, seconds per token."""

    total: float | None
    demand: float | None
    tpot: float | None


class _Way(NamedTuple):
    """The estimator, the drafts and the grid with which points are evaluated."""

    name: str
    draft: str | None
    acceptance: float | None
    whole: bool
    paper: bool


def _front(
    asked: Given, work: Workload, way: _Way, limits: _Limits, preference: float, every: bool
) -> FrontierResult:
    """The frontier of one system and format."""
    ideal = inputs.estimator(way.name, asked)
    if not (way.whole or ideal.searches):
        raise refuse("--estimator", way.name, "one that searches the split, such as economics")
    trusted = inputs.trust(way.name, ideal, asked)
    ideal, drafting = inputs.speculative(ideal, way.draft, way.acceptance, asked, paper=way.paper)
    with busy("compiling and evaluating"):
        tried = _tried(asked, ideal, work, limits.total, whole=way.whole, paper=way.paper)
    front = tried.grid.under(limits.demand)
    if len(front):
        front = front.thresholds() if way.paper else front.frontier()
        front = front.take(front.time <= either(limits.tpot, np.inf))
    why = "" if len(front) else points.why_nothing(tried.grid, limits.demand, limits.tpot)
    return FrontierResult(
        asked=asked,
        estimator=way.name,
        trust=trusted,
        work=work,
        evaluated=len(tried.grid),
        points=front,
        preference=preference,
        why=why,
        all=every,
        notes=[
            *long_times({"tpot": limits.tpot}),
            *_searched(tried, work),
            *drafting,
            *asked.notes,
        ],
    )


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
    """One decode pass of every layout at every batch that is tried."""
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
    """Sentences: the tokens that every point is evaluated at, and the layouts and batches tried."""
    kind = "layouts" if tried.whole else "numbers of GPUs"
    degrees = "degrees that engines run" if tried.whole else "real numbers that its search finds"
    return [
        f"Decode of one token at {float(decode_context(work)):.12g} tokens of context: "
        f"isl + (osl - 1) / 2 with isl {float(work.isl):.12g} and osl {float(work.osl):.12g}.",
        f"Over {tried.layouts} {kind} of up to {tried.grid.chips.max():.12g} GPUs, each at "
        f"{tried.batches} batches; TP, PP and EP are {degrees}.",
    ]


def _drawn(answer: FrontierResult | FrontiersResult, out: str) -> FrontierResult | FrontiersResult:
    """The answer with its picture written, and a sentence about it."""
    lacking = "" if Path(out).suffix.lower() == ".html" else pictures.missing()
    if lacking:
        return replace(answer, notes=[*answer.notes, lacking])
    place = " in place of the earlier file" if Path(out).exists() else ""
    answer.draw(out)
    note = f"Picture: {out} was written{place}; --out names another, --no-picture writes none."
    return replace(answer, picture=out, notes=[*answer.notes, note])
