"""Offloading to host memory and disk (FlexGen, arXiv 2303.06865): ours beside theirs."""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _check, _claims, _report
from experiments._offloading import (
    claims as paper_claims,
    figures as drawn,
    policies,
    predicted,
    tables as printed,
)
from infer_jax.errors import InputError

app = _report.program(__doc__, no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="CSV, columns in any order.")]


@app.command()
def check(file: File, as_json: _report.Json = False) -> None:
    """Compare fixed policies with both published models in float64, every column within 1e-9.

    Columns: l, h1, h2, nh, s, n, gbs, nb, compress_w, percentages wg_pct to hn_pct; any of
    code_* (the released model) and a3_* (Appendix A.3).
    """
    with _report.door():
        report = _check.compare(file, policies.RECIPE)
    _check.print_report(file, policies.RECIPE, report)
    _report.finish(report.agrees, report.headline(), as_json)


@app.command()
def check_search(file: File, as_json: _report.Json = False) -> None:
    """Search every row's best block: at least the recorded throughput, within 1e-6.

    Columns: model, s, n, throughput, and optionally compress_w (0), alpha (0.8), gmem_GiB (16),
    cmem_GiB (200), nmem_GiB (1500).
    """
    with _report.door():
        result = policies.compare_searches(file)
    rows = [
        (
            f.label,
            f"{f.theirs:.6g}",
            f"{f.ours:.6g}",
            f"{f.ours / f.theirs - 1:+.1e}",
            f.block,
            len(f.grid.time),
            _report.verdict(f.reaches),
        )
        for f in result
    ]
    columns = ("search", "theirs", "ours", "ours / theirs - 1", "block", "programs", "verdict")
    _report.show("Most tokens/s of the released model", columns, rows)
    agrees = bool(result) and all(f.reaches for f in result)
    least = min((f.ours / f.theirs - 1 for f in result), default=0.0)
    headline = {
        "searches": len(result),
        "programs": sum(len(f.grid.time) for f in result),
        "least_relative_gain": least,
        "agrees": agrees,
    }
    _report.finish(agrees, headline, as_json)


@app.command()
def tables(as_json: _report.Json = False) -> None:
    """Print Tables 2 to 5 beside the released model and ours, tokens per dollar, block sizes."""
    agrees, headline = printed.print_all()
    _report.finish(agrees, headline, as_json)


@app.command()
def figures(
    names: Annotated[list[str] | None, typer.Argument(help="1, 5; both if none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to draw into.")] = _report.OUT,
    as_json: _report.Json = False,
) -> None:
    """Draw Figures 1 and 5 as PNG files, and print what Section 6.4 says of Figure 5."""
    headline: dict[str, Any] = {"files": []}
    with _report.door():
        for name in names or list(drawn.FIGURES):
            if name not in drawn.FIGURES:
                raise InputError("command line", "figure", name, ", ".join(drawn.FIGURES))
            path, panels = drawn.draw(name, out)
            headline["files"].append(str(path))
            print(path)
            if name == "5":
                headline["section 6.4"] = result = drawn.claims(panels)
                columns = ("network", *next(iter(result.values())))
                rows = [(k, *(f"{x:.3g}" if isinstance(x, float) else x for x in v.values()))
                        for k, v in result.items()]  # fmt: skip
                _report.show("Section 6.4", columns, rows)
    _report.finish(True, headline, as_json)


@app.command()
def fit(as_json: _report.Json = False) -> None:
    """Fit the constants of our model to Table 2 (512 tokens) and Table 4 anew."""
    with _report.door():
        result = predicted.calibrated(printed.improved())
    stored = {name: float(x) for name, x in predicted.constants(printed.improved()).items()}
    rows = [(name, f"{value:.4g}", f"{stored[name]:.4g}") for name, value in result.values.items()]
    _report.show("Constants", ("constant", "fitted", "stored"), rows)
    worst = max(abs(x) for x in result.errors)
    agrees = all(_claims.is_close(result.values[k], v, 0.02) for k, v in stored.items())
    _report.finish(agrees, {"fitted": result.values, "worst": worst, "agrees": agrees}, as_json)


app.command()(_claims.command("Sheng et al. 2023 (arXiv 2303.06865)", paper_claims.all_claims))


if __name__ == "__main__":
    app()
