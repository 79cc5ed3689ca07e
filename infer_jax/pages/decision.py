"""Pages that lead with the chart of plans: a report, or the chart and its table alone."""

from collections.abc import Mapping

from infer_jax.pages import page, tradeoff, vega
from infer_jax.plots.plan_chart import PlanChart


def report_page(plans: PlanChart, charts: Mapping[str, vega.Spec], **values: object) -> str:
    """The page of a report: the chart of ``plans``, its sections and their ``charts`` by name."""
    return _page("report.html", plans, charts, **values)


def chart_page(plans: PlanChart, *, title: str, lead: str, notes: list[str]) -> str:
    """The chart of ``plans`` with its table, a title, the answer and what was assumed."""
    return _page("plans.html", plans, {}, title=title, lead=lead, notes=notes)


def _page(
    template: str, plans: PlanChart, charts: Mapping[str, vega.Spec], **values: object
) -> str:
    """A page with everything that it needs inside: charts as data and as pictures, scripts."""
    vega.check()
    axes = {
        name: [{"key": axis.key, **tradeoff.channel(name, axis, plans)} for axis in axes]
        for name, axes in (("x", plans.across()), ("y", plans.up()))
    }
    data = {"tradeoff": {"spec": tradeoff.vega_chart(plans), "axes": axes}, "charts": charts}
    script, library = page.own("page.js"), vega.library()
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {} {}"
    return page.render(
        template,
        policy=policy.format(page.digest(library), page.digest(script)),
        css=page.own("page.css"),
        library=library,
        script=script,
        data=page.cleaned(data),
        plans=plans,
        rows=plans.rows(),
        axes=axes,
        pictures={"tradeoff": tradeoff.still_chart(plans), **charts},
        **values,
    )
