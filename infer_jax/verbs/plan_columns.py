"""Plans as rows: their fields in JSON, and the columns of their tables."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from infer_jax.estimators.known_errors import BORROWED
from infer_jax.planning import BreakEven, Choice, Degrees, Requirements
from infer_jax.planning.pricing import machines_of
from infer_jax.results import Column, scaled_format
from infer_jax.results.numbers import digits, or_unknown
from infer_jax.specs import UNBOUNDED, Output
from infer_jax.verbs.plan_search import Plans, Question

MILLISECONDS = scaled_format(1e3)
MAX_ROWS = 25  # lines of a printed frontier
ENERGIES = ("blended_energy", "input_energy", "energy")
COSTS = ("input_cost", "cost")
TIMES = {"ttft": "TTFT", "p95_ttft": "p95 of TTFT", "p99_ttft": "p99 of TTFT", "tpot": "TPOT"}
REPLAYED = ("ttft", "p95_ttft", "p99_ttft", "tpot", "p99_tpot")
PLACED = {"ttft", "tpot", "running", *COSTS, *ENERGIES}  # with a column of their own, or none


def other_outputs(c: Choice) -> list[Output]:
    """The outputs without a column of their own in the tables."""
    return [output for output in c.outputs if output.name not in PLACED]


def plan_fields(c: Choice, question: Question, *, replayed: bool = False) -> dict[str, object]:
    """A plan for JSON, with rents in the currency of the question.

    ``replayed``: whether plans are replayed, and this one has times or none.
    """
    unit, total = question.currency.lower(), question.total
    keys = {x.name: x.json_key for x in c.outputs}
    rents = {x.name for x in c.outputs if x.unit == "USD"}  # whose keys end in their currency
    keys |= {name: f"{keys[name].removesuffix('_usd')}_{unit}" for name in rents}

    def own(*names: str) -> dict[str, object]:
        return {keys[name]: c.printed(name) for name in names if name in keys}

    times = c.replay.times if c.replay else None
    replay: dict[str, object] = {
        **{f"replay_{x}_ms": None if times is None else 1e3 * getattr(times, x) for x in REPLAYED},
        "replay_within_limits": None if times is None else times.within,
        "replay_broken": dict(c.replay.excess) if c.replay else {},
        "not_replayed": (c.replay.why or None) if c.replay else None,
    }
    return {
        "mode": c.mode,
        "hardware": c.system,
        "borrowed_from": c.borrowed_from,
        "formats": c.formats,
        "layout": c.layout,
        "degrees": degrees_fields(c.degrees),
        "gpus": c.chips,
        "concurrency_per_replica": c.batch,
        **own("ttft"),
        "p95_ttft_ms": None if c.p95_ttft is None else 1e3 * c.p95_ttft,
        "p99_ttft_ms": None if c.p99_ttft is None else 1e3 * c.p99_ttft,
        **own("tpot"),
        "requests_per_s": c.requests_per_s,
        "throughput_per_gpu_tokens_per_s": c.throughput,
        f"blended_cost_per_mtok_{unit}": c.usd_per_mtok,
        **own(*COSTS),
        f"cost_per_hour_{unit}": c.usd_per_hour,
        **own(*ENERGIES, "running"),
        **own(*(output.name for output in other_outputs(c))),
        "memory_need_bytes": c.memory[0],
        "memory_capacity_bytes": c.memory[1],
        "tier_need_bytes": {name: need for name, (need, _) in c.tiers.items()},
        "binds": c.binds,
        "broken": dict(c.excess),
        **({} if c.holds is None else {"limits_hold": c.holds}),
        **c.intervals,
        **(replay if replayed else {}),
        "idle_gpus": None if total is None else max(total - c.chips, 0.0),
    }


def degrees_fields(degrees: Degrees) -> dict[str, object]:
    """Degrees for JSON; the chunk is null where every prompt is fed in one pass.

    >>> degrees_fields({"tp": 2.0, "chunk": UNBOUNDED})
    {'tp': 2.0, 'chunk': None}
    """
    return {
        name: degrees_fields(x) if isinstance(x, Mapping) else None if x == UNBOUNDED else x
        for name, x in degrees.items()
    }


def break_even_fields(rivals: Sequence[BreakEven], question: Question) -> list[dict[str, object]]:
    """The rents at which other systems would come first for JSON, in the question's currency."""
    unit = f"per_hour_{question.currency.lower()}"
    return [
        {
            "hardware": x.choice.system,
            "layout": x.choice.layout,
            f"rent_{unit}": x.rent,
            f"wins_below_{unit}": x.below,
            f"costs_the_same_at_{unit}": x.equal,
            f"first_stays_up_to_{unit}": x.above,
        }
        for x in rivals
    ]


def machine_fields(c: Choice, plans: Plans) -> dict[str, object]:
    """``machines_of`` for JSON, in the currency of the question."""
    gpus, cost = machines_of(c, [x.side for x in plans.systems_of(c)])
    return {
        "gpus_of_machines": gpus,
        "idle_gpus_of_machines": gpus - c.chips,
        f"whole_machines_cost_per_mtok_{plans.question.currency.lower()}": cost,
    }


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

    def odds(c: Choice) -> float | None:
        return None if c.holds is None else 100.0 * c.holds

    return [
        Column("plan", "prefill > decode" if pools else "", _name(plans)),
        *_system_column(rows),
        Column("GPUs", "", "chips", "{:g}".format, spare=True),
        Column("batch", "", "batch"),
        *(time(name) for name in TIMES if not (frontier and name == "tpot")),
        *([Column("speed", "tok/s", lambda c: 1.0 / c.tpot)] if frontier else []),
        Column("output", "tok/s/GPU", "throughput"),
        Column("blended", f"{plans.question.sign}/Mtok", "usd_per_mtok"),
        Column("limits", "hold", odds, "{:.3g} %".format, if_any=True),
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
    unit, odds = question.currency.lower(), lambda share: f"{100.0 * share:.3g} %"
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
