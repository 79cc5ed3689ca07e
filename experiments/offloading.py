"""Offloading to host memory and disk (FlexGen, arXiv 2303.06865): ours beside theirs."""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _check, _claims, _report
from experiments._offloading import figures as drawn, measured, policies, tables as printed
from infer_jax.specs import leaves

app = _report.program(__doc__, no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="CSV, columns in any order.")]


@_report.command(app)
def check(file: File) -> dict[str, Any]:
    """Compare fixed policies with both published models in float64, every column within 1e-9.

    Columns: l, h1, h2, nh, s, n, gbs, nb, compress_w, percentages wg_pct to hn_pct; any of
    code_* (the released model) and a3_* (Appendix A.3).
    """
    return _check.check(file, policies.RECIPE)


@_report.command(app)
def check_search(file: File) -> dict[str, Any]:
    """Search every row's best block: at least the recorded throughput, within 1e-6.

    Columns: model, s, n, throughput, and optionally compress_w (0), alpha (0.8), gmem_GiB (16),
    cmem_GiB (200), nmem_GiB (1500).
    """
    return _check.check(file, policies.SEARCHES)


@_report.command(app)
def tables() -> dict[str, Any]:
    """Print Tables 2 to 5 beside the released model and ours, tokens per dollar, block sizes."""
    return printed.print_all()


@_report.command(app)
def figures(
    names: Annotated[list[str] | None, typer.Argument(help="1, 5; both if none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to draw into.")] = _report.OUT,
) -> dict[str, Any]:
    """Draw Figures 1 and 5 as PNG files, and print what Section 6.4 says of Figure 5."""
    headline: dict[str, Any] = {"files": []}
    keys = _report.chosen_keys("figure", names or list(drawn.FIGURES), drawn.FIGURES)
    for name in keys:
        path, panels = drawn.draw(name, out)
        headline["files"].append(str(path))
        print(path)
        if name == "5":
            headline["section 6.4"] = result = drawn.claims(panels)
            columns = ("network", *next(iter(result.values())))
            rows = [(k, *(f"{x:.3g}" if isinstance(x, float) else x for x in v.values()))
                    for k, v in result.items()]  # fmt: skip
            _report.show("Section 6.4", columns, rows)
    return headline


@_report.command(app)
def fit() -> dict[str, Any]:
    """Fit the constants of our model to Table 2 (512 tokens) and Table 4 anew."""
    result = measured.calibrated(printed.IMPROVED)
    values = leaves(printed.IMPROVED)
    stored = {path: float(value) for path, _, value in values if path in measured.BOUNDS}
    rows = [(name, f"{value:.4g}", f"{stored[name]:.4g}") for name, value in result.values.items()]
    _report.show("Constants", ("constant", "fitted", "stored"), rows)
    agrees = all(abs(result.values[k] / v - 1.0) <= 0.02 for k, v in stored.items())
    return {"fitted": result.values, "worst": max(map(abs, result.errors)), "agrees": agrees}


_claims.add(app, "Sheng et al. 2023 (arXiv 2303.06865)", printed.all_claims)


if __name__ == "__main__":
    app()
