"""``ij.report``: one HTML page about one plan, with the source of each number."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, SupportsFloat, cast

import numpy as np

from infer_jax.catalog.files import write_text
from infer_jax.results import Part, Result
from infer_jax.verbs import inputs, pictures
from infer_jax.verbs.asking import verb
from infer_jax.verbs.checks import Time, read
from infer_jax.verbs.inputs import HardwareLike, ModelLike
from infer_jax.verbs.limits import long_times
from infer_jax.verbs.plan_rows import degrees
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy
from infer_jax.verbs.report_answers import Answers, Limits, lead
from infer_jax.verbs.report_page import page
from infer_jax.verbs.report_plan import Options, answers_of, choose

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class ReportResult(Result):
    """The answers about one plan, and the page that holds them, also as a file ``out``."""

    answers: Answers
    limits: Limits
    page: str
    out: str | None

    def fields(self) -> Mapping[str, object]:
        """The plan with its times and cost, the frontier, launch commands and notes."""
        answers = self.answers
        chosen, estimate = answers.chosen, answers.estimate
        return {
            **answers.asked.names,
            "report": self.out,
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
            "frontier": answers.rows,
            "launch": {launch.engine: launch.to_dict() for launch in answers.launches},
            "notes": answers.notes,
        }

    def parts(self) -> Iterator[Part]:
        """The answer in a paragraph, and where the page is."""
        yield self.answers.trusted.says
        yield lead(self.answers, self.limits)
        yield from long_times(dict(zip(("ttft", "tpot"), self.limits, strict=True)))
        if self.out is not None:
            yield f"Report: {self.out}."

    def plot(self, out: str | os.PathLike[str] | None = None) -> "Figure":
        """Speed against cost of the frontier and of the plan; written to ``out`` if given.

        Raises:
            InputError: matplotlib is not installed; a file that cannot be written.
        """
        from infer_jax.plots import Curve, Points, plot_frontier
        from infer_jax.plots.style import words

        answers = self.answers
        estimate, names = answers.estimate, ("speed_tokens_per_s", "output_cost_per_mtok_usd")
        said = words(f"{answers.chosen.words}, batch {answers.chosen.batch:g}")
        mine = Points(*(np.array([float(x)]) for x in (estimate.speed, estimate.cost)))
        curves = {f"the plan, by {answers.name}": Curve(mine, 0, said)}
        if rows := answers.rows:
            columns = ([float(cast(SupportsFloat, row[name])) for row in rows] for name in names)
            ideal = Curve(Points(*map(np.array, columns)))
            curves = {"frontier, by economics.planned": ideal, **curves}
        caption = pictures.caption(
            answers.asked,
            answers.work,
            answers.name,
            "The frontier is of ideal hardware: no layout and batch beats its points in both.",
        )
        title = words(f"{answers.asked.model.name} on {answers.asked.system.title}")
        return plot_frontier(curves, out, title=title, caption=caption)

    def _repr_html_(self) -> str:
        """The page itself, in a frame of its own that runs none of its scripts."""
        frame = "width:100%;height:80vh;border:0"
        return f'<iframe sandbox srcdoc="{escape(self.page)}" style="{frame}"></iframe>'


@verb
def report(
    config: ModelLike,
    hardware: HardwareLike,
    *,
    tp: float | None = None,
    pp: float | None = None,
    ep: float | None = None,
    dp: float = 1,
    total_gpus: float | None = None,
    quant: str | None = None,
    kv_dtype: str | None = None,
    isl: float = 4096,
    osl: float = 512,
    prefix: float = 0,
    batch: float | None = None,
    ttft: Time | None = None,
    tpot: Time | None = None,
    price: float | None = None,
    estimator: str | None = None,
    out: str | os.PathLike[str] | None = None,
    set: str | Sequence[str] | None = None,
) -> ReportResult:
    """One HTML page: frontier, time, memory, sensitivity, roofline, launch commands, sources.

    ``ttft`` and ``tpot`` are limits: seconds, or a text with a unit such as "30ms"; ``out``: the
    file of the page; none is written where none is given.

    Raises:
        InputError: a model or system that cannot be read, a plan that no engine runs, a file that
            cannot be written.

    >>> import infer_jax as ij
    >>> report = ij.report("llama-3.1-8b", "h100_sxm", tp=1, batch=16)
    >>> report.page[:15], bool(report.answers.estimate.feasible)
    ('<!doctype html>', True)
    """
    if out is not None:
        pictures.check(out, (".html",), "")
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    options = Options(config, hardware, quant, kv_dtype, price, total_gpus, estimator, set)
    if inputs.estimator(options.name, asked).searches:
        allowed = "one that takes a split: serving, economics.planned"
        raise refuse("--estimator", options.name, allowed)
    limits = read(ttft), read(tpot)
    chosen = choose(asked, options, (tp, pp, ep, dp, batch), (isl, osl, prefix), limits)
    work = inputs.workload(isl, osl, prefix, chosen.batch)
    with busy("compiling and evaluating"):
        answers = answers_of(asked, options, work, chosen)
    html = page(answers, limits)
    if out is not None:
        write_text(Path(out), html)
    return ReportResult(answers, limits, html, None if out is None else str(out))
