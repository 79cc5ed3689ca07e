"""The answer of ``report``: the page, and the numbers that it has."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from infer_jax.catalog.files import write_text
from infer_jax.estimators.known_errors import pools as trust_of_pools
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Section
from infer_jax.verbs.limits import unlikely_times
from infer_jax.verbs.plan_columns import degrees_fields, plan_fields
from infer_jax.verbs.plan_page import plan_command
from infer_jax.verbs.report_answers import HOURS, Report
from infer_jax.verbs.report_page import figure, lead


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
                    **plan_fields(c, question),
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
                    **plan_fields(c, question),
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
        """Speed against dollars of every frontier, with the plan."""
        return figure(self.answers)

    def _write(self, out: Path, figure: Callable[[], Figure]) -> None:
        """Write the page, or its first chart alone."""
        if out.suffix.lower() == ".html":
            write_text(out, self.page)
        else:
            super()._write(out, figure)

    def _image(self) -> str:
        """Nothing above the page, which has the chart."""
        return ""

    def _repr_html_(self) -> str:
        """The page itself, in a frame whose scripts reach nothing outside of it."""
        frame = 'sandbox="allow-scripts" style="width:100%;height:80vh;border:0"'
        return f'<iframe {frame} srcdoc="{escape(self.page)}"></iframe>'
