"""``ij.report``: one HTML page that answers which system and plan to take, and why."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from infer_jax.catalog import System
from infer_jax.catalog.files import write_text
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.known_errors import pools as trust_of_pools
from infer_jax.pages import vega
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Part
from infer_jax.specs import Hardware
from infer_jax.verbs import inputs, options as opt, pictures
from infer_jax.verbs.asking import verb
from infer_jax.verbs.inputs import HardwareLike
from infer_jax.verbs.limits import long_times
from infer_jax.verbs.option import Option, seconds_of
from infer_jax.verbs.plan_rows import degrees
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy
from infer_jax.verbs.report_answers import Costs, Limits, ReportData, lead
from infer_jax.verbs.report_choice import Options, choose
from infer_jax.verbs.report_page import page
from infer_jax.verbs.report_picture import figure
from infer_jax.verbs.report_plan import answers_of
from infer_jax.verbs.texts import unique_texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class ReportResult(Pictured):
    """The answers about one plan, and the page that holds them, also as a file ``out``."""

    answers: ReportData
    limits: Limits
    page: str
    out: str | None

    def fields(self) -> Mapping[str, object]:
        """The plan with its times and costs, every system, their frontiers, launch commands."""
        answers, (ttft, tpot) = self.answers, self.limits
        chosen, estimate, picked = answers.chosen, answers.estimate, answers.picked
        return {
            **answers.asked.names,
            "report": self.out,
            "answer": lead(answers, self.limits),
            "estimator": answers.name,
            "trust": answers.trusted.fields(),
            "layout": chosen.words,
            "plan": degrees(chosen.degrees),
            "batch": chosen.batch,
            "feasible": bool(estimate.feasible),
            "ttft_ms": 1e3 * estimate.ttft,
            "tpot_ms": 1e3 * estimate.tpot,
            "speed_tokens_per_s": estimate.speed,
            "output_cost_per_mtok_usd": estimate.cost,
            **answers.intervals,
            "limits": {
                "ttft_ms": None if ttft is None else 1e3 * ttft,
                "tpot_ms": None if tpot is None else 1e3 * tpot,
            },
            "costs": costs(answers.costs),
            "systems": [candidate.fields() for candidate in picked.candidates],
            "frontiers": [] if picked.frontiers is None else picked.frontiers.fields(),
            "frontier": answers.rows,
            "launch": {launch.engine: launch.to_dict() for launch in answers.launches},
            "notes": answers.notes,
        }

    def parts(self) -> Iterator[Part]:
        """The answer in a paragraph, and where the page is."""
        yield self.answers.trusted.says
        if isinstance(self.answers.plan, Pools):
            yield trust_of_pools()
        yield lead(self.answers, self.limits)
        yield from long_times(dict(zip(("ttft", "tpot"), self.limits, strict=True)))
        if self.out is not None:
            yield f"Report: {self.out}."

    def _figure(self) -> "Figure":
        """Speed against dollars of every frontier, with the plan."""
        return figure(self.answers)

    def _write(self, out: Path, figure: "Callable[[], Figure]") -> None:
        """Write the page, or its first chart alone."""
        if out.suffix.lower() == ".html":
            write_text(out, self.page)
        else:
            super()._write(out, figure)

    def _shown(self) -> str:
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
            raise refuse("--out", str(out), lacking)
    systems, _ = inputs.systems_of(hardware, None)
    options = Options(
        config=config,
        systems=systems,
        named=all(isinstance(x, str | os.PathLike) for x in (config, *_each(hardware))),
        formats=unique_texts(quant) or [None],
        kv_dtype=kv_dtype,
        price=price,
        total_gpus=total_gpus,
        estimator=estimator,
        set=set,
    )
    for _, _, asked in options.each():
        if inputs.estimator(options.name, asked).searches:
            allowed = "one that takes a split: serving, economics.planned"
            raise refuse("--estimator", options.name, allowed)
    limits = seconds_of(ttft), seconds_of(tpot)
    picked = choose(options, (tp, pp, ep, dp, batch), (isl, osl, prefix), limits)
    work = inputs.workload(isl, osl, prefix, picked.chosen.batch)
    with busy("compiling and evaluating"):
        answers = answers_of(options, work, picked, limits)
    html = page(answers, limits)
    result = ReportResult(answers, limits, html, None if out is None else str(out))
    if out is not None:
        result.draw(out)
    return result


def _each(hardware: HardwareLike | Sequence[HardwareLike]) -> Sequence[HardwareLike]:
    """The systems as they are given."""
    single = isinstance(hardware, str | os.PathLike | System | Hardware)
    return [hardware] if single else hardware  # pyright: ignore[reportReturnType]


def costs(costs: Costs) -> dict[str, object]:
    """What the plan costs, for JSON."""
    return {
        "per_hour_usd": costs.hour,
        "per_month_usd": costs.month,
        "blended_per_mtok_usd": costs.blended,
        "input_per_mtok_usd": costs.into,
        "cached_input_per_mtok_usd": costs.cached,
        "cached_input_tokens": costs.held,
        "output_per_mtok_usd": costs.out,
    }
