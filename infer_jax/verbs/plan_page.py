"""The page of plans: their chart to point into, a series for each system and format."""

import os
from pathlib import Path

import numpy as np

from infer_jax.pages.decision import alone
from infer_jax.pages.tradeoff import Plotted, Tradeoff, in_words
from infer_jax.results.numbers import digits
from infer_jax.specs import UNBOUNDED
from infer_jax.verbs import plan_picture
from infer_jax.verbs.plan_search import Plans, Question
from infer_jax.verbs.report_choice import Options
from infer_jax.verbs.report_commands import Words
from infer_jax.verbs.report_systems import Frontiers, tradeoff


def page(question: Question, plans: Plans, title: str, notes: list[str]) -> str:
    """The frontier of every system and format, the plan to take, and the limits.

    Raises:
        InputError: a package that pages need is not installed.
    """
    drawn = shown(question, plans, title)
    lead = _lead(question, plans, drawn)
    said = plan_picture.caption(question, plans, drawn)
    return alone(drawn, title=title, lead=lead, notes=[said, *notes])


def shown(question: Question, plans: Plans, title: str) -> Tradeoff:
    """What page and picture show: plans of every system and format, also beyond the TPOT limit."""
    fronts = Frontiers.of(question, plans.pools, _words(question, plans))
    systems = {
        label: " > ".join(dict.fromkeys(pool.side.name for pool in pools))
        for label, pools in plans.pools.items()
    }
    asked = question.asked
    limits = _known(asked.ttft), _known(asked.tpot)
    drawn = tradeoff(fronts.points(), systems, _chosen(fronts, plans), limits, label=title)
    return drawn._replace(currency=question.money.currency)


def _known(limit: float) -> float | None:
    return limit if np.isfinite(limit) else None


def _chosen(fronts: Frontiers, plans: Plans) -> Plotted | None:
    """The plan to take as the chart shows it; None where no plan keeps the limits."""
    best = plans.best
    if best is None:
        return None
    mine = best.system, best.layout, best.batch
    for label, searched in plans.searched.items():
        formats = plans.pools[label][0].given.model.quantisation
        alike = [c for c in searched.met if (c.system, c.layout, c.batch) == mine]
        if formats == best.formats and alike:
            return fronts.plotted(label, alike[0])
    return None


def _lead(question: Question, plans: Plans, shown: Tradeoff) -> str:
    """The plan to take in a sentence."""
    best = plans.best
    if best is None or shown.chosen is None:
        return "No plan meets every limit: the chart has what comes nearest on each system."
    money = f"{digits(best.usd_per_mtok)} {question.money.currency} per million tokens, in and out"
    where = shown.plans[shown.chosen].series
    return (
        f"{in_words(where)}: {in_words(best.layout)} on {best.chips:g} GPUs answers "
        f"{digits(1.0 / best.tpot)} tokens/s to each of {best.batch:g} requests in "
        f"flight an instance, with a TTFT of {digits(1e3 * best.ttft)} ms, for {money}."
    )


def _words(question: Question, plans: Plans) -> dict[str, Words]:
    """Options of the command of each plan, by label; none where a command would say less."""
    target, tried, money = question.target, question.tried, question.money
    said = isinstance(target.config, str | os.PathLike) and all(
        x.path != Path() for x in question.systems
    )
    usual = money.currency == "USD" and money.region == 1.0 and question.decoding is None
    whole = list(tried.chunks) == [UNBOUNDED] and question.total is not None
    plain = usual and question.drafts is None and not question.requests.work.lengths
    options = Options(
        config=target.config,
        systems=question.systems,
        named=said and plain and whole,
        formats=target.formats,
        kv_dtype=target.kv_dtype,
        price=money.price,
        total_gpus=question.total,
        estimator=tried.estimator,
        set=target.set,
    )
    return {label: options.words(given.system, form) for label, form, given in options.each()}
