"""Inference economics of language models (Erdil 2025, arXiv 2506.04645): ours beside theirs."""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _check, _claims, _report
from experiments._economics import claims as paper_claims, fronts as ours, points

app = _report.program(__doc__, no_args_is_help=True)


@_report.command(app)
def check(
    file: Annotated[Path, typer.Argument(help="CSV of points, columns in any order.")],
) -> dict[str, Any]:
    """Compare a file of points with levels 2, 3, 3b and 4 in float64, within 1e-9.

    Columns: estimator (toy, paper, pipeline, full), model, gpu, n_gpu, batch, latency_s, and
    optionally input_len (0), seq_len (1), use_pp (0). inf is infeasible, an empty cell no value.
    """
    return _check.check(file, points.RECIPE)


@_report.command(app)
def tables(
    numbers: Annotated[list[int] | None, typer.Argument(help="Which tables; all if none.")] = None,
) -> dict[str, Any]:
    """Print Tables 1 to 6 beside ours: 1, 2, 3, 4 and 6 must agree to the printed digit."""
    wanted = [str(n) for n in numbers or ours.TITLES]
    keys = _report.chosen_keys("table", wanted, ours.TITLES)
    found = {f"table {number}": ours.print_table(number) for number in keys}
    agrees = all(entry["agrees"] is not False for entry in found.values())
    return {"tables": found, "agrees": agrees}


@_report.command(app)
def fronts(
    file: Annotated[Path, typer.Argument(help="JSON of stored fronts by comparison.")],
) -> dict[str, Any]:
    """Compare stored fronts with ours: every figure and point within 0.1 %."""
    results = [ours.compare(k, v) for k, v in ours.stored(file).items()]
    rows = [(r.name, r.points, f"{r.worst:.1e}", _report.verdict(r.agrees)) for r in results]
    _report.show("Stored fronts", ("setting", "points", "worst error", "verdict"), rows)
    worst, count = max((r.worst for r in results), default=0.0), sum(r.points for r in results)
    agrees = bool(results) and all(r.agrees for r in results)
    return {"fronts": len(results), "points": count, "worst_error": worst, "agrees": agrees}


_claims.add(app, "Erdil 2025 (arXiv 2506.04645)", paper_claims.all_claims)


if __name__ == "__main__":
    app()
