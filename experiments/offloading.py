"""Offloading to host memory and disk (FlexGen, arXiv 2303.06865): ours beside theirs.

``python experiments/offloading.py COMMAND`` and ``python -m experiments.offloading COMMAND`` are
the same program. Every command takes ``--json`` and then ends with its figures on one line.
Exit code 0: all that was compared agrees; 1: something does not; 2: bad input.
"""

import sys
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _check, _report
from experiments._offloading import policies, searches

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="End with the figures as JSON on one line.")]
File = Annotated[Path, typer.Argument(help="CSV, columns in any order.")]


@app.command()
def check(file: File, as_json: Json = False) -> None:
    """Compare fixed policies with both published models in float64, every column within 1e-9.

    Columns: l, h1, h2, nh, s, n, gbs, nb, compress_w, percentages wg_pct to hn_pct; any of
    code_* (the released model) and a3_* (Appendix A.3).
    """
    with _report.door():
        report = _check.compare(file, policies.RECIPE)
    _check.print_report(file, policies.RECIPE, report)
    _report.finish(report.agrees, report.headline(), as_json)


@app.command()
def check_search(file: File, as_json: Json = False) -> None:
    """Search every row's best block: at least the recorded throughput, within 1e-6.

    Columns: model, s, n, throughput, and optionally compress_w (0), alpha (0.8), gmem_GiB (16),
    cmem_GiB (200), nmem_GiB (1500).
    """
    with _report.door():
        found = searches.compare(file)
    rows = [
        (
            f.label,
            f"{f.theirs:.6g}",
            f"{f.ours:.6g}",
            f"{f.ours / f.theirs - 1:+.1e}",
            f"{f.gpu_batch:g} x {f.batches:g}",
            f.programs,
            _report.verdict(f.reaches),
        )
        for f in found
    ]
    columns = ("search", "theirs", "ours", "ours / theirs - 1", "block", "programs", "verdict")
    _report.show("Most tokens/s of the released model", columns, rows)
    agrees = bool(found) and all(f.reaches for f in found)
    least = min((f.ours / f.theirs - 1 for f in found), default=0.0)
    headline = {
        "searches": len(found),
        "programs": sum(f.programs for f in found),
        "least_relative_gain": least,
        "agrees": agrees,
    }
    _report.finish(agrees, headline, as_json)


if __name__ == "__main__":
    app()
