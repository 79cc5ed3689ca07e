"""``ij.frontier``: the GPU counts and batches with the best speed at each price."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from infer_jax.estimators.estimate import decode_context
from infer_jax.specs import Workload
from infer_jax.verbs import frontier_points as points, inputs, options as opt, pictures
from infer_jax.verbs.asking import verb
from infer_jax.verbs.frontier_result import FrontierResult, FrontiersResult
from infer_jax.verbs.inputs import Given
from infer_jax.verbs.limits import long_times
from infer_jax.verbs.option import PROBABILITY, Option, above_zero, count, either, seconds_of
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy
from infer_jax.verbs.texts import unique_texts

PAPERS = "economics.level4"  # the estimator of the economics paper


PREFIX = "The cached prefix shortens prefill alone; this frontier is of decode."


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
    series = {
        system.name + (f", {form}" if len(formats) > 1 else ""): inputs.given(
            config, system, form, kv_dtype, price, set
        )
        for system, form in product(systems, formats)
    }
    work = inputs.workload(isl, osl, prefix)
    for given in series.values():
        inputs.check_context(given.model, work)
    engine_degrees = not (real_degrees or paper or estimator)
    name = estimator or (PAPERS if paper else inputs.SEARCHING)
    if paper and total_gpus is not None:
        raise refuse("--total-gpus", total_gpus, "none with --paper, whose grid goes to 2^18")
    search = _Search(
        points.PLANNED if engine_degrees else name,
        draft,
        acceptance,
        engine_degrees,
        paper,
        total_gpus,
        demand,
        seconds_of(tpot),
    )
    fronts = [_front(given, work, search, preference, all) for given in series.values()]
    notes = [PREFIX] if prefix else []
    fronts = [replace(x, notes=[*x.notes, *notes], pictured=out is not None) for x in fronts]
    answer = fronts[0]
    if len(fronts) > 1:
        answer = FrontiersResult.of(dict(zip(series, fronts, strict=True)))
    return answer if out is None or not answer.drawable else _with_picture(answer, str(out))


class _Search(NamedTuple):
    """The estimator, the drafts and the grid with which points are evaluated, and their limits.

    ``total``: GPUs; ``demand``: tokens/s over all requests; ``tpot``: seconds per token;
    ``engine_degrees``: degrees are those that engines run, and not real numbers.
    """

    name: str
    draft: str | None
    acceptance: float | None
    engine_degrees: bool
    paper: bool
    total: float | None
    demand: float | None
    tpot: float | None


def _front(
    given: Given, work: Workload, search: _Search, preference: float, all_rows: bool
) -> FrontierResult:
    """The frontier of one system and format."""
    ideal, paper = inputs.estimator(search.name, given), search.paper
    if not (search.engine_degrees or ideal.searches):
        raise refuse("--estimator", search.name, "one that searches the split, such as economics")
    trust = inputs.trust(search.name, ideal, given)
    drafts = search.draft, search.acceptance
    ideal, drafting = inputs.speculative(ideal, *drafts, given, paper=paper)
    with busy("compiling and evaluating"):
        if search.engine_degrees:
            layouts, batches = points.engine_layouts(given, search.total), points.BATCHES
        else:
            axes = (
                points.paper_grid(given, ideal) if paper else points.gpu_axes(given, search.total)
            )
            layouts, batches = points.searched_layouts(axes[0]), axes[1]
        grid = points.evaluate(ideal, given, work, layouts, batches)
    front = grid.under(search.demand)
    if len(front):
        front = front.thresholds() if paper else front.frontier()
        front = front.take(front.time <= either(search.tpot, np.inf))
    kind, degrees = "numbers of GPUs", "real numbers that its search finds"
    if search.engine_degrees:
        kind, degrees = "layouts", "degrees that engines run"
    return FrontierResult(
        asked=given,
        estimator=search.name,
        trust=trust,
        work=work,
        evaluated=len(grid),
        points=front,
        preference=preference,
        why="" if len(front) else points.why_nothing(grid, search.demand, search.tpot),
        all=all_rows,
        notes=[
            *long_times({"tpot": search.tpot}),
            f"Decode of one token at {float(decode_context(work)):.12g} tokens of context: "
            f"isl + (osl - 1) / 2 with isl {float(work.isl):.12g} and osl {float(work.osl):.12g}.",
            f"Over {len(layouts)} {kind} of up to {grid.chips.max():.12g} GPUs, each at "
            f"{len(batches)} batches; TP, PP and EP are {degrees}.",
            *drafting,
            *given.notes,
        ],
    )


def _with_picture(
    answer: FrontierResult | FrontiersResult, out: str
) -> FrontierResult | FrontiersResult:
    """The answer with its picture written, and a sentence about it."""
    lacking = "" if Path(out).suffix.lower() == ".html" else pictures.missing()
    if lacking:
        return replace(answer, notes=[*answer.notes, lacking])
    place = " in place of the earlier file" if Path(out).exists() else ""
    answer.draw(out)
    note = f"Picture: {out} was written{place}; --out names another, --no-picture writes none."
    return replace(answer, picture=out, notes=[*answer.notes, note])
