"""The charts and tables of a report: time, memory, elasticities, kernels."""

from collections.abc import Iterator
from typing import NamedTuple

from infer_jax.design.sensitivity import Elasticity, known_outputs
from infer_jax.estimators import Limit
from infer_jax.pages import figures, vega
from infer_jax.pages.figures import Bar, KernelPoint, MemoryPart
from infer_jax.pages.look import NOT_USED
from infer_jax.pages.tradeoff import in_words
from infer_jax.plots.names import named
from infer_jax.plots.tones import CACHE, HOST, MEMORY, WEIGHTS
from infer_jax.results import numbers
from infer_jax.results.numbers import digits
from infer_jax.results.terms import term
from infer_jax.specs import outputs
from infer_jax.verbs.report_answers import ReportData, met, ms, phases
from infer_jax.verbs.report_systems import HOURS
from infer_jax.verbs.sensitivity_result import worth

TOP = 10  # bars of each output's sensitivity


class PageTable(NamedTuple):
    """A table of a page: heads, rows, which columns are words, and the emphasised row."""

    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    words: tuple[int, ...] = (0,)
    mark: int = -1


class Figure(NamedTuple):
    """A chart of a page, with its title and its numbers as a table."""

    name: str
    title: str
    spec: vega.Spec
    table: PageTable


def plan(answers: ReportData) -> tuple[PageTable, PageTable]:
    """Outputs of the plan, and its limits."""
    mark = answers.trusted.mark
    rows = []
    for x in outputs(answers.estimate, view="report"):
        value = x.value(answers.estimate, answers.asked.hardware.power)
        ends = answers.intervals.get(f"{x.name}_interval80_ms")
        between = "" if ends is None else " to ".join(digits(end) for end in ends)
        rows.append((x.title, mark + numbers.or_unknown(value, 4), x.printed_unit, between))
    limits = [
        (f"{name}, {title}", *_sizes(name, limit), met(limit.need, limit.capacity))
        for title, phase in phases(answers)
        for name, limit in phase.limits.items()
        if float(limit.need) or float(limit.capacity)
    ]
    heads = ("answer", "value", "unit", "80 % of measured servers")
    if not answers.intervals:  # which are not known
        heads, rows = heads[:3], [row[:3] for row in rows]
    return (
        PageTable(heads, rows, (0, 2)),
        PageTable(("limit", "need", "capacity", ""), limits, (0, 3)),
    )


def _sizes(name: str, limit: Limit) -> tuple[str, str]:
    said = numbers.size if name.endswith("memory") else digits
    return said(limit.need), said(limit.capacity)


def systems(answers: ReportData) -> PageTable:
    """The plan to take on each system in each format, the cheapest first."""
    every = sorted(answers.picked.candidates, key=lambda c: c.rank)
    rows = [
        (
            f"{c.trusted.mark} {c.label}".strip(),
            in_words(c.layout),
            f"{c.gpus:g}",
            digits(1e3 * c.ttft),
            digits(1e3 * c.tpot),
            digits(1.0 / c.tpot),
            digits(c.throughput),
            digits(c.usd),
            f"{HOURS * c.hourly:,.0f}",
            f"breaks {c.broken}" if c.excess else "met",
        )
        for c in every
    ]
    heads = ("system", "plan", "GPUs", "TTFT ms", "TPOT ms", "tokens/s per user",
             "tokens/s/GPU", "$/Mtok", "$/month", "limits")  # fmt: skip
    mark = next(i for i, c in enumerate(every) if c.label == answers.picked.label)
    return PageTable(heads, rows, (0, 1, 9), mark)


def costs(answers: ReportData) -> PageTable:
    """Rent by the hour and the month, and per million tokens."""
    costs, mark = answers.costs, answers.trusted.mark
    into, out = (f"{HOURS * 3600.0 * x / 1e9:,.4g}" for x in costs.tokens)
    held = f"{costs.held:g} tokens of each prompt in the cache, the plan as it is"
    return PageTable(
        ("", "", ""),
        [
            ("an hour", f"${digits(costs.hour, 4)}", "rent of all GPUs"),
            ("a month", f"${costs.month:,.0f}", f"{HOURS:g} hours"),
            ("a million tokens, in and out", f"{mark}${digits(costs.blended)}", "at full use"),
            ("a million input tokens", f"{mark}${digits(costs.into)}", "not in the cache"),
            ("a million cached input tokens", f"{mark}${digits(costs.cached)}", held),
            ("a million output tokens", f"{mark}${digits(costs.out)}", ""),
            ("tokens a month", f"{into} in, {out} out", "thousand millions, at full use"),
        ],
        (0, 2),
    )


def time(answers: ReportData) -> Iterator[Figure]:
    """Every term of both passes."""
    for title, phase in phases(answers):
        whole = float(phase.time)
        terms = sorted(phase.terms.items(), key=lambda item: -float(item[1]))
        kept = [(name, float(t)) for name, t in terms if float(t) > 1e-6 * whole]
        bars = [Bar(term(name), 1e3 * t, f"{100 * t / whole:.3g} %", ms(t)) for name, t in kept]
        rows = [(term(name), digits(1e3 * t), f"{100 * t / whole:.3g}") for name, t in kept]
        said = f"{title}: {ms(whole)}, MFU {100 * float(phase.mfu):.3g} %"
        spec = figures.bars(f"Time of {title} by term", bars, "milliseconds")
        yield Figure(f"time-{title}", said, spec, PageTable(("term", "ms", "% of the whole"), rows))


def memory(answers: ReportData) -> Figure:
    """What fills the memory of a GPU."""
    held, host = answers.held, answers.asked.hardware.host
    weights = {k: float(x) for k, x in held.weights.items() if float(x)}
    kinds = ", ".join(f"{k} {numbers.size(x)}" for k, x in weights.items())
    kept = f"{float(held.tokens):,.0f} tokens, {float(held.concurrency):.3g} such requests"
    parts = [
        ("weights", sum(weights.values()), kinds),
        ("activations", float(held.activations), "the peak of one pass"),
        ("reserve", float(held.reserve), "context, collectives, graphs"),
        ("KV cache", max(float(held.available), 0.0), kept),
        ("not the server's", float(held.visible) - float(held.budget), "beyond the share it uses"),
    ]
    tones = WEIGHTS, HOST, MEMORY, CACHE, NOT_USED
    rows = [(k, f"{x:,.0f}", numbers.size(x), note) for k, x, note in parts]
    for name, size in (("host memory", host.memory), ("disk", host.disk)):
        if float(size):
            said = numbers.size(size)
            rows.append((f"{name} for one GPU", f"{float(size):,.0f}", said, "not used"))
    title = f"GPU memory, {numbers.size(held.visible)}"
    spec = figures.filled(
        "Memory",
        [
            MemoryPart(name, x, numbers.size(x), note, tone)
            for (name, x, note), tone in zip(parts, tones, strict=True)
        ],
    )
    return Figure("memory-chart", title, spec, PageTable(("", "bytes", "", ""), rows, (0, 3)))


def sensitivity(answers: ReportData) -> Iterator[Figure | str]:
    """Elasticities of the outputs that are known without the power of a chip."""
    shown = {x.name for x in outputs(answers.estimate, view="sensitivity") if not x.drawn}
    for output in (x for x in known_outputs().values() if x.name in shown):
        title = output.short if output.per else output.title
        slopes = worth(answers.elasticities, answers.asked.model.architecture)
        largest = [e for e in slopes if e.output == output.name][:TOP]
        if not largest:  # dollars where the rent is nothing
            yield f"No number of model, hardware or plan moves the {title}."
            continue
        bars = [
            Bar(named(e.path), e.slope, f"{e.slope:+.2f}", _about(e), e.kinked) for e in largest
        ]
        rows = [
            (named(e.path), f"{e.value:.4g} {e.unit}", f"{e.slope:+.2f}", _change(e.tenth),
             _change(e.double))
            for e in largest
        ]  # fmt: skip
        spec = figures.bars(f"Elasticities of the {title}", bars, "% for 1 % more")
        heads = ("number", "is", "% for 1 % more", "10 % more", "twice")
        head = title[0].upper() + title[1:]
        yield Figure(f"sensitivity-{output.name}", head, spec, PageTable(heads, rows))


def _about(e: Elasticity) -> str:
    return f"{e.value:.4g} {e.unit}; 10 % more: {_change(e.tenth)}, twice: {_change(e.double)}"


def _change(x: float) -> str:
    return "beyond its bounds" if x != x else f"{100 * x:+.3g} %"


def roofline(answers: ReportData) -> Figure:
    """Kernels against what the data sheet allows."""
    chip = answers.asked.hardware.chip
    peaks: dict[float, list[str]] = {}
    for bits, peak in ((16, chip.flops_16), (8, chip.flops_8), (4, chip.flops_4)):
        peaks.setdefault(float(peak), []).append(f"{bits}")
    kernels, rows = [], []
    for stage, each in answers.kernels.items():
        for row in each:
            intensity = float(row["intensity_flop_per_byte"])
            if intensity > 0:
                rate = float(row["flop"]) / float(row["time_us"]) / 1e6
                mfu = digits(100 * row["mfu"])
                what = f"{stage}, {row['kernel']}, {float(row['layers']):g} layers"
                said = f"{what}: {digits(row['time_us'])} us each, MFU {mfu} %"
                kernels.append(KernelPoint(intensity, rate, stage, said))
                rows.append((what, digits(row["time_us"]), digits(intensity), digits(rate), mfu))
    roofs = {f"{' and '.join(bits)} bits": peak for peak, bits in peaks.items()}
    spec = figures.roofline("Roofline", kernels, float(chip.memory_bandwidth), roofs)
    heads = ("kernel", "us", "FLOP/byte", "TFLOP/s", "MFU %")
    return Figure("roofline-chart", "Kernels of a layer on one GPU", spec, PageTable(heads, rows))
