"""Plans as rows, the columns of their tables, and sentences about them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from infer_jax.estimators.known_errors import BORROWED
from infer_jax.planning import Choice, Requirements, bands
from infer_jax.planning.fields import COSTS, ENERGIES, other_outputs
from infer_jax.planning.pricing import DOUBLINGS, RateChange, machines_of
from infer_jax.results import Column, option, scaled_format
from infer_jax.results.numbers import digits, or_unknown
from infer_jax.verbs.plan_search import Plans, PlanSystem, Question

MILLISECONDS = scaled_format(1e3)
MAX_ROWS = 25  # lines of a printed frontier
TIMES = {"ttft": "TTFT", "p95_ttft": "p95 of TTFT", "p99_ttft": "p99 of TTFT", "tpot": "TPOT"}
EVEN = 0.5  # odds from which a plan rather keeps its limits than not
SAFE = 0.8  # odds below which a first plan is worth a sentence


def odds(share: float) -> str:
    """A probability as it is printed."""
    return f"{100.0 * share:.3g} %"


def time_columns(rows: Sequence[Choice], plans: Plans, *, frontier: bool) -> list[Column]:
    """What plans are, their times and costs; a ``frontier`` shows the speed in place of TPOT."""
    pools = any(c.mode == "disaggregated" for c in rows)

    def time(name: str) -> Column:
        """Milliseconds, with the interval that 80 % of measured runs are in where it is known."""

        def text(c: Choice) -> str | None:
            ends = c.calibrated_intervals.get(f"{name}_interval80_ms")
            between = f" ({digits(ends[0])} to {digits(ends[1])})" if ends else ""
            seconds = getattr(c, name)
            return None if seconds is None else digits(1e3 * seconds) + between

        return Column(TIMES[name], "ms", text, left=False, if_any=True)

    return [
        Column("plan", "prefill > decode" if pools else "", _name(plans)),
        *_system_column(rows),
        Column("GPUs", "", "chips", "{:g}".format, spare=True),
        Column("batch", "", "batch"),
        *(time(name) for name in TIMES if not (frontier and name == "tpot")),
        *([Column("speed", "tok/s", lambda c: 1.0 / c.tpot)] if frontier else []),
        Column("output", "tok/s/GPU", "throughput"),
        Column("blended", f"{plans.question.sign}/Mtok", "usd_per_mtok"),
        Column("limits", "hold", "holds", odds, if_any=True),
        Column("binds", "", "binds") if plans.met else Column("breaks", "", "excess", shares, True),
    ]


def bill_columns(rows: Sequence[Choice], plans: Plans) -> list[Column]:
    """The bills of plans per million tokens, their other outputs, and memory."""
    sign = plans.question.sign

    def bill(title: str, name: str, unit: str) -> Column:
        """The output of that name, "unknown" where it is not known."""

        def text(c: Choice) -> str:
            return or_unknown(c.printed(name) if any(x.name == name for x in c.outputs) else None)

        return Column(title, unit, text, left=False)

    def memory(c: Choice) -> str:
        """GB needed of those available on a GPU, and on the tiers below it that are used."""
        used = {"GPU": c.memory, **{name: x for name, x in c.tiers.items() if x[0] > 0.0}}
        words = {n: f"{a / 1e9:.0f} of {b / 1e9:.0f}" for n, (a, b) in used.items()}
        return ", ".join(f"{n} {x}" for n, x in words.items()) if len(words) > 1 else words["GPU"]

    blended, *joules = ENERGIES
    sides = ("input", "output")
    return [
        Column("per million tokens", "", _name(plans)),
        *(bill(side, name, sign) for side, name in zip(sides, COSTS, strict=True)),
        Column("blended", sign, "usd_per_mtok"),
        *(bill(side, name, "J") for side, name in zip(sides, joules, strict=True)),
        bill("blended", blended, "J"),
        *(
            bill(x.short, x.name, "" if x.short == x.printed_unit else x.printed_unit)
            for x in dict.fromkeys(x for c in rows for x in other_outputs(c))
        ),
        Column("memory", "GB of", memory),
    ]


def engine_columns(question: Question) -> list[Column]:
    """What ``plan_fields`` has of the cheapest plan of each engine."""
    unit = question.currency.lower()
    return [
        Column("engine", "", "engine"),
        Column("plan", "", lambda row: row.get("layout") or row["why_none"]),
        Column("system", "", "hardware"),
        Column("batch", "", "concurrency_per_replica"),
        Column("TTFT", "ms", "ttft_ms"),
        Column("TPOT", "ms", "tpot_ms"),
        Column("blended", f"{question.sign}/Mtok", f"blended_cost_per_mtok_{unit}"),
        Column("limits", "hold", "limits_hold", odds),
    ]


def replay_columns(plans: Sequence[Choice]) -> list[Column]:
    """Means and percentiles by law and by replay, ms."""
    broken = any(c.replay and c.replay.excess for c in plans)
    limited = any(c.p95_ttft for c in plans)
    goodput = any(c.replay and c.replay.times and c.replay.times.tails for c in plans)

    def law(title: str, name: str) -> Column:
        """What no law has of two pools is left out."""
        return Column(title, "law", name, MILLISECONDS, if_any=True)

    def replay(title: str, name: str) -> Column:
        return Column(title, "replay", f"replay.times.{name}", MILLISECONDS)

    return [
        Column("plan", "", "layout"),
        *_system_column(plans),
        law("TTFT", "ttft"),
        replay("TTFT", "ttft"),
        *([law("p95", "p95_ttft"), replay("p95", "p95_ttft")] if limited else []),
        law("p99", "p99_ttft"),
        replay("p99", "p99_ttft"),
        law("TPOT", "tpot"),
        replay("TPOT", "tpot"),
        replay("p99", "p99_tpot"),
        *([Column("within", "both", "replay.times.within", "{:.1%}".format)] if goodput else []),
        *([Column("breaks", "replay", "replay.excess", shares, left=True)] if broken else []),
    ]


def evenly_spaced(plans: Sequence[Choice]) -> list[Choice]:
    """At most ``MAX_ROWS`` of a frontier, even in the logarithm of speed, with both ends."""
    if len(plans) <= MAX_ROWS:
        return list(plans)
    times = np.log([c.tpot for c in plans])
    steps = np.linspace(times[0], times[-1], MAX_ROWS)
    return [plans[i] for i in np.unique([np.abs(times - t).argmin() for t in steps])]


def shares(excess: Mapping[str, float]) -> str:
    """By how much limits are exceeded, the worst first."""
    worst = sorted(excess.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} by {share:.1%}" for name, share in worst)


def _system_column(plans: Sequence[Choice]) -> list[Column]:
    """The system of each plan, where there are several."""
    return [Column("system", "", "system")] if len({c.system for c in plans}) > 1 else []


def _name(plans: Plans) -> Callable[[Choice], str]:
    """The layout of a plan, the format of its matrices where several are compared, and a mark."""

    def name(c: Choice) -> str:
        weights = c.formats.partition(";")[0].partition(" (")[0].replace("bfloat", "bf")
        mark = f"{BORROWED} " if c.borrowed_from else ""
        return mark + (f"{c.layout} {weights}" if len(plans.formats) > 1 else c.layout)

    return name


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
