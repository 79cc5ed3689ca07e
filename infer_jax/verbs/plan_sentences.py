"""What is said of plans: preferences, doubts, idle GPUs, other rents and rates."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from infer_jax.planning import Choice, Requirements, bands
from infer_jax.planning.pricing import DOUBLINGS, RateChange, machines_of
from infer_jax.results import option
from infer_jax.results.numbers import digits
from infer_jax.verbs.plan_search import Plans, PlanSystem

EVEN = 0.5  # odds from which a plan rather keeps its limits than not
SAFE = 0.8  # odds below which a first plan is worth a sentence


def preferences(plans: Plans) -> list[str]:
    """Which plan dollars alone would put first, and what keeps it from there."""
    best = plans.best
    cheapest = min(
        (c for c in plans.met if not (c.replay and c.replay.excess)),
        key=lambda c: (bool(c.obstacle), c.usd_per_mtok),
        default=None,
    )
    if best is None or cheapest is None or cheapest.usd_per_mtok >= best.usd_per_mtok:
        return []
    why = bands.unmeasured_reason(cheapest)
    if not why:  # it stands lower for another reason, which its row says
        return []
    less = 100.0 * (1.0 - cheapest.usd_per_mtok / best.usd_per_mtok)
    return [
        f"{cheapest.layout} on {cheapest.system} is predicted to cost {less:.2g} % less, but "
        f"{why}: 80 % of runs like it stay below {cheapest.slow:.3g} times the predicted TPOT, "
        f"and the choice rests on that. A run of it decides; {option('confidence')} weighs both."
    ]


def other_rents(plans: Plans) -> list[str]:
    """The rents at which another system would come first."""
    if not plans.break_evens or plans.best is None:
        return []
    first, sign = plans.systems[plans.best.system].side, plans.question.sign
    parts = list[str]()
    for x in plans.break_evens:
        mean = f"; below {digits(x.equal)} if both are as fast as predicted"
        now = f"{x.rent:g} now{'' if x.below == x.equal else mean}"
        parts.append(f"{x.choice.system} wins below {digits(x.below)} {sign}/h ({now})")
    most, now = plans.break_evens[0].above, float(first.hardware.price)
    return [
        f"At other rents of a GPU: {', '.join(parts)}; {first.name} stays first up to "
        f"{digits(most)} {sign}/h ({now:g} now)."
    ]


def rates_in_words(asked: float, changes: Sequence[RateChange]) -> str:
    """Which plan comes first from which rate on."""
    parts = list[str]()
    for x in changes:
        where = f"{'from' if x.rate > asked else 'up to'} {digits(x.rate)} requests/s"
        plan = x.choice and f"{x.choice.layout} on {x.choice.system} comes first"
        parts.append(f"{where} {plan or 'no plan meets every limit'}")
    times = 2**DOUBLINGS
    unchanged = f"none is within {times} times less and {times} times more"
    return f"Where another plan wins: {'; '.join(parts) or unchanged}."


def doubts(plans: Plans) -> list[str]:
    """How probably the first plan keeps its limits, where that is not safe, and which does."""
    best = plans.best
    if best is None or best.holds is None or best.holds >= SAFE:
        return []
    wanted = EVEN if best.holds < EVEN else SAFE
    likelier = min(
        (c for c in plans.met if (c.holds or 0.0) >= wanted and not c.obstacle),
        key=lambda c: c.usd_per_mtok,
        default=None,
    )
    sentence = f"{best.layout} keeps the limits with a probability of {100.0 * best.holds:.2g} %"
    if likelier is not None:
        more = 100.0 * (likelier.usd_per_mtok / best.usd_per_mtok - 1.0)
        sentence += (
            f"; {likelier.layout} on {likelier.system}, which costs {more:.2g} % more, with "
            f"{100.0 * (likelier.holds or 0.0):.2g} %"
        )
    ways = f"{option('replay')} or a run of it decides; {option('confidence', SAFE)} asks for more."
    return [f"{sentence}. {ways}"]


def missing_products(systems: Sequence[PlanSystem]) -> Iterator[str]:
    """Formats that the chip of a system does not multiply."""
    for system in systems:
        products = set(re.findall(r"(\d+)-bit products", system.setup.model.quantisation))
        filled = dict(re.findall(r"flops_(\d+) missing: filled with flops_(\d+)",
                                 " ".join(system.setup.system.filled)))  # fmt: skip
        for bits in sorted(products & set(filled)):
            name, instead = system.side.name, filled[bits]
            yield f"{name} has no {bits}-bit products: {instead}-bit ones are priced."


def idle_gpus(c: Choice, plans: Plans) -> list[str]:
    """What a plan leaves free of the GPUs there are, or else of its machines."""
    (gpus, cost), sign = machines_of(c, [x.side for x in plans.systems_of(c)]), plans.question.sign
    free = free_gpus(c, plans.question.requirements)
    if free or gpus == c.chips:
        return free
    return [
        f"{c.layout} leaves {gpus - c.chips:g} of {gpus:g} GPUs of its machines idle: with whole "
        f"machines rented it costs {sign}{digits(cost)}/Mtok, not {sign}{digits(c.usd_per_mtok)}."
    ]


def free_gpus(c: Choice, limits: Requirements) -> list[str]:
    """What a plan leaves free of the GPUs there are, and how often it fits on them."""
    left = max(limits.chips - c.chips, 0.0)
    if not left or not np.isfinite(left):
        return []
    copies = limits.chips // c.chips
    sentence = f"{c.layout} takes {c.chips:g} of {limits.chips:g} GPUs and leaves {left:g} free"
    if copies < 2 or limits.rate is not None or limits.concurrency is not None:
        return [f"{sentence}."]
    rest = limits.chips - copies * c.chips
    more = f" ({rest:g} left)" if rest else ""
    return [f"{sentence}; it can be run {copies:g} times, for {copies:g} times the requests{more}."]
