"""The cheapest plans on given systems, over instances of one kind and pairs of pools."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from infer_jax.compiling import in_same_precision
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment
from infer_jax.planning.aggregated import LayoutEstimates, shares, table
from infer_jax.planning.choose import USUAL_TTFT, Choice, Requirements, choices
from infer_jax.planning.disaggregated import pool_plans
from infer_jax.planning.legal_layouts import Layout, layouts
from infer_jax.planning.open_loop import OpenLoop
from infer_jax.planning.pool_pairs import Side
from infer_jax.specs import UNBOUNDED, Architecture, Hardware, Hierarchy, Workload

MODES = ("aggregated", "disaggregated")
LARGEST = 64.0  # chips of one instance that are tried where no total is given
# the rows of a table that are evaluated for limits and a number of plans to show
Rows = Callable[[Requirements, int], LayoutEstimates]


class PlanCandidates(NamedTuple):
    """Plans within the limits, else the nearest misses; how many rows were evaluated.

    ``pooled``: whether some pair of pools fits the requirements, or pools were not asked for;
    ``usual``: whether plans were limited to ``USUAL_TTFT`` because no limit was given.
    """

    met: list[Choice]
    missed: list[Choice]
    configurations: int
    pooled: bool
    usual: bool = False

    @property
    def first(self) -> Choice | None:
        """The plan to take: the cheapest of those within the limits, else the nearest miss."""
        return min(self.met or self.missed, key=lambda c: c.rank, default=None)


def search(
    sides: Sequence[Side],
    arch: Architecture,
    work: Workload,
    asked: Requirements,
    common: Deployment,
    *,
    modes: Sequence[str] = MODES,
    chunks: Sequence[float] = (UNBOUNDED,),
    drafts: Sequence[float] = (0.0,),
    draft: Architecture | None = None,
    count: int = 3,
) -> PlanCandidates:
    """The cheapest plans on one system, or on one that prefills and one that decodes.

    Instances of one kind run on ``sides[0]`` at every batch, with each of ``chunks`` and
    ``drafts``; pools prefill on the first and decode on the last, with each of ``drafts``. With
    ``asked.usual_ttft``, plans are kept within ``USUAL_TTFT`` if any is.

    Raises:
        InputError: no layout that an engine runs.
    """

    def within(asked: Requirements, rows: Rows | None = None) -> tuple[PlanCandidates, Rows | None]:
        return _searched(sides, arch, work, asked, common, modes, extras, draft, count, rows)

    extras = [{"chunk": c, "drafts": d} for c, d in product(chunks, drafts)]
    if not asked.usual_ttft or asked.ttft < float("inf"):
        return within(asked)[0]
    usual, rows = within(replace(asked, ttft=USUAL_TTFT))
    if usual.met:
        return usual._replace(usual=True)
    return within(asked, rows)[0]


def _searched(
    sides: Sequence[Side],
    arch: Architecture,
    work: Workload,
    asked: Requirements,
    common: Deployment,
    modes: Sequence[str],
    extras: list[dict[str, float]],
    draft: Architecture | None,
    count: int,
    rows: Rows | None,
) -> tuple[PlanCandidates, Rows | None]:
    """Plans within limits, and the rows of instances, ``rows`` if there are any yet."""
    first, second = sides[0], sides[-1]
    legal = [
        layouts(arch, int(largest(side.hardware, asked.chips)), size=side.machine) for side in sides
    ]
    if not all(legal):
        allowed = "a format that engines can cut this model in, however it is laid out"
        raise InputError("plan", "--quant", "a format that no layout can cut", allowed)
    met: list[Choice] = []
    missed: list[Choice] = []
    tried, pooled, pair = 0, True, None
    # programs of one mode compile while those of the other are traced
    with ThreadPoolExecutor() as beside:
        if "disaggregated" in modes:
            drafts = dict.fromkeys(extra["drafts"] for extra in extras)
            decoding = each_with(legal[-1], [{"drafts": d} for d in drafts])
            mean = work.replace(lengths=())
            ends = first.startable(legal[0], "prefill"), second.startable(decoding, "decode")
            both = (first, second), arch, mean, ends
            pair = beside.submit(in_same_precision(pool_plans), *both, common, asked, count, draft)
        if "aggregated" in modes:
            if rows is None:
                able = first.startable(each_with(legal[0], extras))
                rows = instances(first, arch, work, able, common, asked, draft)
            known = rows(asked, count)
            rent, lengths = float(first.hardware.price), (float(work.isl), float(work.osl))
            met, missed = choices(first.name, rent, known, asked, *lengths, count)
            tried = len(known.batch)
        if pair is not None:
            pairs = pair.result()
            met, missed, tried = (
                met + pairs.met,
                missed + pairs.missed,
                tried + pairs.configurations,
            )
            pooled = bool(pairs.met or pairs.missed)
    return PlanCandidates(met, missed, tried, pooled), rows


def largest(hardware: Hardware, total: float) -> float:
    """Chips of the largest instance to try: all of them, or a few fast domains."""
    if total < float("inf"):
        return min(total, 4.0 * LARGEST)
    network = hardware.network
    return max(LARGEST, float(network.domain)) if isinstance(network, Hierarchy) else LARGEST


def instances(
    side: Side,
    arch: Architecture,
    work: Workload,
    legal: list[Layout],
    common: Deployment,
    asked: Requirements,
    draft: Architecture | None,
) -> Rows:
    """Every layout at every batch, or with the replicas that share the load or keep the limits."""
    serving, hardware = side.serving, side.hardware
    if asked.rate is not None:
        return OpenLoop(serving, arch, hardware, work, legal, common, asked.rate, draft).table
    tried = None if asked.concurrency is None else shares(asked.concurrency)
    closed = work.replace(arrivals=None, lengths=())
    every = table(serving, arch, hardware, closed, legal, common, tried, draft)
    return lambda asked, count: every


def each_with(legal: list[Layout], extras: list[dict[str, float]]) -> list[Layout]:
    """Every layout with each of ``extras``."""
    return [layout._replace(**extra) for extra in extras for layout in legal]
