"""The layouts and batches that a frontier tries, the best of them, or why none will do."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.compiling import once
from infer_jax.estimators import Economics, Estimator, Limit
from infer_jax.estimators.economics import Grid, GridInputs, evaluate_layouts, paper_axes
from infer_jax.estimators.estimate import decode_context
from infer_jax.physics import decoder
from infer_jax.physics.feedforward import floored_sparsity
from infer_jax.planning import layouts
from infer_jax.results import option
from infer_jax.specs import Architecture, Feedforward, Hierarchy, Workload
from infer_jax.verbs import inputs, limits
from infer_jax.verbs.frontier_result import FrontierResult
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.option import either
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy

PAPERS = "economics.level4"  # the estimator of the economics paper
PREFIX = "The cached prefix shortens prefill alone; this frontier is of decode."
PLANNED = "economics.planned"  # of ideal servers at layouts that are given
DENSE = 16  # every number of GPUs up to this one is tried
LARGEST = 1024  # GPUs of the largest instance that is tried where no total is given
PER_OCTAVE = 8  # GPUs tried per doubling beyond
BATCHES = np.unique(np.round(np.r_[1:65, np.geomspace(64, 2**18, 12 * 24 + 1)]))
Layouts = Float[np.ndarray, "layouts 3"]  # TP, PP, EP
Values = Float[np.ndarray, " values"]


class FrontierSearch(NamedTuple):
    """The estimator, the drafts and the grid whose points are evaluated, and their limits.

    ``engine_degrees``: degrees are those that engines run, and not real numbers; ``total``: GPUs;
    ``demand``: tokens/s over all requests; ``tpot``: seconds per token; ``preference``: the
    exponent of the preferred point; ``all``: every row is printed.
    """

    estimator: str = PLANNED
    engine_degrees: bool = True
    paper: bool = False
    draft: str | None = None
    acceptance: float | None = None
    total: float | None = None
    demand: float | None = None
    tpot: float | None = None
    preference: float = 3.0
    all: bool = False


def searched_layouts(chips: Values) -> Layouts:
    """(TP, PP, EP) for an estimator that finds the split of each number of GPUs itself."""
    return np.stack([chips, np.ones_like(chips), np.ones_like(chips)], axis=1)


def gpu_axes(setup: Setup, total: float | None) -> tuple[Values, Values]:
    """(GPUs, batches): whole numbers up to ``total``, and whole fast domains."""
    total = float(LARGEST if total is None else total)
    octaves = max(np.log2(total / DENSE), 0.0)
    chips = np.r_[
        1 : DENSE + 1, DENSE * 2.0 ** (np.arange(1, octaves * PER_OCTAVE + 1) / PER_OCTAVE)
    ]
    network = setup.hardware.network
    if isinstance(network, Hierarchy):  # whole domains: 72, 144, ... of an NVL72
        domain = float(network.domain)
        chips = np.r_[chips, domain * 2.0 ** np.arange(max(np.log2(total / domain), -1.0) + 1)]
    chips = np.unique(np.round(np.r_[chips, total]))
    return chips[chips <= total], BATCHES


def paper_grid(setup: Setup, estimator: Estimator) -> tuple[Values, Values]:
    """(GPUs, batches) of the economics paper: real numbers from the GPUs that hold the weights.

    Raises:
        InputError: an estimator that is not the paper's.
    """
    economics, arch = estimator.innermost, setup.model.architecture
    if not isinstance(economics, Economics):
        allowed = f"economics or a variant of it, with {option('paper')}"
        raise refuse("estimator", economics.table, allowed)
    stored = once(_stored, economics, arch)
    feeds = [b.feedforward for b in arch.blocks if b.feedforward is not None]
    largest = max((float(s) for s in once(_sparsities, feeds)), default=1.0)
    return paper_axes(float(stored) / float(setup.hardware.chip.memory), largest)


def _stored(economics: Economics, arch: Architecture) -> Array:
    """Bytes of the weights, as the estimator counts projections."""
    return decoder.total(decoder.weight_bytes(arch, economics.laws.projections).values())


def _sparsities(feeds: Sequence[Feedforward]) -> list[Array]:
    """Experts per active expert of each feedforward."""
    return [floored_sparsity(x) for x in feeds]


def evaluate(
    estimator: Estimator, setup: Setup, work: Workload, layouts: Layouts, batches: Values
) -> Grid:
    """One decode pass of every layout at every batch."""
    grid = GridInputs(estimator, setup.model.architecture, setup.hardware, work)
    return evaluate_layouts(grid, layouts, batches)


def why_nothing(grid: Grid, demand: float | None = None, tpot: float | None = None) -> str:
    """Why no point of the grid is within the limits, in one sentence."""
    if not grid.feasible.any():
        over = [v.need / np.maximum(v.capacity, 1e-300) for v in grid.limits.values()]
        # the largest number of GPUs, the smallest batch, and its layout that is short by the least
        at = int(np.lexsort((np.max(over, axis=0), grid.batch, -grid.chips))[0])
        nearest = {
            k: Limit(need=v.need[at], capacity=v.capacity[at]) for k, v in grid.limits.items()
        }
        short = "; ".join(limits.broken(k, v) for k, v in nearest.items() if v.need > v.capacity)
        size = f"{grid.chips[at]:.12g} GPUs and a batch of {grid.batch[at]:.12g}"
        return f"Nothing fits: even with {size}, {short}."
    within = grid.under(demand)
    if not len(within):
        able = grid.under()
        rate = float((able.batch / able.time).min())
        return f"Nothing serves so little as {demand:g} tokens/s: the least is {rate:.4g} tokens/s."
    fastest = 1e3 * float(within.time.min())
    return (
        f"Nothing is within {1e3 * (tpot or 0):g} ms a token: the fastest takes {fastest:.4g} ms."
    )


def ideal_frontier(setup: Setup, work: Workload, search: FrontierSearch) -> FrontierResult:
    """The frontier of ideal servers of one system and format."""
    name, paper = search.estimator, search.paper
    ideal = inputs.estimator(name, setup)
    if not (search.engine_degrees or ideal.searches):
        raise refuse("estimator", name, "one that searches the split, such as economics")
    trust, drafts = inputs.trust(name, ideal, setup), (search.draft, search.acceptance)
    ideal, drafting = inputs.speculative(ideal, *drafts, setup, paper=paper)
    kind, degrees = "numbers of GPUs", "real numbers that its search finds"
    with busy("compiling and evaluating"):
        if search.engine_degrees:
            # EP attention groups of TP ranks share the experts, as in the plan of ``estimate``
            legal = layouts(setup.model.architecture, int(either(search.total, LARGEST)))
            tried = np.array([(x.tp, x.pp, x.ep) for x in legal if x.ep == x.attention_dp])
            kind, degrees, batches = "layouts", "degrees that engines run", BATCHES
        else:
            axes = paper_grid(setup, ideal) if paper else gpu_axes(setup, search.total)
            tried, batches = searched_layouts(axes[0]), axes[1]
        grid = evaluate(ideal, setup, work, tried, batches)
    front = grid.under(search.demand)
    if len(front):
        front = front.thresholds() if paper else front.frontier()
        front = front.take(front.time <= either(search.tpot, np.inf))
    return FrontierResult(
        setup=setup,
        estimator=name,
        trust=trust,
        work=work,
        evaluated=len(grid),
        points=front,
        preference=search.preference,
        why="" if len(front) else why_nothing(grid, search.demand, search.tpot),
        all=search.all,
        notes=[
            *limits.unlikely_times({"tpot": search.tpot}),
            f"Decode of one token at {float(decode_context(work)):.12g} tokens of context: "
            f"isl + (osl - 1) / 2 with isl {float(work.isl):.12g} and osl {float(work.osl):.12g}.",
            f"Over {len(tried)} {kind} of up to {grid.chips.max():.12g} GPUs, each at "
            f"{len(batches)} batches; TP, PP and EP are {degrees}.",
            *drafting,
            *setup.notes,
            *([PREFIX] if float(work.prefix) else []),
        ],
    )
