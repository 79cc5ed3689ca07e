"""How is one configuration printed: its answers, where the time goes, the limits, and notes?"""

from typing import Any

from infer_jax.catalog.published import Errors
from infer_jax.cli import show
from infer_jax.estimators import Estimate, Phase, Trust
from infer_jax.estimators.serving import ServerEstimate
from infer_jax.results import numbers
from infer_jax.specs import outputs
from infer_jax.specs.plan import LAYOUTS
from infer_jax.verbs import limits

MARKED = ("time", "rate", "price")  # kinds that are marked where coefficients are borrowed
LEAST = 1e-12  # seconds: what rounding leaves of a term is less


def notes_of(report: dict[str, Any], said: list[str], shipped: Errors | None) -> list[str]:
    """What times and rates of an estimate are of."""
    if "running" in report:
        load = f"keeps {float(report['batch']):.6g} requests in flight"
        if report["request_rate_per_s"] is not None:
            load = f"is sent {report['request_rate_per_s']:.6g} requests/s, so that it " + load
        levels = [f"{n} {_of(x)} ms" for n, x in report["ttft_percentiles_ms"].items()]
        return [
            f"A server that {load}; both times are means and hold the prefills of other requests "
            "and all waits.",
            *([f"Percentiles of the time to first token: {', '.join(levels)}."] if levels else []),
            "Time per output token is (latency - time to first token) / (osl - 1); with the first "
            f"token, latency / osl, it is {_of(report['tpot_with_first_ms'])} ms.",
            *(
                f"80 % of measured runs: {name.upper()} {_of(ends[0])} to {_of(ends[1])} ms, by "
                + ("rows left out of the fit." if shipped else "the calibration of this profile.")
                for name in ("ttft", "tpot")
                if (ends := report.get(f"{name}_interval80_ms"))
            ),
            *said,
        ]
    context = report["isl_tokens"] + (report["osl_tokens"] - 1) / 2
    return [
        f"Prefill of {report['isl_tokens'] - report['prefix_tokens']:.12g} new tokens of one "
        f"request on an idle instance; decode of one token for a batch of {report['batch']:.6g} at "
        f"{context:.12g} tokens of context, isl + (osl - 1) / 2.",
        "Memory and compute overlap, so that shares may add up to more than 100 %.",
        *said,
    ]


def show_all(report: dict[str, Any], life: Estimate, notes: list[str], trusted: Trust) -> None:
    """Print an estimate: answers, terms, limits, notes."""
    copies = f" x {report['copies']:g} copies" if report["copies"] > 1 else ""
    show.say(
        f"{report['model']} on {float(life.chips):g} {report['hardware']}{copies}", trusted.says, ""
    )
    for title, phase in (("prefill", life.prefill), ("decode", life.decode)):
        for name, limit in phase.limits.items():
            if limit.need > limit.capacity:
                show.say(f"Not feasible: {title}: {limits.broken(name, limit)}.")
    show.table(
        (
            show.Column("answer", left=True),
            show.Column("value"),
            show.Column("unit", left=True),
            show.Column("limit", left=True),
        ),
        _answers(report, life, trusted.mark),
    )
    both = (life.prefill, life.decode)
    spent = sorted({**life.prefill.terms, **life.decode.terms}, key=lambda k: -_longest(both, k))
    spent = [name for name in spent if not isinstance(life, ServerEstimate) or _seen(both, name)]
    rows = [[name, *(cell for p in both for cell in _spent(p, name))] for name in spent]
    rows.append(["time", _of(1e3 * life.ttft), "100", _of(1e3 * life.tpot), "100"])
    rows.append(["MFU", "", _of(100 * life.prefill.mfu), "", _of(100 * life.decode.mfu)])
    show.say("")
    show.table(
        (
            show.Column("spent on", left=True),
            *(show.Column(t, u) for t in ("prefill", "decode") for u in ("ms", "%")),
        ),
        rows,
    )
    show.say("")
    show.table(
        (
            show.Column("limit", left=True),
            show.Column("need"),
            show.Column("capacity"),
            show.Column("slack"),
            show.Column("met", left=True),
        ),
        _limits_of(life),
    )
    for title, phase in (("prefill", life.prefill), ("decode", life.decode)):
        notes.append(f"Layout of {title}: {_layout(phase)}.")
    show.notes(notes)


def _answers(report: dict[str, Any], life: Estimate, mark: str) -> list[list[str]]:
    """Rows of times, rates, money and energy."""
    rows = []
    for output in outputs(life, view="estimate"):
        value = numbers.or_unknown(report[output.json_key], 4)
        stands = mark if output.kind in MARKED and not output.drawn else ""
        unit = output.printed_unit
        rows.append([output.title, stands + value, unit, _met(report, output.name)])
        if output.whole:
            rows.append([output.whole, stands + _of(report[output.plain_key]), unit, ""])
    return rows


def _limits_of(life: Estimate) -> list[list[str]]:
    """Rows of both phases; of a server, whose phases share limits, once, with what fills it."""
    if not isinstance(life, ServerEstimate):
        both = (("prefill", life.prefill), ("decode", life.decode))
        return [row for title, phase in both for row in _limits(title, phase)]
    titles = {
        "weights": "of it weights",
        "cache": f"of it KV cache of {_of(life.running)} running requests",
        "reserve": "of it the runtime's reserve",
    }
    rows = []
    for row in _limits("", life.decode):
        rows.append(row)
        if row[0] == "memory":
            parts = life.memory.items()
            rows += [[f"  {titles[name]}", numbers.size(x), "", "", ""] for name, x in parts]
    return rows


def _layout(phase: Phase) -> str:
    named = {name: numbers.digits(x) for name, x in phase.layout.items()}
    if "layout" in named and named["layout"] in "01":
        named["layout"] = LAYOUTS[int(named["layout"])]
    return ", ".join(f"{name} {x}" for name, x in named.items())


def _of(value: Any) -> str:
    return numbers.digits(value, 4)


def _met(report: dict[str, Any], name: str) -> str:
    limit = report["limits"].get(name)
    if limit is None:
        return ""
    return f"{_of(limit['limit_ms'])} ms: {'met' if limit['met'] else 'broken'}"


def _longest(phases: tuple[Phase, Phase], name: str) -> float:
    return max(float(p.terms[name] / p.time) for p in phases if name in p.terms)


def _seen(phases: tuple[Phase, Phase], name: str) -> bool:
    return any(p.terms[name] >= LEAST for p in phases if name in p.terms)


def _spent(phase: Phase, name: str) -> tuple[str, str]:
    if name not in phase.terms:
        return "", ""
    term = phase.terms[name]
    if term < LEAST:
        return "0", "0"
    return _of(1e3 * term), numbers.digits(100 * term / phase.time)


def _limits(title: str, phase: Phase) -> list[list[str]]:
    rows = []
    for name, limit in phase.limits.items():
        if limit.need == limit.capacity == 0:  # nothing asked of a tier that is absent
            continue
        said = numbers.size if name.endswith("memory") else _of
        met = "yes" if limit.need <= limit.capacity else "no"
        values = (limit.need, limit.capacity, limit.capacity - limit.need)
        rows.append([f"{name}, {title}" if title else name, *(said(x) for x in values), met])
    return rows
