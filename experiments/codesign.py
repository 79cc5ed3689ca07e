"""Gradients that design: elasticities, the comparison with brute force, and case studies.

``python experiments/codesign.py COMMAND`` and ``python -m experiments.codesign COMMAND`` are the
same program. Every command takes ``--json`` and then ends with its figures on one line.
Exit code 0: all that was compared agrees; 1: something does not; 2: bad input.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import typer

from experiments import _report
from experiments._codesign import (
    bench as searches,
    elasticity,
    lifetimes as over_a_lifetime,
    spaces,
    studies,
)

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)
RATIO, BETTER = 100.0, 4  # fewer evaluations by at least this factor; better on so many of five


@app.command()
def bench(
    only: Annotated[list[str] | None, typer.Option(help="Spaces; all five if none.")] = None,
    estimator: Annotated[list[str] | None, typer.Option(help="Estimators; both if none.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of every search.")] = searches.SEEDS,
    as_json: _report.Json = False,
) -> None:
    """Five spaces of 10^7 points and more: gradients and rounding against brute force."""
    with _report.door():
        names = _report.chosen_keys("space", only or list(spaces.SPACES), spaces.SPACES)
        estimators = _report.chosen_keys(
            "estimator", estimator or list(spaces.ESTIMATORS), spaces.ESTIMATORS
        )
    reports: dict[str, Any] = {}
    rows = []
    for name in names:
        for kind in estimators:
            print(f"{name}, {kind}", flush=True)
            outcome = searches.compare(spaces.SPACES[name](kind), seeds)
            reports[f"{name} {kind}"] = outcome.report()
            rows.append(_row(f"{name}, {kind}", outcome, seeds))
            print("  " + ", ".join(rows[-1][1:]), flush=True)
    columns = ("space", "points", "evaluations", "fewer by", "gradient / value",
               "gradients: worst gap %", "random", "coordinates")  # fmt: skip
    note = "In brackets: seeds within 1 % of the exhaustive optimum, at the same evaluations."
    _report.show("Gradients against brute force", columns, rows, note)
    worst = max(x["methods"]["gradients"]["worst_gap"] for x in reports.values())
    least = min(x["evaluation_ratio"] for x in reports.values())
    beaten = {kind: _beaten(reports, kind) for kind in estimators}
    agrees = worst <= searches.WITHIN and least >= RATIO
    headline = {
        "worst_gap": worst,
        "least_evaluation_ratio": least,
        "spaces_better_than_both": beaten,
        "spaces": reports,
        "agrees": agrees,
    }
    _report.finish(agrees, headline, as_json)


def _row(title: str, outcome: searches.Outcome, seeds: int) -> tuple[str, ...]:
    """A line of the table."""
    return (
        title,
        f"{outcome.task.size:.2g}",
        f"{outcome.evaluations.mean():,.0f}",
        f"{outcome.ratio:.0f}",
        f"{outcome.gradient_cost:.2f}",
        *(
            f"{100 * outcome.gaps[m].max():.2f} ({outcome.successes(m)}/{seeds})"
            for m in ("gradients", "random", "coordinates")
        ),
    )


def _beaten(reports: dict[str, Any], kind: str) -> int:
    """Spaces in which the mean gap of gradients is below that of both other searches."""
    mine = [x["methods"] for name, x in reports.items() if name.endswith(f" {kind}")]
    return sum(
        all(m["gradients"]["mean_gap"] < m[o]["mean_gap"] for o in ("random", "coordinates"))
        for m in mine
    )


@app.command()
def elasticities(as_json: _report.Json = False) -> None:
    """The closed form's elasticities, level 4's beside them, and three changes of hardware."""
    figures = elasticity.tables()
    _report.finish(figures["agrees"], figures, as_json)


@app.command()
def lifetimes(as_json: _report.Json = False) -> None:
    """Training and serving: how large a model and how long trained, by the tokens it serves."""
    jax.config.update("jax_enable_x64", True)
    with _report.door():
        figures = over_a_lifetime.tables()
    _report.finish(figures["agrees"], figures, as_json)


@app.command()
def cases(
    only: Annotated[list[str] | None, typer.Option(help="a, b or c; all if none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = _report.OUT / "codesign",
    as_json: _report.Json = False,
) -> None:
    """Three case studies, with pictures, a second estimator and caveats."""
    jax.config.update("jax_enable_x64", True)
    with _report.door():
        names = _report.chosen_keys("case", only or list(studies.CASES), studies.CASES)
        reports = {name: studies.CASES[name](out) for name in names}
    _report.finish(True, {"cases": reports}, as_json)


if __name__ == "__main__":
    app()
