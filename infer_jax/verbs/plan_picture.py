"""The picture of plans: one series a system or format, the best plan, and the limit of TPOT."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from infer_jax.planning import Choice
from infer_jax.plots.pictured import dated
from infer_jax.results.numbers import digits
from infer_jax.verbs import inputs, pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infer_jax.verbs.plan_search import Plans, Question


def figure(
    series: Mapping[str, Sequence[Choice]],
    question: "Question",
    plans: "Plans",
) -> "Figure":
    """The frontier of each series, the best plan and the limit of TPOT.

    Raises:
        InputError: matplotlib is missing.
    """
    from infer_jax.plots import Dot, plot_plans
    from infer_jax.plots.style import words

    factors = _bands(plans)

    def dot(c: Choice) -> Dot:
        pools = c.mode == "disaggregated"  # bands are of whole servers
        ends = None if pools else factors.get(c.system)
        band = None if ends is None else (1.0 / (c.tpot * ends[1]), 1.0 / (c.tpot * ends[0]))
        return Dot(1.0 / c.tpot, c.usd_per_mtok, pools, band)

    asked, best, currency = question.asked, plans.best, question.money.currency
    chosen = None
    if best is not None:
        many = f"{words(best.system)}: " if len(series) > 1 else ""
        what = (
            f"{many}{best.layout}, {best.chips:g} GPUs\n{digits(1.0 / best.tpot)} tokens/s, "
            f"TTFT {digits(1e3 * best.ttft)} ms, {digits(best.usd_per_mtok)} {currency}/Mtok"
        )
        chosen = dot(best), what
    finite = np.isfinite(asked.tpot)
    least = (1.0 / asked.tpot, f"TPOT of {1e3 * asked.tpot:g} ms") if finite else None
    return plot_plans(
        {words(name): [dot(c) for c in each] for name, each in series.items()},
        chosen=chosen,
        least=least,
        cost=f"{currency} per million tokens, in and out",
        title=words(titled(plans)),
        caption=words(caption(question, plans, banded=bool(factors))),
    )


def titled(plans: "Plans") -> str:
    """The title of the picture and of the page."""
    return f"{plans.model.name}: what serves how fast for how much"


def _bands(plans: "Plans") -> dict[str, Sequence[float]]:
    """Measured over predicted TPOT of 80 % of runs, by system: the profile's, or of its kind."""
    found: dict[str, Sequence[float]] = {}
    for pools in plans.pools.values():
        if len({pool.side.name for pool in pools}) == 1:
            side, given = pools[0].side, pools[0].given
            shipped = inputs.shipped_errors("serving", side.serving, given)
            ends = inputs.bands(plans.systems[side.name], 1e-3, 1e-3, shipped)
            if ends:
                found[side.name] = ends["tpot_interval80_ms"]
    return found


def caption(question: "Question", plans: "Plans", *, banded: bool) -> str:
    """What was asked, in a sentence or two."""
    work, asked = question.requests.work, question.asked
    load = [
        *([f"{asked.chips:g} GPUs"] if np.isfinite(asked.chips) else []),
        *([f"{asked.concurrency:g} requests in flight"] if asked.concurrency else []),
        *([f"{asked.rate:g} requests/s"] if asked.rate else []),
        *([f"TTFT of {1e3 * asked.ttft:g} ms at most"] if np.isfinite(asked.ttft) else []),
    ]
    formats = "; ".join(pictures.brief(text) for text in plans.formats)
    sides = {pool.side.name: pool.side for pools in plans.pools.values() for pool in pools}
    rents = ", ".join(f"{name} {float(x.hardware.price):.4g}" for name, x in sides.items())
    return dated(
        f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out; "
        f"{', '.join(load)}; weights in {formats}; {question.money.currency} an hour and GPU: "
        f"{rents}; estimator {question.tried.estimator}. Every mark is a plan that no other of its "
        "kind and system beats in both; hollow: pools that prefill and decode."
        f"{' Shaded: where 80 % of measured runs are.' if banded else ''}"
    )
