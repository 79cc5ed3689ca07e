"""Scaling Transformer inference efficiently (Pope et al. 2022, arXiv 2211.05102): ours, theirs."""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _claims, _report
from experiments._partitioning import claims as paper_claims, measured, tables as ours
from infer_jax.catalog import load_system

app = _report.program(__doc__, no_args_is_help=True)
File = Annotated[Path, typer.Option("--file", help="CSV of printed cells, Tables D.2 to D.4.")]


@_report.command(app)
def tables(file: File = measured.FILE) -> dict[str, Any]:
    """Print Tables 1, 2, 3 and D.2 to D.4 beside ours, with the profile's coefficients.

    Tables 2 and 3 are predicted: the coefficients come from Tables D.2 to D.4.
    """
    headline = ours.print_contexts() | ours.print_settings()
    headline |= ours.print_cells(measured.cells(file))
    agrees = all(value for key, value in headline.items() if key.endswith("agree"))
    return headline | {"agrees": agrees}


@_report.command(app)
def fit(file: File = measured.FILE) -> dict[str, Any]:
    """Fit the coefficients of TPU v4 and of the A100, with intervals of 80 %."""
    headline: dict[str, Any] = {}
    rows = measured.cells(file)
    own, gpus = measured.own(rows), [c for c in rows if c.gpu]
    for name, result, used in (
        ("tpu_v4", measured.fitted(own), own),
        ("a100_sxm", measured.fitted(gpus, load_system("a100_sxm").hardware), gpus),
    ):
        spread = measured.spreads(result, used)
        shown = [
            (k, f"{v:.4g}", f"{spread[k][0]:.3g} to {spread[k][1]:.3g}")
            for k, v in result.values.items()
        ]
        median, worst = measured.summary(result.errors)
        note = f"{len(used)} cells, median error {median:.1%}, worst {worst:.1%}"
        _report.show(name, ("coefficient", "value", "80 % interval"), shown, note)
        headline[name] = {"median_error": median, "worst_error": worst, **result.values}
    return headline


_claims.add(app, "Pope et al. 2022 (arXiv 2211.05102)", paper_claims.all_claims)


if __name__ == "__main__":
    app()
