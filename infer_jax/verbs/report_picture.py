"""The picture of a report: the chart of its page as a file."""

from typing import TYPE_CHECKING

from infer_jax.plots.pictured import dated
from infer_jax.results.numbers import digits
from infer_jax.verbs.report_answers import Limits, ReportData

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(answers: ReportData, limits: Limits) -> "Figure":
    """Speed against dollars of every system and format, the plan and the limit of TPOT.

    Raises:
        InputError: matplotlib is missing.
    """
    from infer_jax.plots import Dot, plot_plans
    from infer_jax.plots.style import words

    shown, picked, (_, tpot) = answers.tradeoff, answers.picked, limits
    up = shown.up()[0]
    series = {
        words(one.label): [
            Dot(plan.numbers["speed"] or 0.0, plan.numbers[up.key] or 0.0, plan.pools)
            for plan in shown.plans
            if plan.series == one.label and plan.line
        ]
        for one in shown.series
        if one.shown
    }
    assert shown.chosen is not None
    plan = shown.plans[shown.chosen]
    dot = Dot(plan.numbers["speed"] or 0.0, plan.numbers[up.key] or 0.0, plan.pools)
    said = (
        f"{words(picked.label)}: {answers.chosen.words}\n{digits(dot.speed)} tokens/s, "
        f"{digits(dot.cost)} {up.short}"
    )
    title, caption = picture_words(answers)
    return plot_plans(
        series,
        chosen=(dot, said),
        least=None if tpot is None else (1.0 / tpot, f"TPOT of {1e3 * tpot:g} ms"),
        cost=up.title,
        title=words(title),
        caption=words(caption),
    )


def picture_words(answers: ReportData) -> tuple[str, str]:
    """Title and caption of the picture, for all systems: requests, formats, rents, estimator."""
    every = [candidate.given for candidate in answers.picked.candidates]
    work, plans = answers.work, answers.tradeoff.plans
    formats = "; ".join(dict.fromkeys(each.model.quantisation for each in every))
    rents = {each.system.name: f"${float(each.hardware.price):g}" for each in every}
    rent = ", ".join(f"{name} {price}" for name, price in rents.items())
    caption = (
        f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out; {formats}; an hour of a "
        f"GPU: {rent}; estimator {answers.name}. Every mark is a plan that no other of its system "
        "and kind beats in both"
    )
    if answers.tradeoff.ttft is not None:
        caption += f" within a TTFT of {answers.tradeoff.ttft:g} ms"
    caption += "; hollow: pools that prefill and decode" * any(plan.pools for plan in plans)
    caption += "; shaded: 80 % of measured servers" * any(bool(plan.bands) for plan in plans)
    return f"{answers.asked.model.name}: what serves how fast for how much", dated(f"{caption}.")
