"""The picture of plans: one series a system or format, the best plan, and the limit of TPOT."""

from typing import TYPE_CHECKING

import numpy as np

from infer_jax.plots.pictured import dated, rent
from infer_jax.verbs import pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infer_jax.pages.tradeoff import Tradeoff
    from infer_jax.verbs.plan_search import Plans, Question


def figure(question: "Question", plans: "Plans") -> "Figure":
    """The frontier of each series, the best plan and the limit of TPOT.

    Raises:
        InputError: matplotlib is missing.
    """
    from infer_jax.verbs import plan_dots  # which answers without a picture need not load
    from infer_jax.verbs.plan_page import shown

    title = titled(plans)
    drawn = shown(question, plans, title)
    return plan_dots.figure(drawn, title, caption(question, plans, drawn))


def titled(plans: "Plans") -> str:
    """The title of the picture and of the page."""
    return pictures.of_plans(plans.model.name, list(plans.systems))


def caption(question: "Question", plans: "Plans", shown: "Tradeoff") -> str:
    """What was asked, in a sentence or two, and what marks and bands are."""
    from infer_jax.verbs.plan_dots import marks

    work, asked, currency = question.requests.work, question.asked, question.money.currency
    load = [
        *([f"at most {asked.chips:g} GPUs"] if np.isfinite(asked.chips) else []),
        *([f"{asked.concurrency:g} requests in flight"] if asked.concurrency else []),
        *([f"{asked.rate:g} requests/s"] if asked.rate else []),
    ]
    formats = "; ".join(pictures.brief(text) for text in plans.formats)
    sides = {pool.side.name: pool.side for pools in plans.pools.values() for pool in pools}
    rents = {name: float(side.hardware.price) for name, side in sides.items()}
    said = [
        f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out",
        *load,
        f"weights in {formats}",
        rent(rents, currency),
        f"estimator {question.tried.estimator}",
    ]
    return dated(f"{'; '.join(said)}. {marks(shown)}")
