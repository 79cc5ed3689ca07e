"""``ij.frontier``: the GPU counts and batches with the best speed at each price."""

from itertools import product
from typing import Annotated

from infer_jax import verbs
from infer_jax.results import option
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import PROBABILITY, Option, above_zero, count, seconds_of, unique_texts


@verb
def frontier(
    config: opt.Config,
    hardware: opt.Systems,
    *,
    quant: opt.Quants = None,
    kv_dtype: opt.KvDtype = None,
    isl: Annotated[float, Option.of("TOKENS", count(0))] = 4096,
    osl: opt.Osl = 512,
    prefix: opt.Prefix = 0,
    total_gpus: opt.TotalGpus = None,
    price: opt.Prices = None,
    tpot: opt.Tpot = None,
    demand: Annotated[float | None, Option.of("TOK/S", opt.RATE)] = None,
    preference: Annotated[float, Option.of("X", above_zero("an exponent", 100.0))] = 3.0,
    estimator: opt.EstimatorName = None,
    draft: opt.Draft = None,
    acceptance: Annotated[float | None, Option.of("P", PROBABILITY)] = None,
    paper: Annotated[bool, Option.of()] = False,
    real_degrees: Annotated[bool, Option.of()] = False,
    all: Annotated[bool, Option.of()] = False,  # the option's name
    out: opt.Place | None = None,
    set: opt.Changes = None,
) -> "verbs.FrontierResult | verbs.FrontiersResult":
    """Which GPU counts and batches are worth choosing: tokens/s per request against $/Mtok.

    Of several systems or formats every one has its frontier, and they are drawn together.
    ``tpot`` is a limit: seconds, or a text with a unit such as "30ms"; ``out`` is the picture,
    written where a name is given.

    Args:
        isl: Input sequence length of a request; 0: decode passes attend to its output alone.
        demand: Keep points that serve at most this many tokens/s over all requests.
        preference: The preferred point has the largest speed^X / cost.
        acceptance: Probability that a drafted token is accepted.
        paper: As the economics paper does it: economics.level4 (where --estimator is not given),
            its grid of 400 x 400 real numbers, its 1000 latency thresholds.
        real_degrees: TP, PP and EP as real numbers, the best that the estimator's search finds.
        all: Print every row of the frontier.

    Raises:
        InputError: a model or system that cannot be read, an estimator that does not search the
            split of the GPUs, a picture that cannot be written.

    >>> import infer_jax as ij
    >>> best = ij.frontier("llama-3.1-8b", "h100_sxm", total_gpus=8)
    >>> bool((best.points.cost[1:] < best.points.cost[:-1]).all()), int(best.points.chips.max())
    (True, 8)
    """
    from infer_jax.verbs import inputs, pictures
    from infer_jax.verbs.frontier_result import PAPERS, PLANNED, FrontierSearch, ideal_frontier

    if out is not None:
        pictures.check(out, page=True)
    systems, _ = inputs.systems_of(hardware, None)
    formats, rents = unique_texts(quant) or [None], inputs.rents_of(price, systems)
    series = dict[str, inputs.Setup]()
    for system, form in product(systems, formats):
        label = f"{system.name}, {form}" if len(formats) > 1 else system.name
        series[label] = inputs.setup(config, system, form, kv_dtype, rents.get(system.name), set)
    work = inputs.workload(isl, osl, prefix)
    for setup in series.values():
        inputs.check_context(setup.model, work)
    engine_degrees = not (real_degrees or paper or estimator)
    name = PLANNED if engine_degrees else PAPERS if paper else inputs.SEARCHING
    if paper and total_gpus is not None:
        raise refuse("total_gpus", total_gpus, f"none with {option('paper')}, of up to 2^18")
    search = FrontierSearch(
        estimator or name, engine_degrees, paper, draft, acceptance, total_gpus, demand,
        seconds_of(tpot), preference, all,
    )  # fmt: skip
    fronts = {label: ideal_frontier(setup, work, search) for label, setup in series.items()}
    answer: verbs.FrontierResult | verbs.FrontiersResult = next(iter(fronts.values()))
    if len(fronts) > 1:
        notes = dict.fromkeys(note for front in fronts.values() for note in front.notes)
        answer = verbs.FrontiersResult(fronts, [*notes])
    if out is not None and answer.drawable:
        answer.draw(out)
    return answer
