"""``ij.report``: one HTML page that answers which system and plan to take, and why."""

import os
from typing import Annotated

from infer_jax import verbs
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option, unique_texts
from infer_jax.verbs.progress import busy


@verb
def report(
    config: opt.Config,
    hardware: opt.Systems,
    *,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,
    layout: opt.Layout = None,
    enable_expert_parallel: opt.ExpertParallel = False,
    enable_dp_attention: opt.DpAttention = False,
    total_gpus: opt.TotalGpus = None,
    quant: opt.Quants = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,
    osl: opt.Osl = 512,
    prefix: opt.Prefix = 0,
    batch: opt.Batch = None,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    price: opt.Prices = None,
    estimator: opt.EstimatorName = None,
    engine: opt.Engine = None,
    engine_version: opt.EngineVersion = None,
    out: Annotated[opt.Place | None, Option.of("FILE", default="report.html")] = None,
    set: opt.Changes = None,
) -> "verbs.ReportResult":
    """One HTML page: which plan to take, its cost, its commands, why, and what is unknown.

    Several systems and formats are compared, and the plan is the cheapest within the limits.
    ``ttft`` and ``tpot`` are limits: seconds, or a text with a unit such as "30ms"; ``out``: the
    file of the page, .html, or of its first chart alone, .png, .svg or .pdf; none is written where
    none is given.

    Args:
        out: The page, .html, or its first chart: .png, .svg, .pdf.

    Raises:
        InputError: a model or system that cannot be read, a plan that no engine runs, a file that
            cannot be written, a package that is not installed.

    >>> import infer_jax as ij
    >>> report = ij.report("llama-3.1-8b", "h100_sxm", tp=1, batch=16)
    >>> report.page[:15], bool(report.answers.estimate.feasible)
    ('<!doctype html>', True)
    """
    from infer_jax.pages import vega
    from infer_jax.planning import Requirements
    from infer_jax.verbs import inputs, pictures
    from infer_jax.verbs.plan_search import Question
    from infer_jax.verbs.report_answers import choose
    from infer_jax.verbs.report_page import page
    from infer_jax.verbs.requests import read_requests

    vega.check()
    if out is not None:
        pictures.check(out, page=True)
    systems, _ = inputs.systems_of(hardware, None)
    question = Question(
        config,
        systems,
        read_requests(isl, osl, prefix, None, None),
        Requirements.of(ttft=ttft, tpot=tpot, chips=total_gpus),
        formats=unique_texts(quant) or [None],
        kv_dtype=kv_dtype,
        set=set,
        estimator=inputs.estimator_of_engine(estimator, engine) or inputs.BEST,
        rents=inputs.rents_of(price, systems),
        engine_version=engine_version,
        named=all(isinstance(x, str | os.PathLike) for x in inputs.as_list(hardware)),
    )
    degrees = {"tp": tp, "pp": pp, "ep": ep, "dp": dp}
    split = verbs.LayoutOptions.of(layout, degrees, enable_expert_parallel, enable_dp_attention)
    answers = choose(question, split, batch)
    with busy("compiling and evaluating"):
        result = verbs.ReportResult(answers, page(answers))
    if out is not None:
        result.draw(out)
    return result
