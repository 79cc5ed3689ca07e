"""How is a plan shown: a row of JSON, a line of the printed table?"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from infer_jax.catalog import System, load_model
from infer_jax.cli import show
from infer_jax.cli.plan_search import Found, Question
from infer_jax.estimators.trust import BORROWED, Trust, pools
from infer_jax.planning import USUAL_TTFT, Asked, Choice
from infer_jax.results import numbers
from infer_jax.verbs import inputs

TIMES = (("ttft", "TTFT"), ("p99_ttft", "p99 of TTFT"), ("tpot", "TPOT"))
SHOWN = 25  # lines of a printed frontier


def report(question: Question, found: Found, money: str) -> dict[str, Any]:
    """All plans for JSON, with what was asked; rents in ``money``."""
    work = question.requests.work
    known = money, found.systems, found.trusted

    def rows(plans: list[Choice]) -> list[dict[str, Any]]:
        return [{**row(c, *known), "idle_gpus": idle(c, question.total)} for c in plans]

    return {
        "model": load_model(
            question.config, quant=question.formats[0], kv_dtype=question.kv_dtype
        ).name,
        "formats": list(found.formats),
        "estimator": question.estimator,
        "trust": {system: one.fields() for system, one in found.trusted.items()},
        "isl_tokens": float(work.isl),
        "osl_tokens": float(work.osl),
        "prefix_tokens": float(work.prefix),
        "lengths": question.requests.lengths,
        "usual_ttft_ms": 1e3 * USUAL_TTFT if found.usual else None,
        "configurations": found.configurations,
        "feasible": bool(found.met),
        "frontier" if question.asked.frontier else "plans": rows(found.met),
        "near_misses": rows(found.missed),
    }


def idle(c: Choice, total: float | None) -> float | None:
    """GPUs that a plan leaves free; None where no total is given."""
    return None if total is None else max(total - c.chips, 0.0)


def free(c: Choice, asked: Asked) -> list[str]:
    """What a plan leaves free of the GPUs there are, and how often it fits on them."""
    left = idle(c, asked.chips) if np.isfinite(asked.chips) else None
    if not left:
        return []
    copies = asked.chips // c.chips
    says = f"{c.layout} takes {c.chips:g} of {asked.chips:g} GPUs and leaves {left:g} free"
    if copies < 2 or asked.rate is not None or asked.concurrency is not None:
        return [f"{says}."]
    rest = asked.chips - copies * c.chips
    more = f" ({rest:g} left)" if rest else ""
    return [f"{says}; it can be run {copies:g} times, for {copies:g} times the requests{more}."]


def row(
    c: Choice, money: str, known: Mapping[str, System], trusted: Mapping[str, Trust]
) -> dict[str, Any]:
    """A plan for JSON; rents in ``money``. Calibrations are of whole servers, not of pools."""
    unit = money.lower()
    whole = c.mode != "disaggregated"
    bands = inputs.bands(known[c.system], c.ttft, c.tpot) if whole else {}
    boards = [float(known[name].hardware.power) for name in c.system.split(" > ")]
    drawn = numbers.known(min(boards))
    return {
        "mode": c.mode,
        "hardware": c.system,
        "borrowed_from": borrowed(c, trusted),
        "formats": c.formats,
        "layout": c.layout,
        "degrees": c.degrees,
        "gpus": c.chips,
        "concurrency_per_replica": c.batch,
        "ttft_ms": 1e3 * c.ttft,
        "p99_ttft_ms": None if c.p99_ttft is None else 1e3 * c.p99_ttft,
        "tpot_ms": 1e3 * c.tpot,
        "requests_per_s": c.requests_per_s,
        "throughput_per_gpu_tokens_per_s": c.throughput,
        f"blended_cost_per_mtok_{unit}": c.usd_per_mtok,
        f"input_cost_per_mtok_{unit}": c.input_usd,
        f"output_cost_per_mtok_{unit}": c.output_usd,
        f"cost_per_hour_{unit}": c.usd_per_hour,
        "blended_energy_per_mtok_j": drawn(c.joules),
        "input_energy_per_mtok_j": drawn(c.input_joules),
        "output_energy_per_mtok_j": drawn(c.output_joules),
        "memory_need_bytes": c.memory[0],
        "memory_capacity_bytes": c.memory[1],
        "tier_need_bytes": {name: need for name, (need, _) in c.tiers.items()},
        "binds": c.binds,
        "broken": dict(c.excess),
        **bands,
    }


def borrowed(c: Choice, trusted: Mapping[str, Trust]) -> str | None:
    """The generations whose coefficients stand for a plan's chips, where these have none."""
    found = [trusted[name].borrowed_from for name in c.system.split(" > ")]
    return " and ".join(dict.fromkeys(name for name in found if name)) or None


def tables(
    report: dict[str, Any], shown: list[Choice], rows: list[dict[str, Any]], sign: str
) -> None:
    """Print plans, of which ``rows`` says the times; the first is the answer if all are met."""
    met = bool(shown) and not shown[0].excess
    frontier = met and "frontier" in report
    systems = list(dict.fromkeys(c.system for c in shown))
    names = [_named(c) if len(report["formats"]) > 1 else c.layout for c in shown]
    marks = [f"{BORROWED} " if row["borrowed_from"] else "" for row in rows]
    names = [mark + name for mark, name in zip(marks, names, strict=True)]
    where = f" on {systems[0]}" if len(systems) == 1 else ""
    lengths = f"{report['isl_tokens']:g} tokens in, {report['osl_tokens']:g} out"
    says = [one["says"] for one in report["trust"].values()]
    show.say(f"{report['model']}{where}, {lengths}", *says, *_pools(shown), "")
    if not met:
        show.say("No plan meets every limit. The nearest, and what they break:", "")
    pools = any(c.mode == "disaggregated" for c in shown)
    times = [name for name, _ in TIMES if any(row.get(f"{name}_ms") for row in rows)]
    times = [name for name in times if not frontier or name != "tpot"]  # it shows the speed
    columns = (
        show.Column("plan", "prefill > decode" if pools else "", left=True),
        *([show.Column("system", left=True)] if len(systems) > 1 else []),
        show.Column("GPUs"),
        show.Column("batch"),
        *(show.Column(title, "ms") for name, title in TIMES if name in times),
        *([show.Column("speed", "tok/s")] if frontier else []),
        show.Column("output", "tok/s/GPU"),
        show.Column("blended", f"{sign}/Mtok"),
        show.Column("binds" if met else "breaks", left=True),
    )
    lines = [
        [
            name,
            *([c.system] if len(systems) > 1 else []),
            f"{c.chips:g}",
            numbers.digits(c.batch),
            *(_time(row, time) for time in times),
            *([numbers.digits(1.0 / c.tpot)] if frontier else []),
            numbers.digits(c.throughput),
            numbers.digits(c.usd_per_mtok),
            c.binds if met else _breaks(c),
        ]
        for c, name, row in zip(shown, names, rows, strict=True)
    ]
    show.table(columns, lines, mark=0 if met and not frontier else -1)
    if not frontier:
        _bills(shown, rows, names, sign)


def _pools(shown: list[Choice]) -> list[str]:
    """What is known of the errors of plans with pools that prefill and decode."""
    return [pools()] if any(c.mode == "disaggregated" for c in shown) else []


def spread(plans: list[Choice]) -> list[int]:
    """At most ``SHOWN`` of a frontier, even in the logarithm of speed, with both ends."""
    if len(plans) <= SHOWN:
        return list(range(len(plans)))
    times = np.log([c.tpot for c in plans])
    wanted = np.linspace(times[0], times[-1], SHOWN)
    return np.unique([np.abs(times - t).argmin() for t in wanted]).tolist()


def _named(c: Choice) -> str:
    """The layout, and the format of the matrices."""
    told = c.formats.partition(";")[0].partition(" (")[0]
    return f"{c.layout} {told.replace('bfloat', 'bf')}"


def _bills(shown: list[Choice], rows: list[dict[str, Any]], names: list[str], sign: str) -> None:
    prices = ("input", "output", "blended")
    columns = (
        show.Column("per million tokens", left=True),
        *(show.Column(side, sign) for side in prices),
        *(show.Column(side, "J") for side in prices),
        show.Column("memory", "GB of", left=True),
    )
    lines = [
        [
            name,
            *(numbers.digits(x) for x in (c.input_usd, c.output_usd, c.usd_per_mtok)),
            *(numbers.or_unknown(row[f"{side}_energy_per_mtok_j"]) for side in prices),
            _memory(c),
        ]
        for c, row, name in zip(shown, rows, names, strict=True)
    ]
    show.say("")
    show.table(columns, lines)


def _time(row: dict[str, Any], name: str) -> str:
    """Milliseconds, with the interval that 80 % of measured runs are in where that is known."""
    ends = row.get(f"{name}_interval80_ms")
    between = f" ({numbers.digits(ends[0])} to {numbers.digits(ends[1])})" if ends else ""
    return "" if row[f"{name}_ms"] is None else numbers.digits(row[f"{name}_ms"]) + between


def _memory(c: Choice) -> str:
    """GB needed of GB there on a GPU, and on what lies below it where that is used."""
    used = {"GPU": c.memory, **{name: x for name, x in c.tiers.items() if x[0] > 0.0}}
    told = {n: f"{a / 1e9:.0f} of {b / 1e9:.0f}" for n, (a, b) in used.items()}
    return ", ".join(f"{n} {x}" for n, x in told.items()) if len(told) > 1 else told["GPU"]


def _breaks(c: Choice) -> str:
    worst = sorted(c.excess.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} by {share:.1%}" for name, share in worst)
