"""Tables of plans: times and costs, and the cost and energy of input and output."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from infer_jax.estimators.known_errors import BORROWED
from infer_jax.planning import Choice
from infer_jax.results import Column, Part, Table, numbers
from infer_jax.verbs.plan_rows import COSTS, ENERGIES, PlanRow

if TYPE_CHECKING:
    from infer_jax.verbs.plan_replay import Replayed

SHOWN = 25  # lines of a printed frontier
TIMES = {"ttft": "TTFT", "p99_ttft": "p99 of TTFT", "tpot": "TPOT"}


def tables(
    rows: Sequence[PlanRow], *, met: bool, frontier: bool, formats: bool, sign: str
) -> Iterator[Part]:
    """The rows as tables: plans that are ``met``, of a ``frontier``, or else what they break.

    ``formats``: whether several are compared; ``sign``: of the currency.
    """
    names = [_name(row, formats) for row in rows]
    yield _answers(rows, names, met=met, frontier=frontier, sign=sign)
    if not frontier:
        yield ""
        yield _bills(rows, names, sign)


def replayed(plans: Sequence["Replayed"]) -> Table:
    """Means and 99th percentiles by law and by replay, ms."""
    systems = len({c.system for c, _, _ in plans}) > 1
    random = any(c.p99_ttft for c, _, _ in plans)
    columns = (
        Column("plan", left=True),
        *([Column("system", left=True)] if systems else []),
        *(Column("TTFT", by) for by in ("law", "replay")),
        *(Column("p99", by) for by in (("law", "replay") if random else ("replay",))),
        *(Column("TPOT", by) for by in ("law", "replay")),
        Column("p99", "replay"),
        *(
            [Column("breaks", "replay", left=True)]
            if any(c.replay_excess for c, _, _ in plans)
            else []
        ),
    )
    lines = []
    for c, times, _ in plans:
        if times is None:
            continue
        late = (c.p99_ttft,) if random else ()  # no law says it of two pools
        every = (c.ttft, times.ttft, *late, times.p99_ttft, c.tpot, times.tpot, times.p99_tpot)
        shown = ["" if x is None else numbers.digits(1e3 * x) for x in every]
        broken = [_shares(c.replay_excess)] if any(x.choice.replay_excess for x in plans) else []
        lines.append([c.layout, *([c.system] if systems else []), *shown, *broken])
    return Table(columns, lines)


def spread(plans: Sequence[Choice]) -> list[int]:
    """At most ``SHOWN`` of a frontier, even in the logarithm of speed, with both ends."""
    if len(plans) <= SHOWN:
        return list(range(len(plans)))
    times = np.log([c.tpot for c in plans])
    wanted = np.linspace(times[0], times[-1], SHOWN)
    return np.unique([np.abs(times - t).argmin() for t in wanted]).tolist()


def _name(row: PlanRow, formats: bool) -> str:
    """The layout, the format of the matrices where several are compared, and a mark."""
    c = row.choice
    weights = c.formats.partition(";")[0].partition(" (")[0].replace("bfloat", "bf")
    mark = f"{BORROWED} " if row.borrowed else ""
    return mark + (f"{c.layout} {weights}" if formats else c.layout)


def _answers(
    rows: Sequence[PlanRow], names: Sequence[str], *, met: bool, frontier: bool, sign: str
) -> Table:
    pools = any(row.choice.mode == "disaggregated" for row in rows)
    systems = len({row.choice.system for row in rows}) > 1
    # a frontier shows the speed in place of TPOT
    times = [x for x in TIMES if any(getattr(row.choice, x) for row in rows)]
    times = [x for x in times if not (frontier and x == "tpot")]
    believed = any(row.choice.holds is not None for row in rows)
    columns = (
        Column("plan", "prefill > decode" if pools else "", left=True),
        *([Column("system", left=True)] if systems else []),
        Column("GPUs", spare=True),
        Column("batch"),
        *(Column(TIMES[name], "ms") for name in times),
        *([Column("speed", "tok/s")] if frontier else []),
        Column("output", "tok/s/GPU"),
        Column("blended", f"{sign}/Mtok"),
        *([Column("limits", "hold")] if believed else []),
        Column("binds" if met else "breaks", left=True),
    )
    lines = [
        [
            name,
            *([row.choice.system] if systems else []),
            f"{row.choice.chips:g}",
            numbers.digits(row.choice.batch),
            *(_time(row, time) for time in times),
            *([numbers.digits(1.0 / row.choice.tpot)] if frontier else []),
            numbers.digits(row.choice.throughput),
            numbers.digits(row.choice.usd_per_mtok),
            *([_holds(row.choice)] if believed else []),
            row.choice.binds if met else _breaks(row.choice),
        ]
        for row, name in zip(rows, names, strict=True)
    ]
    return Table(columns, lines, mark=0 if met and not frontier else -1)


def _bills(rows: Sequence[PlanRow], names: Sequence[str], sign: str) -> Table:
    sides, others = ("input", "output", "blended"), dict.fromkeys(x for r in rows for x in r.others)
    columns = (
        Column("per million tokens", left=True),
        *(Column(side, sign) for side in sides),
        *(Column(side, "J") for side in sides),
        *(Column(x.short, "" if x.short == x.printed_unit else x.printed_unit) for x in others),
        Column("memory", "GB of", left=True),
    )
    lines = []
    for row, name in zip(rows, names, strict=True):
        c = row.choice
        costs = (numbers.or_unknown(x) for x in (*map(row.value, COSTS), c.usd_per_mtok))
        joules = (numbers.or_unknown(row.value(x)) for x in (*ENERGIES[1:], ENERGIES[0]))
        more = (numbers.or_unknown(row.others.get(x)) for x in others)
        lines.append([name, *costs, *joules, *more, _memory(c)])
    return Table(columns, lines)


def _time(row: PlanRow, name: str) -> str:
    """Milliseconds, with the interval that 80 % of measured runs are in where that is known."""
    seconds, ends = getattr(row.choice, name), row.intervals.get(f"{name}_interval80_ms")
    between = f" ({numbers.digits(ends[0])} to {numbers.digits(ends[1])})" if ends else ""
    return "" if seconds is None else numbers.digits(1e3 * seconds) + between


def _memory(c: Choice) -> str:
    """GB needed of GB there on a GPU, and on what lies below it where that is used."""
    used = {"GPU": c.memory, **{name: x for name, x in c.tiers.items() if x[0] > 0.0}}
    words = {n: f"{a / 1e9:.0f} of {b / 1e9:.0f}" for n, (a, b) in used.items()}
    return ", ".join(f"{n} {x}" for n, x in words.items()) if len(words) > 1 else words["GPU"]


def _holds(c: Choice) -> str:
    """The probability that all limits hold."""
    return "" if c.holds is None else f"{100.0 * c.holds:.3g} %"


def _breaks(c: Choice) -> str:
    return _shares(c.excess)


def _shares(excess: Mapping[str, float]) -> str:
    """By how much limits are exceeded, the worst first."""
    worst = sorted(excess.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} by {share:.1%}" for name, share in worst)
