"""Plans as the dots of a picture: what is drawn of each, and the words beside the one to take."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from infer_jax.pages.tradeoff import Plotted, Tradeoff, in_words
from infer_jax.results.numbers import digits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from infer_jax.plots import Dot

COPIES = " 2 x TP4 is two instances of four GPUs each."


def figure(shown: Tradeoff, title: str, caption: str) -> "Figure":
    """Every plan that a page shows at first: speed against money, the plan to take, the limit.

    Raises:
        InputError: matplotlib is missing.
    """
    from infer_jax.plots import plot_plans
    from infer_jax.plots.style import words

    up = shown.up()[0]
    series: Mapping[str, list[Dot]] = {
        words(in_words(one.label)): [
            _dot(plan, up.key) for plan in shown.plans if plan.series == one.label and plan.line
        ]
        for one in shown.series
        if one.shown
    }
    tones = {words(in_words(one.label)): one.tone for one in shown.series if one.shown}
    chosen = None
    if shown.chosen is not None:
        plan = shown.plans[shown.chosen]
        chosen = _dot(plan, up.key), words(_said(plan, shown, several=len(series) > 1))
    runs = [(run.numbers.get("speed"), run.numbers.get(up.key)) for run in shown.runs]
    return plot_plans(
        series,
        chosen=chosen,
        least=None if shown.tpot is None else (1e3 / shown.tpot, f"limit: TPOT {shown.tpot:g} ms"),
        measured=[(x, y) for x, y in runs if x is not None and y is not None],
        tones=tones,
        cost=up.title,
        title=words(title),
        caption=words(caption),
    )


def marks(shown: Tradeoff) -> str:
    """What marks, the grey side and bands of the picture are, in sentences."""
    said = "Every mark is a plan that no other of its system, format and kind beats in both"
    if shown.ttft is not None:
        said += f" within a TTFT of {shown.ttft:g} ms"
    slow = "" if shown.tpot is None else "grey: slower than the limit"
    parts = [said, slow, f"shaded: {shown.band()}" if shown.band() else ""]
    copies = any(" x TP" in plan.layout for plan in shown.plans)
    return f"{'; '.join(filter(None, parts))}.{COPIES * copies}"


def _dot(plan: Plotted, key: str) -> "Dot":
    """A plan with its band, where one is known of this money."""
    from infer_jax.plots import Dot

    bands, both = plan.bands, None
    if "speed" in bands and key in bands:
        (fast, slow), (cheap, dear) = bands["speed"], bands[key]
        both = (fast, cheap), (slow, dear)
    return Dot(plan.numbers["speed"] or 0.0, plan.numbers[key] or 0.0, plan.pools, both)


def _said(plan: Plotted, shown: Tradeoff, *, several: bool) -> str:
    """The plan to take in two lines: what it is, and its numbers."""
    up, numbers = shown.up()[0], plan.numbers
    where = f"{in_words(plan.series)}: " if several else ""
    wait = numbers.get("ttft")
    first = "" if wait is None else f", TTFT {digits(wait)} ms"
    return (
        f"{where}{in_words(plan.layout)}, {plan.gpus:g} GPUs\n"
        f"{digits(numbers['speed'] or 0.0)} tokens/s{first}, {_paid(numbers[up.key], up.short)}"
    )


def _paid(number: float | None, unit: str) -> str:
    """Money per million tokens with its unit, the sign of a dollar before it."""
    said = digits(number or 0.0)
    return f"${said}{unit.removeprefix('$')}" if unit.startswith("$") else f"{said} {unit}"
