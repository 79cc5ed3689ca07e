"""The cheapest plans on given systems, over instances of one kind and pairs of pools."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

from infer_jax.compiling import in_same_precision
from infer_jax.errors import InputError
from infer_jax.planning.choice import USUAL_TTFT, Choice, PlanCandidates, PlanSpace
from infer_jax.planning.instances import Rows, instance_rows
from infer_jax.planning.layout import Layout, layouts
from infer_jax.planning.pools import pool_plans
from infer_jax.planning.pricing import choices
from infer_jax.specs import Hardware, Hierarchy

LARGEST = 64.0  # chips of one instance that are tried where no total is given


def search(space: PlanSpace) -> PlanCandidates:
    """The cheapest plans on one system, or on one that prefills and one that decodes.

    Instances of one kind are tried at every batch. With ``usual_ttft`` of the requirements, plans
    are kept within ``USUAL_TTFT`` if any is.

    Raises:
        InputError: no layout that an engine runs.
    """
    if not needs_usual_ttft(space):
        return _search_within(space)[0]
    usual, rows = _search_within(within_usual_ttft(space))
    if usual.met:
        return usual._replace(usual=True)
    return _search_within(space, rows)[0]


def needs_usual_ttft(space: PlanSpace) -> bool:
    """Whether plans are first sought within the usual TTFT."""
    return space.requirements.usual_ttft and not space.requirements.ttft < float("inf")


def within_usual_ttft(space: PlanSpace) -> PlanSpace:
    """The space with the usual TTFT as a limit."""
    return space._replace(requirements=replace(space.requirements, ttft=USUAL_TTFT))


def _search_within(
    space: PlanSpace, rows: Rows | None = None
) -> tuple[PlanCandidates, Rows | None]:
    """Plans within limits, and the rows of instances, ``rows`` if there are any yet."""
    side, limits, count = space.sides[0], space.requirements, space.top
    legal = legal_layouts(space)
    if not all(legal):
        allowed = "a format that engines can cut this model in, however it is laid out"
        raise InputError("plan", "--quant", "a format that no layout can cut", allowed)
    met: list[Choice] = []
    missed: list[Choice] = []
    configurations, pooled, pair = 0, True, None
    # programs of one mode compile while those of the other are traced
    with ThreadPoolExecutor() as executor:
        if "disaggregated" in space.modes:
            mean = space._replace(work=space.work.replace(lengths=()))
            pair = executor.submit(in_same_precision(pool_plans), mean, pool_layouts(space, legal))
        if "aggregated" in space.modes:
            rows = rows or instance_rows(space, side, instance_layouts(space, legal[0]))
            table = rows(limits, count)
            rent, lengths = (
                float(side.hardware.price),
                (float(space.work.isl), float(space.work.osl)),
            )
            met, missed = choices(side.name, rent, table, limits, *lengths, count)
            configurations = len(table.batch)
        if pair is not None:
            pairs = pair.result()
            met, missed = met + pairs.met, missed + pairs.missed
            configurations, pooled = configurations + pairs.configurations, pairs.pooled
    return PlanCandidates(met, missed, configurations, pooled), rows


def legal_layouts(space: PlanSpace) -> list[list[Layout]]:
    """The layouts of an instance on each system that an engine runs."""
    sizes = [int(largest(side.hardware, space.requirements.chips)) for side in space.sides]
    return [
        layouts(space.arch, size, size=side.machine)
        for side, size in zip(space.sides, sizes, strict=True)
    ]


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


def largest(hardware: Hardware, total: float) -> float:
    """Chips of the largest instance to try: all of them, or a few fast domains."""
    if total < float("inf"):
        return min(total, 4.0 * LARGEST)
    network = hardware.network
    return max(LARGEST, float(network.domain)) if isinstance(network, Hierarchy) else LARGEST
