"""``ij.frontier``: the GPU counts and batches with the best speed at each price."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from infer_jax.estimators.estimate import decode_context
from infer_jax.results import option
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


class FrontierSearch(NamedTuple):
    """The estimator, the drafts and the grid whose points are evaluated, and their limits.

    ``engine_degrees``: degrees are those that engines run, and not real numbers; ``total``: GPUs;
    ``demand``: tokens/s over all requests; ``tpot``: seconds per token; ``preference``: the
    exponent of the preferred point; ``all``: every row is printed.
    """

    estimator: str = points.PLANNED
    engine_degrees: bool = True
    paper: bool = False
    draft: str | None = None
    acceptance: float | None = None
    total: float | None = None
    demand: float | None = None
    tpot: float | None = None
    preference: float = 3.0
    all: bool = False


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
    name = points.PLANNED if engine_degrees else PAPERS if paper else inputs.SEARCHING
    if paper and total_gpus is not None:
        raise refuse(
            "total_gpus", total_gpus, f"none with {option('paper')}, whose grid goes to 2^18"
        )
    search = FrontierSearch(
        estimator or name, engine_degrees, paper, draft, acceptance, total_gpus, demand,
        seconds_of(tpot), preference, all,
    )  # fmt: skip
    fronts = {label: ideal_frontier(given, work, search) for label, given in series.items()}
    answer: FrontierResult | FrontiersResult = next(iter(fronts.values()))
    if len(fronts) > 1:
        notes = dict.fromkeys(note for front in fronts.values() for note in front.notes)
        answer = FrontiersResult(fronts, [*notes])
    if out is None or not any(len(x.points) for x in fronts.values()):
        return answer
    lacking = "" if Path(out).suffix.lower() == ".html" else pictures.missing()
    if lacking:
        return replace(answer, picture={"picture": None}, notes=[*answer.notes, lacking])
    place = " in place of the earlier file" if Path(out).exists() else ""
    answer.draw(out)
    others = f"{option('out')} names another, {option('no_picture')} writes none"
    note = f"Picture: {out} was written{place}; {others}."
    return replace(answer, picture={"picture": str(out)}, notes=[*answer.notes, note])


def ideal_frontier(given: Given, work: Workload, search: FrontierSearch) -> FrontierResult:
    """The frontier of ideal servers of one system and format."""
    name, paper = search.estimator, search.paper
    ideal = inputs.estimator(name, given)
    if not (search.engine_degrees or ideal.searches):
        raise refuse("estimator", name, "one that searches the split, such as economics")
    trust = inputs.trust(name, ideal, given)
    drafts = search.draft, search.acceptance
    ideal, drafting = inputs.speculative(ideal, *drafts, given, paper=paper)
    kind, degrees = "numbers of GPUs", "real numbers that its search finds"
    with busy("compiling and evaluating"):
        if search.engine_degrees:
            layouts, batches = points.engine_layouts(given, search.total), points.BATCHES
            kind, degrees = "layouts", "degrees that engines run"
        elif paper:
            chips, batches = points.paper_grid(given, ideal)
            layouts = points.searched_layouts(chips)
        else:
            chips, batches = points.gpu_axes(given, search.total)
            layouts = points.searched_layouts(chips)
        grid = points.evaluate(ideal, given, work, layouts, batches)
    front = grid.under(search.demand)
    if len(front):
        front = front.thresholds() if paper else front.frontier()
        front = front.take(front.time <= either(search.tpot, np.inf))
    return FrontierResult(
        asked=given,
        estimator=name,
        trust=trust,
        work=work,
        evaluated=len(grid),
        points=front,
        preference=search.preference,
        why="" if len(front) else points.why_nothing(grid, search.demand, search.tpot),
        all=search.all,
        notes=[
            *long_times({"tpot": search.tpot}),
            f"Decode of one token at {float(decode_context(work)):.12g} tokens of context: "
            f"isl + (osl - 1) / 2 with isl {float(work.isl):.12g} and osl {float(work.osl):.12g}.",
            f"Over {len(layouts)} {kind} of up to {grid.chips.max():.12g} GPUs, each at "
            f"{len(batches)} batches; TP, PP and EP are {degrees}.",
            *drafting,
            *given.notes,
            *([PREFIX] if float(work.prefix) else []),
        ],
    )
