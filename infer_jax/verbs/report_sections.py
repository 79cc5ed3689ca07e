"""The charts of a report: frontier, time, memory, elasticities, roofline."""

from collections.abc import Mapping
from typing import SupportsFloat, cast

from infer_jax.design.sensitivity import known_outputs
from infer_jax.pages import charts, page
from infer_jax.pages.charts import Axis, Bar, Curve, Mark, Tier
from infer_jax.results import numbers
from infer_jax.results.numbers import digits
from infer_jax.specs import outputs
from infer_jax.verbs.report_answers import NONE, Answers, again, lead, ms, phases
from infer_jax.verbs.sensitivity_result import worth

TOP = 10  # bars of each output's sensitivity
PER_MILLION = "USD per million output tokens"


def frontier(answers: Answers) -> page.Section:
    """Speed against cost: the frontier, and where the plan is."""
    about = (
        "Each point is a layout and a batch that no other beats in both speed and cost: ideal "
        "hardware, by estimator economics.planned. Rest the pointer on a point for its "
        "configuration. The distance to the plan is what an engine's overheads and its batch cost."
    )
    if not answers.rows:
        return page.Section("frontier", "Speed and cost", about, page.paragraph(answers.nothing))
    marks = [
        Mark(
            _number(row, "speed_tokens_per_s"),
            _number(row, "output_cost_per_mtok_usd"),
            configuration(row),
            int(bool(row["preferred"])),
        )
        for row in answers.rows
    ]
    estimate = answers.estimate
    marks.append(
        Mark(float(estimate.speed), float(estimate.cost), f"the plan: {lead(answers, NONE)}", 2)
    )
    kinds = {0: "frontier", 1: "largest speed cubed over cost", 2: "the plan"}
    axes = Axis("output tokens per second of one request", log=True), Axis(PER_MILLION, log=True)
    line = Curve([(m.x, m.y) for m in marks[:-1]])
    body = charts.scatter("Speed and cost of frontier and plan", marks, kinds, axes, [line])
    return page.Section("frontier", "Speed and cost", about, body + again(answers, "frontier"))


def _number(row: Mapping[str, object], name: str) -> float:
    return float(cast(SupportsFloat, row[name]))


def configuration(row: Mapping[str, object]) -> str:
    """What a point of the frontier is, in one line."""
    split = ", ".join(
        f"{name.upper()} {digits(_number(row, name))}" for name in ("tp", "pp", "ep") if name in row
    )
    return (
        f"{digits(_number(row, 'gpus'), 4)} GPUs ({split}), "
        f"batch {digits(_number(row, 'batch'), 4)}: "
        f"{digits(_number(row, 'speed_tokens_per_s'))} tokens/s, "
        f"${digits(_number(row, 'output_cost_per_mtok_usd'))}/Mtok, "
        f"MFU {digits(100 * _number(row, 'mfu'))} %, "
        f"bound by {row['binds']}"
    )


def time(answers: Answers) -> page.Section:
    """Every term of both passes."""
    body = ""
    for title, phase in phases(answers):
        whole = float(phase.time)
        terms = sorted(phase.terms.items(), key=lambda item: -float(item[1]))
        rows = [
            Bar(name, 1e3 * float(t), f"{100 * float(t) / whole:.3g} %", f"{name}: {ms(t)}")
            for name, t in terms
            if float(t) > 1e-6 * whole
        ]
        body += page.heading(f"{title}: {ms(whole)}, MFU {100 * float(phase.mfu):.3g} %")
        body += charts.bars(f"Time of {title} by term", rows, "milliseconds")
    about = (
        "Every term of the pass over one prompt and of one token for all requests. Terms that "
        "overlap add up to more than the whole."
    )
    return page.Section("time", "Where the time goes", about, body + again(answers, "estimate"))


def memory(answers: Answers) -> page.Section:
    """What fills each memory of a GPU."""
    held, host = answers.held, answers.asked.hardware.host
    weights = {k: float(x) for k, x in held.weights.items() if float(x)}
    cache = max(float(held.available), 0.0)
    kept = f"{float(held.tokens):,.0f} tokens, {float(held.concurrency):.3g} such requests"
    kinds = ", ".join(f"{k} {numbers.size(x)}" for k, x in weights.items())
    beyond = float(held.visible) - float(held.budget)
    parts = [
        ("weights", sum(weights.values()), kinds),
        ("activations", float(held.activations), "the peak of one pass"),
        ("reserve", float(held.reserve), "context, collectives, graphs"),
        ("cache", cache, kept),
        ("not the server's", beyond, "beyond the share it may use"),
    ]
    named = [(k, size, f"{k}: {numbers.size(size)}, {what}") for k, size, what in parts]
    rows = [Tier(f"GPU memory, {numbers.size(held.visible)}", float(held.visible), named)]
    for name, size in (("host memory", host.memory), ("disk", host.disk)):
        if float(size):
            rows.append(
                Tier(f"{name} for one GPU, {numbers.size(size)}: not used", float(size), [])
            )
    short = "" if held.fits else f" It does not fit: {numbers.size(-held.slack)} short."
    about = (
        f"One GPU of the plan as a vLLM server divides it, for requests of up to "
        f"{float(answers.engine.context):g} tokens.{short}"
    )
    table = page.table(
        ("", "bytes", ""), [(k, f"{x:,.0f}", numbers.size(x)) for k, x, _ in parts], (0,)
    )
    body = charts.tiers("Memory", rows) + table + again(answers, "memory")
    return page.Section("memory", "Memory by tier", about, body)


def sensitivity(answers: Answers) -> page.Section:
    """Elasticities of the outputs that are known without the power of a chip."""
    body, shown = "", {x.name for x in outputs(answers.estimate, view="sensitivity") if not x.drawn}
    for output in (x for x in known_outputs().values() if x.name in shown):
        title = output.short if output.per else output.title
        slopes = worth(answers.elasticities, answers.asked.model.architecture)
        largest = [e for e in slopes if e.output == output.name][:TOP]
        rows = [
            Bar(
                e.path.replace("arch.blocks.*.", "arch."),
                e.slope,
                f"{e.slope:+.2f}",
                f"{e.path} is {e.value:.4g} {e.unit}; 10 % more: {_change(e.tenth)}, twice: "
                f"{_change(e.double)}",
                faint=e.kinked,
            )
            for e in largest
        ]
        body += page.heading(title[0].upper() + title[1:])
        if not rows:  # dollars where the rent is nothing
            body += page.paragraph(f"No number of model, hardware or plan moves the {title}.")
            continue
        body += charts.bars(f"Elasticities of the {title}", rows, "% for 1 % more of the number")
    about = (
        "What 1 % more of a number does, everything else held. Lighter bars stand at a maximum "
        "or a whole number, where the two sides differ. Coefficients of the estimator are left "
        "out: nobody can buy them."
    )
    body += again(answers, "sensitivity")
    return page.Section("sensitivity", "What would help", about, body)


def _change(x: float) -> str:
    return "beyond its bounds" if x != x else f"{100 * x:+.3g} %"


def roofline(answers: Answers) -> page.Section:
    """Kernels against what the data sheet allows."""
    chip = answers.asked.hardware.chip
    bandwidth = float(chip.memory_bandwidth)
    marks = [
        Mark(
            float(row["intensity_flop_per_byte"]),
            float(row["flop"]) / float(row["time_us"]) / 1e6,
            f"{stage}, {row['kernel']}, {float(row['layers']):g} layers: "
            f"{digits(row['time_us'])} us each, MFU {digits(100 * row['mfu'])} %",
            kind,
        )
        for kind, stage in ((0, "prefill"), (1, "decode"))
        for row in answers.kernels[stage]
        if float(row["intensity_flop_per_byte"]) > 0
    ]
    low = min((m.x for m in marks), default=1.0) / 2
    roofs = {}
    for bits, peak in ((16, chip.flops_16), (8, chip.flops_8), (4, chip.flops_4)):
        roofs.setdefault(float(peak), []).append(f"{bits}")
    high = 4 * max([m.x for m in marks] + [peak / bandwidth for peak in roofs])
    curves = [
        Curve(
            [(low, low * bandwidth / 1e12), (peak / bandwidth, peak / 1e12), (high, peak / 1e12)],
            dashed=i > 0,
            label=f"{' and '.join(bits)} bits",
        )
        for i, (peak, bits) in enumerate(roofs.items())
    ]
    axes = Axis("FLOP per byte of memory moved", log=True), Axis("TFLOP/s of one GPU", log=True)
    measured = bool(answers.asked.system.coefficients.get("kernels"))
    about = (
        "Kernels of one layer on one GPU, by estimator kernels: on the slope memory binds, under "
        "the flat roof arithmetic. Roofs are of the data sheet; "
        + (
            "the distance from them is what fitted kernels of this chip lose."
            if measured
            else "the profile has no measured kernels, so that all of them reach the roof."
        )
    )
    body = charts.scatter("Roofline", marks, {0: "prefill", 1: "decode"}, axes, curves)
    return page.Section("roofline", "Roofline", about, body)
