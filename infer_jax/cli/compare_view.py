"""How is a comparison printed: answers and terms side by side, or runs and predictions?"""

from collections.abc import Sequence
from typing import Any

from infer_jax.cli import show
from infer_jax.estimators.serving import ServerEstimate
from infer_jax.estimators.trust import BORROWED
from infer_jax.results import numbers
from infer_jax.specs import Output, outputs

SHOWN = 8  # measured runs that are printed; JSON has all
SERVERS = outputs(ServerEstimate, view="compare")  # of which runs measure some


def show_two(report: dict[str, Any], compared: Sequence[Output], notes: list[str]) -> None:
    """Print two estimators' answers to one question."""
    one, two = report["estimators"]
    show.say(
        f"{report['model']} on {report['hardware']}: isl {float(report['isl_tokens']):g}, osl "
        f"{float(report['osl_tokens']):g}, batch {float(report['batch']):g}",
        *(each["trust"]["says"] for each in (one, two)),
        "",
    )
    titles = {x.plain_key: (x.title, x.printed_unit) for x in compared}
    heads = (
        show.Column("answer", left=True),
        show.Column("unit", left=True),
        show.Column(_marked(one)),
        show.Column(_marked(two)),
        show.Column("second over first"),
    )
    rows = [
        [*titles[k], *_both(one["answers"].get(k, "-"), two["answers"].get(k, "-"))]
        for k in titles
        if k in one["answers"] or k in two["answers"]
    ]
    show.table(heads, rows)
    for phase in ("prefill", "decode"):
        show.say("")
        terms = [x[f"{phase}_ms"] for x in (one, two)]
        every = sorted(
            {k for each in terms for k in each}, key=lambda k: -max(t.get(k, 0.0) for t in terms)
        )
        show.table(
            (
                show.Column(f"{phase}, spent on", left=True),
                show.Column(_marked(one), "ms"),
                show.Column(_marked(two), "ms"),
                show.Column("second over first"),
            ),
            [
                [k, *_both(*(t.get(k, "-") for t in terms))]
                for k in every
                if any(t.get(k) for t in terms)
            ],
        )
    for each in (one, two):
        if not each["feasible"]:
            show.say("", f"Not feasible by {each['name']}: see infer-jax estimate.")
    show.notes(
        [
            "Terms of one name need not be the same work in two estimators; where memory and "
            "compute overlap, terms add up to more than the time.",
            *notes,
        ]
    )


def _marked(estimator: dict[str, Any]) -> str:
    """An estimator's name as the head of a column, marked where coefficients are borrowed."""
    return f"{estimator['name']} {BORROWED if estimator['trust']['borrowed_from'] else ''}".rstrip()


def show_runs(report: dict[str, Any], compared: Sequence[Output], notes: list[str]) -> None:
    """Print measured runs beside what is predicted of them."""
    known = report["trust"]
    show.say(f"{report['model']} on {report['hardware']}: measured, and predicted", known["says"])
    titles = {x.plain_key: (x.title, x.printed_unit) for x in compared}
    for run in report["runs"][:SHOWN]:
        load = (
            f"concurrency {run['concurrency']:g}"
            if run["request_rate_per_s"] is None
            else f"{run['request_rate_per_s']:g} requests/s"
        )
        lengths = f"isl {run['isl_tokens']:g}, osl {run['osl_tokens']:g}"
        show.say("", f"{run['run']}: {load}, {lengths}", "")
        predicted = run["predicted"]
        show.table(
            (
                show.Column("answer", left=True),
                show.Column("unit", left=True),
                show.Column("measured"),
                show.Column(f"predicted {BORROWED if known['borrowed_from'] else ''}".rstrip()),
                show.Column("predicted over measured"),
            ),
            [
                [*titles[k], *_both(value, predicted["answers"].get(k, "-"))]
                for k, value in run["measured"].items()
            ],
        )
        for phase, title in (("prefill", "first token"), ("decode", "every other token")):
            terms = sorted(predicted[f"{phase}_ms"].items(), key=lambda item: -float(item[1]))
            least = 1e-4 * sum(float(x) for _, x in terms)
            said = [f"{k} {numbers.digits(x)} ms" for k, x in terms if float(x) > least]
            show.say(f"Predicted {title}: {', '.join(said)}.")
    more = len(report["runs"]) - SHOWN
    said = [f"{more} more runs: --json has all."] if more > 0 else []
    if any(run["request_rate_per_s"] is not None for run in report["runs"]):
        said.append(
            "Requests that arrive by themselves are priced as if as many were kept in flight as "
            "were on average; their time to first token waits by another law."
        )
    show.notes([*said, *notes])


def _both(one: Any, two: Any) -> tuple[str, str, str]:
    cells = [x if isinstance(x, str) else numbers.or_unknown(x, 4) for x in (one, two)]
    if any(x is None or isinstance(x, str) for x in (one, two)) or not float(one):
        return cells[0], cells[1], "-"
    return cells[0], cells[1], f"{float(two) / float(one):.3g}"
