"""Pages that lead with the chart of plans: a report, or the chart and its table alone."""

from collections.abc import Mapping

from infer_jax.pages import charts, page, vega
from infer_jax.plots.plan_chart import PlanChart

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {} {}"


def chart_page(
    plans: PlanChart,
    template: str = "plans.html",
    specs: Mapping[str, vega.Spec] | None = None,
    **values: object,
) -> str:
    """A page that leads with the chart of ``plans``, with everything that it needs inside.

    ``specs``: its other charts, by name; ``values``: what its template shows, such as a
    ``title``, a ``lead``, which is the answer, and ``notes``. Charts are in it as data and as
    pictures.

    Raises:
        InputError: a package that pages need is not installed.
    """
    vega.check()
    axes = {
        name: [{"key": axis.key, **charts.channel(name, axis, plans)} for axis in axes]
        for name, axes in (("x", plans.across()), ("y", plans.up()))
    }
    others = dict(specs or {})
    script, library = page.own("page.js"), vega.library()
    return page.render(
        template,
        policy=POLICY.format(page.digest(library), page.digest(script)),
        css=page.own("page.css"),
        library=library,
        script=script,
        data={"tradeoff": {"spec": charts.tradeoff(plans), "axes": axes}, "charts": others},
        plans=plans,
        axes=axes,
        pictures={"tradeoff": charts.tradeoff(plans, still=True), **others},
        **values,
    )
