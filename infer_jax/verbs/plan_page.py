"""Plans as a chart: the points of a frontier and their commands, the picture and the page."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import SupportsFloat, cast

import numpy as np

from infer_jax.pages.charts import chart_page
from infer_jax.planning import Choice, bands
from infer_jax.plots.plan_chart import PlanChart, PlanPoint, chart_numbers, in_words
from infer_jax.plots.plans import plot_plans
from infer_jax.plots.rendering import rent
from infer_jax.plots.style import Figure, is_slide
from infer_jax.results.numbers import digits
from infer_jax.specs import UNBOUNDED
from infer_jax.verbs import pictures
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.plan_search import Plans, Question, frontiers

# options that a command names, after those of the model
OF_MODEL = ("hardware", "quant", "kv-dtype", "set")
LENGTHS = ("isl", "osl", "prefix")
POINT = ("price", "engine-version", *LENGTHS, "layout", "batch", "estimator")
OPTIONS = {
    "estimate": POINT,
    "sensitivity": POINT,
    "frontier": ("isl", "osl", "price", "total-gpus"),
    "memory": ("layout", "max-model-len", "max-num-seqs", "max-num-batched-tokens"),
    "plan": ("price", "total-gpus", "engine-version", *LENGTHS, "mode", "ttft", "tpot"),
}
LINE = 76  # letters of a command's line, which a page does not break
Words = Mapping[str, object]  # options that every command of a page has, by name


def figure(plans: Plans) -> Figure:
    """The frontier of each series, the best plan and the limit of TPOT.

    Raises:
        InputError: matplotlib is missing.
    """
    chart, best, title = plan_chart(plans), plans.best, ""
    if is_slide() and best is not None:  # a slide says what was found
        price = f"{digits(best.usd_per_mtok)} {plans.question.currency}/Mtok"
        title = f"{plans.model.name}: {in_words(best.layout)} on {in_words(best.system)}, {price}"
    return plot_plans(chart, title=title or chart.label, caption=_caption(plans, chart))


def page(plans: Plans, notes: list[str]) -> str:
    """The frontier of every system and format, the plan to take, and the limits.

    Raises:
        InputError: a package that pages need is not installed.
    """
    chart, best = plan_chart(plans), plans.best
    if best is None or chart.chosen is None:
        lead = "No plan meets every limit: the chart has what comes nearest on each system."
    else:
        lead = (
            f"{in_words(best.label)}: {in_words(best.layout)} on {best.chips:g} GPUs answers "
            f"{digits(1.0 / best.tpot)} tokens/s to each of {best.batch:g} requests in "
            f"flight an instance, with a TTFT of {digits(1e3 * best.ttft)} ms, for "
            f"{digits(best.usd_per_mtok)} {plans.question.currency} per million tokens, in and out."
        )
    notes = [_caption(plans, chart), *notes]
    return chart_page(chart, title=chart.label, lead=lead, notes=notes)


def plan_chart(plans: Plans) -> PlanChart:
    """What page and picture show: plans of every system and format, also beyond the TPOT limit.

    Where no system has a plan within the other limits, the nearest misses.
    """
    question = plans.question
    setups = {label: search.systems[0].setup for label, search in plans.searches.items()}
    words = words_of(question, setups, question.total)

    def point(c: Choice) -> PlanPoint:
        return plan_point(c, question, words[c.label])

    systems = {label: search.systems for label, search in plans.searches.items()}
    points = [point(c) for front in frontiers(question, systems).values() for c in front]
    points = points or [point(c)._replace(line=False, bands={}) for c in plans.missed]
    names = {
        label: " > ".join(dict.fromkeys(system.side.name for system in pair))
        for label, pair in systems.items()
    }
    best = plans.best and point(plans.best)
    limits = question.requirements.ttft, question.requirements.tpot
    title = pictures.plans_title(plans.model.name, list(plans.systems))
    return PlanChart.of(points, names, best, limits, label=title, currency=question.currency)


def plan_point(c: Choice, question: Question, words: Words) -> PlanPoint:
    """A plan as the chart shows it, with the command that answers it."""
    return PlanPoint(
        series=c.label,
        layout=c.layout,
        gpus=c.chips,
        batch=c.batch,
        numbers={
            **chart_numbers(c.ttft, c.tpot, c.osl, c.usd_per_mtok, c.throughput, c.printed("cost")),
            **({} if c.p99_ttft is None else {"p99_ttft": 1e3 * c.p99_ttft}),
        },
        bands=bands.band_ends(c, arriving=question.requirements.rate is not None),
        pools=c.mode == "disaggregated",
        command=plan_command(c, question, words),
    )


def _caption(plans: Plans, chart: PlanChart) -> str:
    """The requests, limits, formats and rents, and what marks and bands are."""
    question, limits = plans.question, plans.question.requirements
    systems = plans.systems.items()
    rents = rent({name: float(x.side.hardware.price) for name, x in systems}, question.currency)
    more = [
        *([f"at most {limits.chips:g} GPUs"] if np.isfinite(limits.chips) else []),
        *([f"{limits.concurrency:g} requests in flight"] if limits.concurrency else []),
        *([f"{limits.rate:g} requests/s"] if limits.rate else []),
        *(f"{x} of TTFT within {1e3 * t:g} ms" for x, t in limits.tails.items() if np.isfinite(t)),
    ]
    work, estimator = question.requests.work, question.estimator
    return pictures.plans_caption(chart, work, plans.formats, rents, estimator, *more)


def words_of(
    question: Question, setups: Mapping[str, Setup], total: float | None
) -> dict[str, Words]:
    """Options of every command that a page names, by label; none where one would leave some out.

    ``setups``: the first system of each label; ``total``: GPUs, where they are given.
    """
    in_command = (
        question.named
        and isinstance(question.config, str | os.PathLike)
        and all(x.path != Path() for x in question.systems)
        and (question.currency, question.region) == ("USD", 1.0)
        and question.decoding is None
        and question.drafts is None
        and not question.requests.work.lengths
        and list(question.chunks) == [UNBOUNDED]
        and question.total is not None
    )
    if not in_command:
        return {label: {} for label in setups}
    changes = question.set
    return {
        label: {
            "config": str(question.config),
            "hardware": system.name if system.shipped else str(system.path),
            "quant": setup.quant,
            "kv-dtype": question.kv_dtype,
            "price": question.rents.get(system.name),
            "total-gpus": total,
            "engine-version": question.engine_version,
            "set": changes if changes is None or isinstance(changes, str) else list(changes),
        }
        for label, setup in setups.items()
        for system in [setup.system]
    }


def command(verb: str, words: Words, **more: object) -> str:
    r"""A command of this program, its lines no longer than a page shows; "" without ``words``.

    ``more``: values of its other options, of which it takes those that it has.

    >>> command("frontier", {"config": "llama-3.1-8b", "hardware": "h100_sxm"}, isl=2.0, batch=3)
    'infer-jax frontier llama-3.1-8b --hardware h100_sxm --isl 2'
    """
    if not words:
        return ""
    options = {**words, **{name.replace("_", "-"): value for name, value in more.items()}}
    lines = [shlex.join(("infer-jax", verb, str(options["config"])))]
    for name in (*OF_MODEL, *OPTIONS[verb]):
        values = options.get(name)
        for value in values if isinstance(values, list | tuple) else (values,):
            if value is None:
                continue
            word = value if isinstance(value, str) else f"{float(cast(SupportsFloat, value)):.12g}"
            option = shlex.join((f"--{name}", word))
            if len(lines[-1]) + len(option) < LINE:
                lines[-1] += f" {option}"
            else:
                lines.append(f"  {option}")
    return " \\\n".join(lines)


def plan_command(c: Choice, question: Question, words: Words) -> str:
    """The command that answers one plan; "" where no command can name its model.

    ``estimate`` where the plan is of one pool, else the search that puts it first.
    """
    lengths = lengths_of(question)
    if len(c.pools) == 1:
        own = {"layout": c.layout, "batch": c.batch, "estimator": question.estimator}
        return command("estimate", words, **lengths, **own)
    # limits that its times just meet
    limits = {x: f"{1e3 * getattr(c, x) * 1.0005:.5g}ms" for x in ("ttft", "tpot")}
    return command("plan", words, **lengths, total_gpus=question.total, mode=c.mode, **limits)


def lengths_of(question: Question) -> dict[str, object]:
    """The lengths of the requests as options."""
    work = question.requests.work
    return {"isl": work.isl, "osl": work.osl, "prefix": work.prefix if float(work.prefix) else None}
