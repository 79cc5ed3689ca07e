"""The cheapest plans on given systems, over instances of one kind and pairs of pools."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product

from infer_jax.compiling import in_same_precision
from infer_jax.errors import InputError
from infer_jax.planning.choice import USUAL_TTFT, PlanCandidates, PlanSpace
from infer_jax.planning.instances import Rows, instance_rows
from infer_jax.planning.layout import Layout, largest, layouts
from infer_jax.planning.pools import pool_plans
from infer_jax.planning.pricing import choices
from infer_jax.results import option


def search(space: PlanSpace) -> PlanCandidates:
    """The cheapest plans on one system, or on one that prefills and one that decodes.

    Instances of one kind are tried at every batch. With ``usual_ttft`` of the requirements, plans
    are kept within ``USUAL_TTFT`` if any is.

    Raises:
        InputError: no layout that an engine runs.
    """
    legal = legal_layouts(space)
    rows = cache(lambda: instance_rows(space, instance_layouts(space, legal[0])))
    usual = within_usual_ttft(space)
    if usual is not None:
        candidates = _plans_within(usual, legal, rows)
        if candidates.met:
            return candidates._replace(usual=True)
    return _plans_within(space, legal, rows)


def within_usual_ttft(space: PlanSpace) -> PlanSpace | None:
    """The space with the usual TTFT as a limit; None where TTFT has one, or is to have none."""
    limits = space.requirements
    if not limits.usual_ttft or limits.ttft < float("inf"):
        return None
    return space._replace(requirements=replace(limits, ttft=USUAL_TTFT))


def _plans_within(
    space: PlanSpace, legal: list[list[Layout]], rows: Callable[[], Rows]
) -> PlanCandidates:
    """Plans within the limits; ``rows``: of instances, which are evaluated once for all limits."""
    candidates, pair = PlanCandidates([], [], 0), None
    # programs of one mode compile while those of the other are traced
    with ThreadPoolExecutor() as executor:
        if "disaggregated" in space.modes:
            mean = space._replace(work=space.work.replace(lengths=()))
            pair = executor.submit(in_same_precision(pool_plans), mean, pool_layouts(space, legal))
        if "aggregated" in space.modes:
            table = rows()(space.requirements, space.top)
            plans = choices(table, space.requirements, space.top)
            candidates = PlanCandidates(*plans, configurations=len(table.batch))
        if pair is None:
            return candidates
        pairs = pair.result()
    return PlanCandidates(
        candidates.met + pairs.met,
        candidates.missed + pairs.missed,
        candidates.configurations + pairs.configurations,
        pairs.pooled,
    )


def legal_layouts(space: PlanSpace) -> list[list[Layout]]:
    """The layouts of an instance on each system that an engine runs.

    Raises:
        InputError: a system without one.
    """
    total = space.requirements.chips
    legal = [
        layouts(space.arch, int(largest(side.hardware, total)), size=side.machine)
        for side in space.sides
    ]
    if not all(legal):
        allowed = "a format that engines can cut this model in, however it is laid out"
        raise InputError("plan", option("quant"), "a format that no layout can cut", allowed)
    return legal


def instance_layouts(space: PlanSpace, legal: list[Layout]) -> list[Layout]:
    """The layouts of instances of one kind, with every chunk and number of drafts."""
    extras = product(space.chunks, space.drafts)
    varied = [x._replace(chunk=chunk, drafts=drafts) for chunk, drafts in extras for x in legal]
    return space.sides[0].startable(varied)


def pool_layouts(space: PlanSpace, legal: list[list[Layout]]) -> tuple[list[Layout], list[Layout]]:
    """The layouts of instances that prefill, and of those that decode, with their drafts."""
    drafting = [x._replace(drafts=n) for n in dict.fromkeys(space.drafts) for x in legal[-1]]
    prefill, decode = space.sides[0], space.sides[-1]
    return prefill.startable(legal[0], "prefill"), decode.startable(drafting, "decode")
