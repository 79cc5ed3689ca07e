"""Plans as rows: their fields in JSON, and the columns of their tables."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from infer_jax.estimators.known_errors import BORROWED
from infer_jax.planning import Choice
from infer_jax.planning.fields import COSTS, ENERGIES, other_outputs
from infer_jax.results import Column, scaled_format
from infer_jax.results.numbers import digits, or_unknown
from infer_jax.verbs.plan_search import Plans, Question

MILLISECONDS = scaled_format(1e3)
MAX_ROWS = 25  # lines of a printed frontier
TIMES = {"ttft": "TTFT", "p95_ttft": "p95 of TTFT", "p99_ttft": "p99 of TTFT", "tpot": "TPOT"}


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
