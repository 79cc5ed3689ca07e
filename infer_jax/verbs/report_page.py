"""The page of a report, and its picture: what its template shows, section by section."""

import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax

import infer_jax
from infer_jax.catalog.systems import profiles_folder
from infer_jax.design.sensitivity import known_outputs
from infer_jax.estimators.known_errors import pools as trust_of_pools
from infer_jax.estimators.registry import variant
from infer_jax.pages import figures, vega
from infer_jax.pages.decision import report_page
from infer_jax.pages.figures import Bar, KernelPoint, MemoryPart
from infer_jax.pages.look import NOT_USED
from infer_jax.plots.names import named
from infer_jax.plots.pictured import dated
from infer_jax.plots.plan_chart import in_words
from infer_jax.plots.plans import marks, plot_plans
from infer_jax.plots.tones import CACHE, HOST, MEMORY, WEIGHTS
from infer_jax.results import Column, Table, scaled, table
from infer_jax.results.numbers import digits, or_unknown, size
from infer_jax.results.terms import term
from infer_jax.results.wording import by_command
from infer_jax.specs import leaves, outputs
from infer_jax.verbs import inputs, pictures
from infer_jax.verbs.plan_columns import shares
from infer_jax.verbs.report_answers import HOURS, ReportData, lead, ms, section_command
from infer_jax.verbs.sensitivity_result import worth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMANDS = ("frontier", "estimate", "memory", "sensitivity")  # verbs that sections name
TOP = 10  # bars of each output's sensitivity


class PageFigure(NamedTuple):
    """A chart of a page, with its title and its numbers as a table."""

    name: str
    title: str
    spec: vega.Spec
    table: Table


def figure(answers: ReportData) -> "Figure":
    """Speed against dollars of every system and format, the plan and the limit of TPOT.

    Raises:
        InputError: matplotlib is missing.
    """
    every = [answers.selection.systems[c.label].given for c in answers.selection.candidates]
    work, systems = answers.work, [given.system.name for given in every]
    formats = dict.fromkeys(pictures.brief(given.model.quantisation) for given in every)
    facts = [
        f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out",
        f"weights in {'; '.join(formats)}",
        pictures.rents(every),
        f"estimator {answers.selection.question.estimator}",
    ]
    title = pictures.of_plans(answers.system.given.model.name, systems)
    caption = dated(f"{'; '.join(facts)}. {marks(answers.chart)}")
    return plot_plans(answers.chart, title=title, caption=caption)


def page(answers: ReportData) -> str:
    """The page."""
    given, work, memory = answers.system.given, answers.work, answers.memory
    names = [x.system.name for x in _every_system(answers)]
    where = f"on {given.system.title}"
    if len(names) > 1:
        where = f"on {', '.join(names[:-1])} or {names[-1]}"
    cached = f", {float(work.prefix):g} tokens of the prompt cached" if float(work.prefix) else ""
    sections = {
        "time": [*_time(answers)],
        "memory": [_memory(answers)],
        "sensitivity": [*_sensitivity(answers)],
        "roofline": [_roofline(answers)],
    }
    charts = [x for each in sections.values() for x in each if isinstance(x, PageFigure)]
    name = answers.selection.question.estimator
    return report_page(
        answers.chart,
        {x.name: x.spec for x in charts},
        title=f"{given.model.name} {where}",
        lead=lead(answers),
        asked=f"Requests of {float(work.isl):g} tokens in and {float(work.osl):g} out{cached}.",
        why=answers.selection.why,
        systems=_systems(answers),
        outputs=_outputs(answers),
        limits=_limits(answers),
        launches=answers.launches,
        costs=_costs(answers),
        commands={verb: section_command(answers, verb) for verb in COMMANDS},
        context=f"{float(answers.engine.context):g}",
        short="" if memory.fits else size(-memory.slack),
        measured=bool(given.system.coefficients.get("kernels")),
        trusts=_trusts(answers),
        assumed=list(dict.fromkeys(answers.notes)),
        figures=sections,
        sources=_sources(answers),
        hardware=_facts(answers.system.given.hardware, lambda path, _: _source(given, path)),
        coefficients=_facts(
            answers.estimator, lambda path, meta: _coefficient(given, name, path, meta)
        ),
        name=name,
    )


def _every_system(answers: ReportData) -> list[inputs.Given]:
    """The systems that are compared, each in its last format."""
    selection = answers.selection
    every = [selection.systems[c.label].given for c in selection.candidates]
    return list({given.system.name: given for given in every}.values())


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = (0,)
) -> Table:
    """A table of a page; ``words``: the columns that are not numbers."""
    return Table([Column(x, left=i in words) for i, x in enumerate(heads)], rows)


def _outputs(answers: ReportData) -> Table:
    """Outputs of the plan, with the range of measured servers where it is known."""
    rows = []
    for x in outputs(answers.estimate, view="report"):
        value = x.value(answers.estimate, answers.system.given.hardware.power)
        ends = answers.intervals.get(f"{x.name}_interval80_ms")
        between = "" if ends is None else " to ".join(digits(end) for end in ends)
        number = answers.system.trust.mark + or_unknown(value, 4)
        rows.append((x.title, number, x.printed_unit, between))
    heads = ("answer", "value", "unit", "80 % of measured servers")
    count = 4 if answers.intervals else 3
    return _table(heads[:count], [row[:count] for row in rows], (0, 2))


def _limits(answers: ReportData) -> Table:
    """Limits of both passes."""
    rows = []
    for title, phase in (
        ("prefill", answers.estimate.prefill),
        ("decode", answers.estimate.decode),
    ):
        for name, limit in phase.limits.items():
            need, capacity = float(limit.need), float(limit.capacity)
            if need or capacity:
                text = size if name.endswith("memory") else digits
                verdict = "met" if need <= capacity else "broken"
                rows.append((f"{name}, {title}", text(need), text(capacity), verdict))
    return _table(("limit", "need", "capacity", ""), rows, (0, 3))


def _systems(answers: ReportData) -> Table:
    """The plan to take on each system in each format, the cheapest first."""
    systems = answers.selection.systems

    milliseconds = scaled(1e3)
    columns = (
        Column("system", "", lambda c: f"{systems[c.label].trust.mark} {c.label}".strip()),
        Column("plan", "", lambda c: in_words(c.layout)),
        Column("GPUs", "", "chips", "{:g}".format),
        Column("TTFT ms", "", "ttft", milliseconds),
        Column("TPOT ms", "", "tpot", milliseconds),
        Column("tokens/s per user", "", lambda c: 1.0 / c.tpot),
        Column("tokens/s/GPU", "", "throughput"),
        Column("$/Mtok", "", "usd_per_mtok"),
        Column("$/month", "", lambda c: HOURS * c.usd_per_hour, "{:,.0f}".format),
        Column("limits", "", lambda c: f"breaks {shares(c.excess)}" if c.excess else "met"),
    )
    every = sorted(answers.selection.candidates, key=lambda c: c.rank)
    return table(every, columns, every.index(answers.chosen))


def _costs(answers: ReportData) -> Table:
    """Rent by the hour and the month, and per million tokens."""
    costs, mark, chosen = answers.costs, answers.system.trust.mark, answers.chosen
    rate = chosen.throughput * chosen.chips
    prompts = rate / float(answers.work.osl) * float(answers.work.isl)
    read, written = (f"{HOURS * 3600.0 * x / 1e9:,.4g}" for x in (prompts, rate))
    cached = (
        f"{costs['cached_input_tokens']:g} tokens of each prompt in the cache, the plan as it is"
    )
    per_mtok = (
        ("tokens, in and out", "blended", "at full use"),
        ("input tokens", "input", "not in the cache"),
        ("cached input tokens", "cached_input", cached),
        ("output tokens", "output", ""),
    )
    rows = [
        ("an hour", f"${digits(costs['per_hour_usd'], 4)}", "rent of all GPUs"),
        ("a month", f"${costs['per_month_usd']:,.0f}", f"{HOURS:g} hours"),
        *(
            (f"a million {what}", f"{mark}${digits(costs[f'{key}_per_mtok_usd'])}", note)
            for what, key, note in per_mtok
        ),
        ("tokens a month", f"{read} in, {written} out", "thousand millions, at full use"),
    ]
    return _table(("", "", ""), rows, (0, 2))


def _time(answers: ReportData) -> Iterator[PageFigure]:
    """Every term of both passes."""
    for title, phase in (
        ("prefill", answers.estimate.prefill),
        ("decode", answers.estimate.decode),
    ):
        total = float(phase.time)
        terms = sorted(phase.terms.items(), key=lambda item: -float(item[1]))
        large = [(term(name), float(t)) for name, t in terms if float(t) > 1e-6 * total]
        bars = [Bar(name, 1e3 * t, f"{100 * t / total:.3g} %", ms(t)) for name, t in large]
        rows = [(name, digits(1e3 * t), f"{100 * t / total:.3g}") for name, t in large]
        head = f"{title}: {ms(total)}, MFU {100 * float(phase.mfu):.3g} %"
        spec = figures.bars(f"Time of {title} by term", bars, "milliseconds")
        yield PageFigure(
            f"time-{title}", head, spec, _table(("term", "ms", "% of the whole"), rows)
        )


def _memory(answers: ReportData) -> PageFigure:
    """What fills the memory of a GPU."""
    memory, host = answers.memory, answers.system.given.hardware.host
    weights = {k: float(x) for k, x in memory.weights.items() if float(x)}
    kinds = ", ".join(f"{k} {size(x)}" for k, x in weights.items())
    tokens = f"{float(memory.tokens):,.0f} tokens, {float(memory.concurrency):.3g} such requests"
    outside = float(memory.visible) - float(memory.budget)
    parts = [
        ("weights", sum(weights.values()), kinds, WEIGHTS),
        ("activations", float(memory.activations), "the peak of one pass", HOST),
        ("reserve", float(memory.reserve), "context, collectives, graphs", MEMORY),
        ("KV cache", max(float(memory.available), 0.0), tokens, CACHE),
        ("not the server's", outside, "beyond the share it uses", NOT_USED),
    ]
    rows = [(name, f"{x:,.0f}", size(x), note) for name, x, note, _ in parts]
    for name, x in (("host memory", host.memory), ("disk", host.disk)):
        if float(x):
            rows.append((f"{name} for one GPU", f"{float(x):,.0f}", size(x), "not used"))
    bars = [MemoryPart(name, x, size(x), note, tone) for name, x, note, tone in parts]
    title = f"GPU memory, {size(memory.visible)}"
    table = _table(("", "bytes", "", ""), rows, (0, 3))
    return PageFigure("memory-chart", title, figures.filled("Memory", bars), table)


def _sensitivity(answers: ReportData) -> Iterator[PageFigure | str]:
    """Elasticities of the outputs that are known without the power of a chip."""
    names = {x.name for x in outputs(answers.estimate, view="sensitivity") if not x.drawn}
    slopes = worth(answers.elasticities, answers.system.given.model.architecture)
    for output in (x for x in known_outputs().values() if x.name in names):
        title = output.short if output.per else output.title
        largest = [e for e in slopes if e.output == output.name][:TOP]
        if not largest:  # dollars where the rent is nothing
            yield f"No number of model, hardware or plan moves the {title}."
            continue
        bars, rows = [], []
        for e in largest:
            slope, value = f"{e.slope:+.2f}", f"{e.value:.4g} {e.unit}"
            note = f"{value}; 10 % more: {_change(e.tenth)}, twice: {_change(e.double)}"
            bars.append(Bar(named(e.path), e.slope, slope, note, e.kinked))
            rows.append((named(e.path), value, slope, _change(e.tenth), _change(e.double)))
        spec = figures.bars(f"Elasticities of the {title}", bars, "% for 1 % more")
        heads = ("number", "is", "% for 1 % more", "10 % more", "twice")
        head = title[0].upper() + title[1:]
        yield PageFigure(f"sensitivity-{output.name}", head, spec, _table(heads, rows))


def _change(x: float) -> str:
    return "beyond its bounds" if x != x else f"{100 * x:+.3g} %"


def _roofline(answers: ReportData) -> PageFigure:
    """Kernels against what the data sheet allows."""
    chip = answers.system.given.hardware.chip
    peaks: dict[float, list[str]] = {}
    for bits, peak in ((16, chip.flops_16), (8, chip.flops_8), (4, chip.flops_4)):
        peaks.setdefault(float(peak), []).append(f"{bits}")
    kernels, rows = [], []
    for stage, each in answers.kernels.items():
        for row in each:
            intensity = float(row["intensity_flop_per_byte"])
            if intensity > 0:
                rate = float(row["flop"]) / float(row["time_us"]) / 1e6
                time, mfu = digits(row["time_us"]), digits(100 * row["mfu"])
                what = f"{stage}, {row['kernel']}, {float(row['layers']):g} layers"
                note = f"{what}: {time} us each, MFU {mfu} %"
                kernels.append(KernelPoint(intensity, rate, stage, note))
                rows.append((what, time, digits(intensity), digits(rate), mfu))
    roofs = {f"{' and '.join(bits)} bits": peak for peak, bits in peaks.items()}
    spec = figures.roofline("Roofline", kernels, float(chip.memory_bandwidth), roofs)
    table = _table(("kernel", "us", "FLOP/byte", "TFLOP/s", "MFU %"), rows)
    return PageFigure("roofline-chart", "Kernels of a layer on one GPU", spec, table)


def _trusts(answers: ReportData) -> list[str]:
    """What is known of the errors on each system, and what is borrowed."""
    selection = answers.selection
    says = [selection.systems[c.label].trust.says for c in selection.candidates]
    if answers.chart.pooled():
        says.append(f"{trust_of_pools()} Their intervals are not known, and not drawn.")
    if selection.frontiers is not None and not answers.intervals:
        name = answers.system.given.system.name
        says.append(f"No 80 % interval is known for the plan on {name}.")
    return list(dict.fromkeys(says))


def _sources(answers: ReportData) -> Table:
    """What answered, from which files, by which estimators."""
    model, name = answers.system.given.model, answers.selection.question.estimator
    command = shlex.join(["infer-jax", *sys.argv[1:]]) if by_command() else "ij.report"
    used = "every plan" if answers.selection.frontiers else "the plan"
    versions = f"jax {jax.__version__}, Python {platform.python_version()}, 64-bit numbers"
    rows = [
        ("command", command),
        ("infer_jax", f"{infer_jax.__version__}, {versions}"),
        ("model", f"{model.name}: {model.source}"),
        ("formats", model.quantisation),
    ]
    for given in _every_system(answers):
        system = given.system
        shipped = system.path.resolve().parent == profiles_folder().resolve()
        profile = f"{system.path.name}, shipped" if shipped else str(system.path)
        price = f"{float(given.hardware.price):g} USD/h per GPU, {given.price_source}"
        rows += [("hardware", f"{system.title}: profile {profile}"), ("price", price)]
    purposes = {
        name: f"{used}, time and sensitivity",
        "economics.planned": "the frontier of an ideal server",
        "kernels": "the roofline",
    }
    for estimator, purpose in purposes.items():
        about = variant(estimator)
        text = f"{about.summary}; {about.source}. For: {purpose}."
        rows.append((f"estimator {estimator}", text))
    rows += [
        ("memory", "vLLM's own accounting; infer_jax.footprint, docs/memory.md"),
        ("charts", vega.credit()),
    ]
    return _table(("", ""), rows, (0, 1))


def _facts(tree: object, source: Callable[[str, Mapping[str, object]], str]) -> Table:
    """Every number of hardware or an estimator with its source."""
    rows = [
        (path, f"{float(value):.6g}", meta["unit"], source(path, meta))
        for path, meta, value in leaves(tree)  # pyright: ignore[reportArgumentType]
    ]
    return _table(("number", "value", "unit", "source"), rows, (0, 2, 3))


def _source(given: inputs.Given, path: str) -> str:
    if path == "price":
        return given.price_source
    return given.system.sources.get(path, "not in the profile")


def _coefficient(given: inputs.Given, name: str, path: str, meta: Mapping[str, object]) -> str:
    cited = given.system.sources.get(f"{name.partition('.')[0]}.{path}")
    return cited or f"{meta['doc']}; {variant(name).source}"
