"""The picture of a report: the chart of its page as a file."""

from typing import TYPE_CHECKING

from infer_jax.plots.pictured import dated
from infer_jax.verbs import pictures, plan_dots
from infer_jax.verbs.report_answers import ReportData

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(answers: ReportData) -> "Figure":
    """Speed against dollars of every system and format, the plan and the limit of TPOT.

    Raises:
        InputError: matplotlib is missing.
    """
    return plan_dots.figure(answers.tradeoff, *picture_words(answers))


def picture_words(answers: ReportData) -> tuple[str, str]:
    """Title and caption of the picture, for all systems: requests, formats, rents, estimator."""
    every = [candidate.given for candidate in answers.picked.candidates]
    work = answers.work
    formats = "; ".join(dict.fromkeys(pictures.brief(each.model.quantisation) for each in every))
    said = [
        f"{float(work.isl):,.12g} tokens in, {float(work.osl):,.12g} out",
        f"weights in {formats}",
        pictures.rents(every),
        f"estimator {answers.name}",
    ]
    caption = f"{'; '.join(said)}. {plan_dots.marks(answers.tradeoff)}"
    systems = [each.system.name for each in every]
    return pictures.of_plans(answers.asked.model.name, systems), dated(caption)
