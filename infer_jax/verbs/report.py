"""``ij.report``: one HTML page that answers which system and plan to take, and why."""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from infer_jax.catalog import System
from infer_jax.catalog.files import write_text
from infer_jax.estimators.known_errors import pools as trust_of_pools
from infer_jax.pages import vega
from infer_jax.planning import Choice, Degrees, Requirements
from infer_jax.plots.rendering import FigureResult
from infer_jax.results import Section
from infer_jax.specs import Hardware
from infer_jax.verbs import inputs, options as opt, pictures
from infer_jax.verbs.asking import verb
from infer_jax.verbs.limits import long_times
from infer_jax.verbs.option import Option, either, seconds_of
from infer_jax.verbs.plan_columns import degrees_fields, plan_fields
from infer_jax.verbs.plan_page import plan_command
from infer_jax.verbs.plan_search import Question
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy
from infer_jax.verbs.report_answers import HOURS, Report, ReportSystem
from infer_jax.verbs.report_choice import choose
from infer_jax.verbs.report_page import figure, lead, page
from infer_jax.verbs.requests import requested
from infer_jax.verbs.texts import unique_texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class ReportResult(FigureResult):
    """The ``answers`` about one plan, and the page that holds them, also as a file ``out``."""

    answers: Report
    page: str
    out: str | None

    def sections(self) -> Iterator[Section]:
        """The answer in a paragraph and where the page is; for JSON all that the page has."""
        report, answer = self.answers, lead(self.answers)
        question, chosen, estimate = report.question, report.chosen, report.estimate
        limits = question.requirements
        yield report.system.trust.says
        if report.pooled:
            yield trust_of_pools()
        yield answer
        yield from long_times({"ttft": limits.ttft, "tpot": limits.tpot})
        if self.out is not None:
            yield f"Report: {self.out}."
        yield {
            **report.given.names,
            "report": self.out,
            "answer": answer,
            "estimator": question.estimator,
            "trust": report.system.trust.fields(),
            "layout": chosen.layout,
            "plan": degrees_fields(_degrees(chosen)),
            "batch": chosen.batch,
            "feasible": bool(estimate.feasible),
            "ttft_ms": 1e3 * estimate.ttft,
            "tpot_ms": 1e3 * estimate.tpot,
            "speed_tokens_per_s": estimate.speed,
            "output_cost_per_mtok_usd": estimate.cost,
            **report.intervals,
            "limits": {"ttft_ms": 1e3 * limits.ttft, "tpot_ms": 1e3 * limits.tpot},
            "costs": report.costs,
            "systems": [_system_fields(c, report.systems[c.label]) for c in report.candidates],
            "frontiers": [
                _frontier_fields(c, report)
                for front in (report.frontiers or {}).values()
                for c in front
            ],
            "frontier": report.ideal.rows(),
            "launch": {launch.engine: launch.to_dict() for launch in report.launches},
            "notes": report.notes,  # which the page has, and are not printed
        }

    def _figure(self) -> "Figure":
        """Speed against dollars of every frontier, with the plan."""
        return figure(self.answers)

    def _write(self, out: Path, figure: "Callable[[], Figure]") -> None:
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


@verb
def report(
    config: opt.Config,
    hardware: opt.Systems,
    *,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,
    total_gpus: opt.TotalGpus = None,
    quant: opt.Quants = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,
    osl: opt.Osl = 512,
    prefix: opt.Prefix = 0,
    batch: opt.Batch = None,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    out: Annotated[
        opt.Place | None,
        Option(
            "The page, .html, or its first chart: .png, .svg, .pdf.", "FILE", default="report.html"
        ),
    ] = None,
    set: opt.Changes = None,
) -> ReportResult:
    """One HTML page: which plan to take, its cost, its commands, why, and what is unknown.

    Several systems and formats are compared, and the plan is the cheapest within the limits.
    ``ttft`` and ``tpot`` are limits: seconds, or a text with a unit such as "30ms"; ``out``: the
    file of the page, .html, or of its first chart alone, .png, .svg or .pdf; none is written where
    none is given.

    Raises:
        InputError: a model or system that cannot be read, a plan that no engine runs, a file that
            cannot be written, a package that is not installed.

    >>> import infer_jax as ij
    >>> report = ij.report("llama-3.1-8b", "h100_sxm", tp=1, batch=16)
    >>> report.page[:15], bool(report.answers.estimate.feasible)
    ('<!doctype html>', True)
    """
    vega.check()
    if out is not None:
        pictures.check(out, otherwise="")
        if Path(out).suffix.lower() != ".html" and (lacking := pictures.missing()):
            raise refuse("out", str(out), lacking)
    systems, _ = inputs.systems_of(hardware, None)
    name, limits = estimator or inputs.BEST, (seconds_of(ttft), seconds_of(tpot))
    requirements = Requirements(
        ttft=either(limits[0], math.inf),
        tpot=either(limits[1], math.inf),
        chips=either(total_gpus, math.inf),
        usual_ttft=limits[0] is None,
    )
    question = Question(
        config,
        systems,
        requested(isl, osl, prefix, None, None),
        requirements,
        formats=unique_texts(quant) or [None],
        kv_dtype=kv_dtype,
        set=set,
        estimator=name,
        price=price,
    )
    for _, form, (system, *_) in question.series():
        given = question.read(system, form)
        if inputs.estimator(name, given).searches:
            allowed = "one that takes a split: serving, economics.planned"
            raise refuse("estimator", name, allowed)
        inputs.check_context(given.model, question.requests.work)
    single = isinstance(hardware, str | os.PathLike | System | Hardware)
    names = (config, *([hardware] if single else hardware))
    commands = all(isinstance(x, str | os.PathLike) for x in names)
    answers = choose(question, (tp, pp, ep, dp, batch), commands=commands)
    with busy("compiling and evaluating"):
        result = ReportResult(answers, page(answers), None if out is None else str(out))
    if out is not None:
        result.draw(out)
    return result


def _degrees(chosen: Choice) -> Degrees:
    """All degrees of the plan, also those at their defaults."""
    first, last = chosen.pools[0], chosen.pools[-1]
    if len(chosen.pools) == 1:
        return {**last.layout._asdict(), "replicas": last.copies}
    prefill = {**first.layout._asdict(), "instances": first.copies, "batch": first.batch}
    return {"prefill": prefill, "decode": {**last.layout._asdict(), "instances": last.copies}}


def _system_fields(c: Choice, system: ReportSystem) -> dict[str, object]:
    """The plan to take on a system, for JSON."""
    return {
        "hardware": system.given.system.name,
        "formats": system.given.model.quantisation,
        "feasible": not c.excess,
        "broken": dict(c.excess),
        "layout": c.layout,
        "gpus": c.chips,
        "batch": c.batch,
        "ttft_ms": 1e3 * c.ttft,
        "tpot_ms": 1e3 * c.tpot,
        "throughput_per_gpu_tokens_per_s": c.throughput,
        "blended_cost_per_mtok_usd": c.usd_per_mtok,
        "cost_per_hour_usd": c.usd_per_hour,
        "cost_per_month_usd": HOURS * c.usd_per_hour,
        "trust": system.trust.fields(),
    }


def _frontier_fields(c: Choice, report: Report) -> dict[str, object]:
    """A plan of a frontier for JSON, with its series and the command that computes it."""
    question, trust = report.question, report.systems[c.label].trust
    borrowed, total = trust.borrowed_from, question.total
    return {
        "series": c.label,
        **plan_fields(c, "USD", total, borrowed=borrowed, intervals=c.intervals),
        "speed_tokens_per_s": 1.0 / c.tpot,
        "command": plan_command(c, question, report.words[c.label]),
    }
