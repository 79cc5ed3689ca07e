"""Plans as rows: their fields in JSON, and the columns of their tables."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from infer_jax.estimators.known_errors import BORROWED
from infer_jax.planning import Choice, Degrees, Requirements
from infer_jax.results import Column, Part, Table, scaled, table
from infer_jax.results.numbers import digits, or_unknown
from infer_jax.specs import UNBOUNDED, Output
from infer_jax.verbs.plan_search import Plans

ROWS = 25  # lines of a printed frontier
ENERGIES = ("blended_energy", "input_energy", "energy")
COSTS = ("input_cost", "cost")
TIMES = {"ttft": "TTFT", "p99_ttft": "p99 of TTFT", "tpot": "TPOT"}
REPLAYED = ("ttft", "p99_ttft", "tpot", "p99_tpot")
PLACED = {"ttft", "tpot", "running", *COSTS, *ENERGIES}  # with a column of their own, or none


def other_outputs(c: Choice) -> list[Output]:
    """The outputs without a column of their own in the tables."""
    return [output for output in c.outputs if output.name not in PLACED]


def borrowed_from(c: Choice, plans: Plans) -> str | None:
    """The generations whose coefficients are used for chips that have none of their own."""
    lenders = dict.fromkeys(plans.systems[x].trust.borrowed_from for x in c.system.split(" > "))
    return " and ".join(name for name in lenders if name) or None


def calibrated_intervals(c: Choice, plans: Plans) -> Mapping[str, Sequence[float]]:
    """The range of 80 % of measured runs by the calibration of the profile, ms, by name."""
    return c.intervals if plans.systems_of(c)[0].given.system.bands() else {}


def plan_fields(
    c: Choice,
    currency: str,
    total: float | None,
    *,
    borrowed: str | None,
    intervals: Mapping[str, Sequence[float]],
    replayed: bool = False,
) -> dict[str, object]:
    """A plan for JSON; rents in ``currency``, of ``total`` GPUs where that is given.

    ``replayed``: whether plans are replayed, and this one has times or none.
    """
    unit = currency.lower()
    keys = {x.name: _key(x, unit) for x in c.outputs}

    def own(*names: str) -> dict[str, object]:
        return {keys[name]: c.printed(name) for name in names}

    return {
        "mode": c.mode,
        "hardware": c.system,
        "borrowed_from": borrowed,
        "formats": c.formats,
        "layout": c.layout,
        "degrees": degrees_fields(c.degrees),
        "gpus": c.chips,
        "concurrency_per_replica": c.batch,
        **own("ttft"),
        "p99_ttft_ms": None if c.p99_ttft is None else 1e3 * c.p99_ttft,
        **own("tpot"),
        "requests_per_s": c.requests_per_s,
        "throughput_per_gpu_tokens_per_s": c.throughput,
        f"blended_cost_per_mtok_{unit}": c.usd_per_mtok,
        **own(*COSTS),
        f"cost_per_hour_{unit}": c.usd_per_hour,
        **own(*ENERGIES, *(["running"] if "running" in keys else [])),
        **own(*(output.name for output in other_outputs(c))),
        "memory_need_bytes": c.memory[0],
        "memory_capacity_bytes": c.memory[1],
        "tier_need_bytes": {name: need for name, (need, _) in c.tiers.items()},
        "binds": c.binds,
        "broken": dict(c.excess),
        **({} if c.holds is None else {"limits_hold": c.holds}),
        **intervals,
        **(_replay_fields(c) if replayed else {}),
        "idle_gpus": idle_gpus(c, total),
    }


def _key(output: Output, currency: str) -> str:
    """The name of an output in JSON; rents end in their currency."""
    key = output.json_key
    return f"{key.removesuffix('_usd')}_{currency}" if output.unit == "USD" else key


def _replay_fields(c: Choice) -> dict[str, object]:
    """Times of the replay of a plan, and why it was not replayed."""
    times = c.replay.times if c.replay else None
    return {
        **{f"replay_{x}_ms": None if times is None else 1e3 * getattr(times, x) for x in REPLAYED},
        "replay_broken": dict(c.replay.excess) if c.replay else {},
        "not_replayed": (c.replay.why or None) if c.replay else None,
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


def idle_gpus(c: Choice, total: float | None) -> float | None:
    """GPUs that a plan leaves free; None where no total is given."""
    return None if total is None else max(total - c.chips, 0.0)


def free_gpus(c: Choice, limits: Requirements) -> list[str]:
    """What a plan leaves free of the GPUs there are, and how often it fits on them."""
    left = idle_gpus(c, limits.chips) if np.isfinite(limits.chips) else None
    if not left:
        return []
    copies = limits.chips // c.chips
    says = f"{c.layout} takes {c.chips:g} of {limits.chips:g} GPUs and leaves {left:g} free"
    if copies < 2 or limits.rate is not None or limits.concurrency is not None:
        return [f"{says}."]
    rest = limits.chips - copies * c.chips
    more = f" ({rest:g} left)" if rest else ""
    return [f"{says}; it can be run {copies:g} times, for {copies:g} times the requests{more}."]


GPUS = Column("GPUs", "", "chips", "{:g}".format, spare=True)
BATCH = Column("batch", "", "batch")
SPEED = Column("speed", "tok/s", lambda c: 1.0 / c.tpot)
OUTPUT = Column("output", "tok/s/GPU", "throughput")
SYSTEM = Column("system", "", "system")
HOLDS = Column("limits", "hold", lambda c: None if c.holds is None else 100.0 * c.holds,
               "{:.3g} %".format)  # fmt: skip
BINDS = Column("binds", "", "binds")
BREAKS = Column("breaks", "", lambda c: shares(c.excess))


def plan_tables(
    shown: Sequence[Choice], plans: Plans, *, frontier: bool, sign: str
) -> Iterator[Part]:
    """Plans as tables: their times and costs, and their bills unless they are a ``frontier``.

    ``sign``: of the currency.
    """
    pools = any(c.mode == "disaggregated" for c in shown)
    name = partial(_name, plans=plans)
    # a frontier shows the speed in place of TPOT
    times = [x for x in TIMES if any(getattr(c, x) for c in shown)]
    times = [x for x in times if not (frontier and x == "tpot")]
    columns = [
        Column("plan", "prefill > decode" if pools else "", name),
        *_system_column(shown),
        GPUS,
        BATCH,
        *(Column(TIMES[x], "ms", partial(_time, name=x, plans=plans), left=False) for x in times),
        *([SPEED] if frontier else []),
        OUTPUT,
        Column("blended", f"{sign}/Mtok", "usd_per_mtok"),
        *([HOLDS] if any(c.holds is not None for c in shown) else []),
        BINDS if plans.met else BREAKS,
    ]
    yield table(shown, columns, mark=0 if plans.met and not frontier else -1)
    if frontier:
        return
    others = dict.fromkeys(x for c in shown for x in other_outputs(c))
    joules = zip(("input", "output", "blended"), (*ENERGIES[1:], ENERGIES[0]), strict=True)
    bills = [
        Column("per million tokens", "", name),
        *(_output_column(*x, sign) for x in zip(("input", "output"), COSTS, strict=True)),
        Column("blended", sign, "usd_per_mtok"),
        *(_output_column(*x, "J") for x in joules),
        *(
            _output_column(x.short, x.name, "" if x.short == x.printed_unit else x.printed_unit)
            for x in others
        ),
        Column("memory", "GB of", _memory),
    ]
    yield ""
    yield table(shown, bills)


def replay_table(plans: Sequence[Choice]) -> Table:
    """Means and 99th percentiles by law and by replay, ms."""
    milliseconds = scaled(1e3)
    broken = any(c.replay and c.replay.excess for c in plans)
    random = any(c.p99_ttft for c in plans)  # no law says it of two pools
    columns = [
        Column("plan", "", "layout"),
        *_system_column(plans),
        Column("TTFT", "law", "ttft", milliseconds),
        Column("TTFT", "replay", "replay.times.ttft", milliseconds),
        *([Column("p99", "law", "p99_ttft", milliseconds)] if random else []),
        Column("p99", "replay", "replay.times.p99_ttft", milliseconds),
        Column("TPOT", "law", "tpot", milliseconds),
        Column("TPOT", "replay", "replay.times.tpot", milliseconds),
        Column("p99", "replay", "replay.times.p99_tpot", milliseconds),
        *([Column("breaks", "replay", "replay.excess", shares, left=True)] if broken else []),
    ]
    return table([c for c in plans if c.replay and c.replay.times], columns)


def evenly_spaced(plans: Sequence[Choice]) -> list[Choice]:
    """At most ``ROWS`` of a frontier, even in the logarithm of speed, with both ends."""
    if len(plans) <= ROWS:
        return list(plans)
    times = np.log([c.tpot for c in plans])
    steps = np.linspace(times[0], times[-1], ROWS)
    return [plans[i] for i in np.unique([np.abs(times - t).argmin() for t in steps])]


def shares(excess: Mapping[str, float]) -> str:
    """By how much limits are exceeded, the worst first."""
    worst = sorted(excess.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} by {share:.1%}" for name, share in worst)


def _output_column(title: str, name: str, unit: str) -> Column:
    """The output of that name, "unknown" where it is not known."""

    def text(c: Choice) -> str:
        return or_unknown(c.printed(name) if any(x.name == name for x in c.outputs) else None)

    return Column(title, unit, text, left=False)


def _system_column(plans: Sequence[Choice]) -> list[Column]:
    """The system of each plan, where there are several."""
    return [SYSTEM] if len({c.system for c in plans}) > 1 else []


def _name(c: Choice, plans: Plans) -> str:
    """The layout, the format of the matrices where several are compared, and a mark."""
    weights = c.formats.partition(";")[0].partition(" (")[0].replace("bfloat", "bf")
    mark = f"{BORROWED} " if borrowed_from(c, plans) else ""
    return mark + (f"{c.layout} {weights}" if len(plans.formats) > 1 else c.layout)


def _time(c: Choice, name: str, plans: Plans) -> str | None:
    """Milliseconds, with the interval that 80 % of measured runs are in where that is known."""
    ends = calibrated_intervals(c, plans).get(f"{name}_interval80_ms")
    between = f" ({digits(ends[0])} to {digits(ends[1])})" if ends else ""
    seconds = getattr(c, name)
    return None if seconds is None else digits(1e3 * seconds) + between


def _memory(c: Choice) -> str:
    """GB needed of GB there on a GPU, and on what lies below it where that is used."""
    used = {"GPU": c.memory, **{name: x for name, x in c.tiers.items() if x[0] > 0.0}}
    words = {n: f"{a / 1e9:.0f} of {b / 1e9:.0f}" for n, (a, b) in used.items()}
    return ", ".join(f"{n} {x}" for n, x in words.items()) if len(words) > 1 else words["GPU"]
