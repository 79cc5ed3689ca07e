"""The page of a report, and its picture: what its template shows, section by section."""

import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple, SupportsFloat

import jax

import infer_jax
from infer_jax.catalog import System
from infer_jax.design.sensitivity import known_outputs
from infer_jax.design.what_ifs import worth
from infer_jax.estimators.known_errors import pools as trust_of_pools
from infer_jax.estimators.registry import variant
from infer_jax.pages import charts, vega
from infer_jax.pages.charts import chart_page
from infer_jax.pages.vega import NOT_USED
from infer_jax.planning import USUAL_TTFT
from infer_jax.planning.fields import degrees_fields, plan_fields
from infer_jax.planning.given import HOURS
from infer_jax.plots.plan_chart import in_words
from infer_jax.plots.plans import plot_plans
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import CACHE, HOST, MEMORY, WEIGHTS, Figure
from infer_jax.results import Section
from infer_jax.results.numbers import digits, size
from infer_jax.results.problems import by_command
from infer_jax.specs import leaves, outputs
from infer_jax.specs.words import name_of, term
from infer_jax.verbs import pictures
from infer_jax.verbs.limits import unlikely_times
from infer_jax.verbs.plan_page import command, lengths_of, plan_command
from infer_jax.verbs.plan_tables import shares
from infer_jax.verbs.report_answers import Report

COMMANDS = ("frontier", "estimate", "memory", "sensitivity")  # verbs that sections name
TOP = 10  # bars of each output's sensitivity
SMALL = 0.005  # elasticities that would read +0.00


class PageFigure(NamedTuple):
    """A chart of a page with its title, and the columns of its rows that are a table, by key.

    ``words``: which columns are not numbers.
    """

    name: str
    title: str
    spec: vega.Spec
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, object]]
    words: Sequence[bool] = (True, False, False, False, False)


def page(report: Report) -> str:
    """The page."""
    systems = [x.system.name for x in report.compared]
    where = report.setup.system.title
    if len(systems) > 1:
        where = f"{', '.join(systems[:-1])} or {systems[-1]}"
    trusts = [c.trusts[0].says for c in report.candidates]
    if report.chart.pooled():
        trusts.append(trust_of_pools())
    if report.frontiers is not None and not report.intervals:
        trusts.append(f"No 80 % interval is known for the plan on {report.setup.system.name}.")
    figures = {
        "time": [*_time(report)],
        "memory": [_memory(report)],
        "sensitivity": [*_sensitivity(report)],
        "roofline": [_roofline(report)],
    }
    specs = {x.name: x.spec for xs in figures.values() for x in xs if isinstance(x, PageFigure)}
    return chart_page(
        report.chart,
        "report.html",
        specs,
        title=f"{report.setup.model.name} on {where}",
        lead=lead(report),
        report=report,
        commands={verb: section_command(report, verb) for verb in COMMANDS},
        trusts=list(dict.fromkeys(trusts)),
        figures=figures,
        command=shlex.join(["infer-jax", *sys.argv[1:]]) if by_command() else "ij.report",
        versions=f"{infer_jax.__version__}, jax {jax.__version__}, "
        f"Python {platform.python_version()}, 64-bit numbers",
        charts=vega.versions(),
        hours=HOURS,
        outputs=outputs(type(report.estimate), view="report"),
        leaves=leaves,
        variant=variant,
        profile=_profile,
        shares=shares,
        in_words=in_words,
    )


def lead(report: Report) -> str:
    """The answer in one sentence, with the runner-up in another."""
    estimate, costs, chosen = report.estimate, report.costs, report.chosen
    system, mark = report.setup.system, report.trust.mark
    between = report.intervals.get("tpot_interval80_ms")
    band = ""
    if between:
        slow, fast = (digits(1e3 / x) for x in reversed(between))
        band = f" (80 % of measured servers: {slow} to {fast})"
    title = system.title.partition(" (")[0]
    title = title if title == system.name else f"{title} ({system.name})"
    plan = f"{chosen.layout}, "
    if report.pooled:
        plan = f"{chosen.pools[0]} for prefill and {chosen.pools[1]} for decode, with "
    return (
        f"{chosen.chips:g} x {title} as {plan}{chosen.batch:.4g} requests in flight in each, serve "
        f"{report.setup.model.name} for {mark}${digits(costs['blended_per_mtok_usd'])} per million "
        f"tokens, in and out, and ${costs['per_month_usd']:,.0f} a month: "
        f"{mark}{digits(estimate.speed)} tokens/s to each request{band}, the first after "
        f"{mark}{_ms(estimate.ttft)}, {mark}{digits(chosen.throughput * chosen.chips, 4)} output "
        f"tokens/s in all. {_verdict(report)}"
    )


def _verdict(report: Report) -> str:
    """Whether the plan meets the limits, and what the next system would cost."""
    chosen, limits = report.chosen, report.question.requirements
    pairs = (("TTFT", limits.ttft), ("TPOT", limits.tpot))
    words = [f"{name} {_ms(x)}" for name, x in pairs if 0.0 < x < float("inf")]
    if report.usual:
        words.insert(0, f"TTFT {USUAL_TTFT:g} s, the usual")
    within = f" within the limits ({', '.join(words)})" if words else ""
    if chosen.excess:
        return f"No plan meets every limit: the nearest breaks {shares(chosen.excess)}."
    others = sorted((c for c in report.candidates if c is not chosen), key=lambda c: c.rank)
    if not others:
        return f"It is{within}." if words else "It fits."
    text = f"Of {len(report.candidates)} systems and formats it is the cheapest{within}"
    able = [c for c in others if not c.excess]
    if able and chosen.usd_per_mtok > 0.0:
        more = able[0].usd_per_mtok / chosen.usd_per_mtok - 1.0
        text += f"; next is {able[0].label} at ${digits(able[0].usd_per_mtok)} ({more:+.0%})"
    unable = [f"{c.label} breaks {shares(c.excess)}" for c in others if c.excess]
    return "; ".join([text, *unable]) + "."


def _ms(seconds: SupportsFloat) -> str:
    return f"{digits(1e3 * float(seconds))} ms"


def section_command(report: Report, verb: str) -> str:
    """The command that answers one section by itself, where a plain plan says it."""
    chosen, engine, question = report.chosen, report.engine, report.question
    if report.pooled and verb in ("estimate", "sensitivity"):
        return ""
    return command(
        verb,
        report.words[chosen.label],
        **lengths_of(question),
        layout=str(chosen.pools[-1].layout),
        batch=chosen.batch,
        estimator=question.estimator,
        max_model_len=engine.context,
        max_num_seqs=engine.sequences,
        max_num_batched_tokens=engine.batched_tokens,
    )


def _time(report: Report) -> Iterator[PageFigure]:
    """Every term of both passes."""
    columns = {"label": "term", "value": "ms", "share": "% of the whole"}
    for title, phase in report.estimate.passes.items():
        total, rows = float(phase.time), []
        for name, t in sorted(phase.terms.items(), key=lambda item: -float(item[1])):
            if float(t) > 1e-3 * total:
                share = f"{100 * float(t) / total:.3g}"
                bar = {"label": term(name), "value": 1e3 * float(t), "text": f"{share} %"}
                rows.append({**bar, "note": _ms(t), "faint": False, "share": share})
        head = f"{title}: {_ms(total)}, MFU {100 * float(phase.mfu):.3g} %"
        spec = charts.bars(f"Time of {title} by term", rows, "milliseconds")
        yield PageFigure(f"time-{title}", head, spec, columns, rows)


def _memory(report: Report) -> PageFigure:
    """What fills the memory of a GPU."""
    memory, host = report.memory, report.setup.hardware.host
    weights = {k: float(x) for k, x in memory.weights.items() if float(x)}
    kinds = ", ".join(f"{k} {size(x)}" for k, x in weights.items())
    tokens = f"{float(memory.tokens):,.0f} tokens, {float(memory.concurrency):.3g} such requests"
    outside = float(memory.visible) - float(memory.budget)
    tones = (WEIGHTS, HOST, MEMORY, CACHE, NOT_USED)
    parts = [
        ("weights", sum(weights.values()), kinds),
        ("activations", float(memory.activations), "the peak of one pass"),
        ("reserve", float(memory.reserve), "context, collectives, graphs"),
        ("KV cache", max(float(memory.available), 0.0), tokens),
        ("not the server's", outside, "beyond the share it uses"),
        ("host memory for one GPU", float(host.memory), "not used"),
        ("disk for one GPU", float(host.disk), "not used"),
    ]
    rows = [
        {"part": name, "gb": x / 1e9, "text": size(x), "note": note, "place": i,
         "bytes": f"{x:,.0f}"}
        for i, (name, x, note) in enumerate(parts)
        if x or i < len(tones)
    ]  # fmt: skip
    columns = {"part": "", "bytes": "bytes", "text": "", "note": ""}
    title, spec = f"GPU memory, {size(memory.visible)}", charts.memory("Memory", rows, tones)
    return PageFigure("memory-chart", title, spec, columns, rows, (True, False, False, True))


def _sensitivity(report: Report) -> Iterator[PageFigure | str]:
    """Elasticities of the outputs that are known without the power of a chip."""
    columns = {"label": "number", "is": "is", "text": "% for 1 % more", "tenth": "10 % more",
               "double": "twice"}  # fmt: skip
    names = {x.name for x in outputs(type(report.estimate), view="sensitivity") if not x.drawn}
    slopes = worth(report.elasticities, report.setup.model.architecture)
    for output in (x for x in known_outputs().values() if x.name in names):
        title = output.short if output.per else output.title
        rows = []
        moves = [e for e in slopes if e.output == output.name and abs(e.slope) >= SMALL]
        for e in moves[:TOP]:
            value, tenth, double = f"{e.value:.4g} {e.unit}", _change(e.tenth), _change(e.double)
            note = f"{value}; 10 % more: {tenth}, twice: {double}"
            bar = {"label": name_of(e.path), "value": e.slope, "text": f"{e.slope:+.2f}"}
            more = {"is": value, "tenth": tenth, "double": double}
            rows.append({**bar, "note": note, "faint": e.is_kinked, **more})
        if not rows:  # dollars where the rent is nothing
            yield f"No number of model, hardware or plan moves the {title}."
            continue
        spec = charts.bars(f"Elasticities of the {title}", rows, "% for 1 % more")
        head = title[0].upper() + title[1:]
        yield PageFigure(f"sensitivity-{output.name}", head, spec, columns, rows)


def _change(x: float) -> str:
    return "beyond its bounds" if x != x else f"{100 * x:+.3g} %"


def _roofline(report: Report) -> PageFigure:
    """Kernels against what the data sheet allows."""
    chip, rows = report.setup.hardware.chip, []
    peaks: dict[float, list[str]] = {}
    for bits, peak in ((16, chip.flops_16), (8, chip.flops_8), (4, chip.flops_4)):
        peaks.setdefault(float(peak), []).append(f"{bits}")
    for stage, kernels in report.kernels.items():
        for row in (x for x in kernels if x["intensity_flop_per_byte"] > 0):
            time, mfu = digits(row["time_us"]), digits(100 * row["mfu"])
            rate = float(row["flop"]) / float(row["time_us"]) / 1e6
            name = f"{stage}, {row['kernel']}, {float(row['layers']):g} layers"
            dot = {"x": float(row["intensity_flop_per_byte"]), "y": rate, "stage": stage}
            what = f"{name}: {time} us each, MFU {mfu} %"
            rows.append({**dot, "what": what, "name": name, "time": time, "mfu": mfu})
    roofs = {f"{' and '.join(bits)} bits": peak for peak, bits in peaks.items()}
    spec = charts.roofline("Roofline", rows, float(chip.memory_bandwidth), roofs)
    columns = {"name": "kernel", "time": "us", "x": "FLOP/byte", "y": "TFLOP/s", "mfu": "MFU %"}
    return PageFigure("roofline-chart", "Kernels of a layer on one GPU", spec, columns, rows)


def _profile(system: System) -> str:
    """The profile of a system: the file, and whether it is shipped."""
    return f"{system.path.name}, shipped" if system.shipped else str(system.path)


@dataclass(frozen=True, repr=False)
class ReportResult(FigureResult):
    """The ``answers`` about one plan, and the page that holds them."""

    answers: Report
    page: str
    written_as = "report"

    def sections(self) -> Iterator[Section]:
        """The answer in a paragraph and where the page is; for JSON all that the page has."""
        report, answer = self.answers, lead(self.answers)
        question, chosen, estimate = report.question, report.chosen, report.estimate
        limits = question.requirements
        yield report.trust.says
        if report.pooled:
            yield trust_of_pools()
        yield answer
        yield from unlikely_times({"ttft": limits.ttft, "tpot": limits.tpot})
        yield {
            **report.setup.names,
            "report": None,
            "answer": answer,
            "estimator": question.estimator,
            "trust": report.trust.fields(),
            "layout": chosen.layout,
            "plan": degrees_fields(chosen.all_degrees),
            "batch": chosen.batch,
            "feasible": bool(estimate.feasible),
            "ttft_ms": 1e3 * estimate.ttft,
            "tpot_ms": 1e3 * estimate.tpot,
            "speed_tokens_per_s": estimate.speed,
            "output_cost_per_mtok_usd": estimate.cost,
            **report.intervals,
            "limits": {"ttft_ms": 1e3 * limits.ttft, "tpot_ms": 1e3 * limits.tpot},
            "costs": report.costs,
            "systems": [
                {
                    **plan_fields(c, total=question.total),
                    "feasible": not c.excess,
                    "batch": c.batch,
                    "cost_per_month_usd": HOURS * c.usd_per_hour,
                    "trust": c.trusts[0].fields(),
                }
                for c in report.candidates
            ],
            "frontiers": [
                {
                    "series": label,
                    **plan_fields(c, total=question.total),
                    "speed_tokens_per_s": 1.0 / c.tpot,
                    "command": plan_command(c, question, report.words[label]),
                }
                for label, front in (report.frontiers or {}).items()
                for c in front
            ],
            "frontier": report.ideal.rows(),
            "launch": {launch.engine: launch.to_dict() for launch in report.launches},
            "notes": report.notes,  # which the page has, and are not printed
        }

    def _figure(self) -> Figure:
        """Speed against dollars of every system and format, the plan and the limit of TPOT."""
        report = self.answers
        compared = [report.systems[c.label] for c in report.candidates]
        formats, rents = [x.model.quantisation for x in compared], pictures.rents(compared)
        facts = report.point.workload, formats, rents, report.question.estimator
        caption = pictures.plans_caption(report.chart, *facts)
        return plot_plans(report.chart, title=report.chart.label, caption=caption)

    def _page(self, figure: Callable[[], Figure]) -> str:
        """The page itself, which has the chart."""
        return self.page

    def _image(self) -> str:
        """Nothing above the page, which has the chart."""
        return ""

    def _repr_html_(self) -> str:
        """The page itself, in a frame whose scripts reach nothing outside of it."""
        frame = 'sandbox="allow-scripts" style="width:100%;height:80vh;border:0"'
        return f'<iframe {frame} srcdoc="{escape(self.page)}"></iframe>'
