"""The layouts and batches that a frontier tries, the best of them, or why none will do."""

from typing import NamedTuple

import numpy as np

from infer_jax.estimators import Economics, Limit
from infer_jax.estimators.economics import Grid, GridInputs, evaluate_layouts
from infer_jax.estimators.economics.grid import (
    BATCHES,
    LARGEST,
    gpu_counts,
    paper_grid,
    searched_layouts,
)
from infer_jax.estimators.estimate import decode_context
from infer_jax.planning import layouts
from infer_jax.results import option
from infer_jax.results.problems import refuse
from infer_jax.specs import Workload
from infer_jax.verbs import inputs, limits
from infer_jax.verbs.frontier_result import FrontierResult
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.option import either
from infer_jax.verbs.progress import busy

PAPERS = "economics.level4"  # the estimator of the economics paper
PREFIX = "The cached prefix shortens prefill alone; this frontier is of decode."
PLANNED = "economics.planned"  # of ideal servers at layouts that are given


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
    name, paper, arch = search.estimator, search.paper, setup.model.architecture
    ideal = inputs.estimator(name, setup)
    if not (search.engine_degrees or ideal.searches):
        raise refuse("estimator", name, "one that searches the split, such as economics")
    trust, drafts = inputs.trust(name, ideal, setup), (search.draft, search.acceptance)
    ideal, drafting = inputs.speculative(ideal, *drafts, paper=paper)
    economics = ideal.innermost
    if paper and not isinstance(economics, Economics):
        allowed = f"economics or a variant of it, with {option('paper')}"
        raise refuse("estimator", economics.table, allowed)
    kind, degrees = "numbers of GPUs", "real numbers that its search finds"
    batches = BATCHES
    with busy("compiling and evaluating"):
        if search.engine_degrees:
            # EP attention groups of TP ranks share the experts, as in the plan of ``estimate``
            legal = layouts(arch, int(either(search.total, LARGEST)))
            tried = np.array([(x.tp, x.pp, x.ep) for x in legal if x.ep == x.attention_dp])
            kind, degrees = "layouts", "degrees that engines run"
        elif isinstance(economics, Economics) and paper:
            chips, batches = paper_grid(economics, arch, setup.hardware)
            tried = searched_layouts(chips)
        else:
            tried = searched_layouts(gpu_counts(setup.hardware, search.total))
        grid = evaluate_layouts(GridInputs(ideal, arch, setup.hardware, work), tried, batches)
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
