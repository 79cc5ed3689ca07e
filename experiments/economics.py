"""Inference economics of language models (Erdil 2025, arXiv 2506.04645): ours beside theirs."""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _check, _claims, _report
from experiments._economics import (
    claims as paper_claims,
    fronts as ours,
    points,
    tables as printed,
)

app = _report.program(__doc__, no_args_is_help=True)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="CSV of points, columns in any order.")],
    as_json: _report.Json = False,
) -> None:
    """Compare a file of points with levels 2, 3, 3b and 4 in float64, within 1e-9.

    Columns: estimator (toy, paper, pipeline, full), model, gpu, n_gpu, batch, latency_s, and
    optionally input_len (0), seq_len (1), use_pp (0). inf is infeasible, an empty cell no value.
    """
    with _report.door():
        report = _check.compare(file, points.RECIPE)
    _check.print_report(file, points.RECIPE, report)
    _report.finish(report.agrees, report.headline(), as_json)


@app.command()
def tables(
    numbers: Annotated[list[int] | None, typer.Argument(help="Which tables; all if none.")] = None,
    as_json: _report.Json = False,
) -> None:
    """Print Tables 1 to 6 beside ours: 1, 2, 3, 4 and 6 must agree to the printed digit."""
    with _report.door():
        wanted = _report.chosen_keys(
            "table", [str(n) for n in numbers or printed.TITLES], printed.TITLES
        )
    headline: dict[str, Any] = {}
    for number in wanted:
        table = printed.printed_table(number)
        printed.print_table(table)
        headline[f"table {number}"] = {
            "agrees": None if table.why else all(map(table.agrees, table.rows)),
            "ours": {row.label: table.texts(row) for row in table.rows},
        }
    agrees = all(entry["agrees"] is not False for entry in headline.values())
    _report.finish(agrees, {"tables": headline, "agrees": agrees}, as_json)


@app.command()
def fronts(
    file: Annotated[Path, typer.Argument(help="JSON of stored fronts by comparison.")],
    only: Annotated[str, typer.Option(help="Only comparisons whose name has this in it.")] = "",
    as_json: _report.Json = False,
) -> None:
    """Compare stored fronts with ours: every figure and point within 0.1 %."""
    with _report.door():
        stored = {k: v for k, v in ours.stored(file).items() if only in k}
    results = [ours.compare(name, theirs) for name, theirs in stored.items()]
    rows = [(r.name, r.points, f"{r.worst:.1e}", _report.verdict(r.agrees)) for r in results]
    _report.show("Stored fronts", ("setting", "points", "worst error", "verdict"), rows)
    agrees = bool(results) and all(r.agrees for r in results)
    worst = max((r.worst for r in results), default=0.0)
    count = sum(r.points for r in results)
    headline = {"fronts": len(results), "points": count, "worst_error": worst, "agrees": agrees}
    _report.finish(agrees, headline, as_json)


app.command()(_claims.command("Erdil 2025 (arXiv 2506.04645)", paper_claims.all_claims))


if __name__ == "__main__":
    app()
