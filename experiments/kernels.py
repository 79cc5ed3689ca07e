"""Prediction from measured kernel efficiency (InferSim, Alibaba 2025): ours beside theirs."""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _check, _report
from experiments._kernels import points, printed

app = _report.program(__doc__, no_args_is_help=True)
TablesFolder = Annotated[
    Path | None, typer.Option("--tables", help="Kernel tables, authors' layout.")
]
ConfigsFolder = Annotated[
    Path | None, typer.Option("--configs", help="Folder of NAME_config.json.")
]
MAX_CURVE_ERROR = 0.10  # curves within this of the look-up tables, in the authors' assembly


@_report.command(app)
def check(
    file: Annotated[
        Path | None,
        typer.Argument(help="CSV of runs, columns in any order; the stored ones if none."),
    ] = None,
    tables: TablesFolder = None,
    configs: ConfigsFolder = None,
) -> dict[str, Any]:
    """Compare a file of the tool's runs with ours as published, in float64, within 1e-9.

    Rows in which the tool crashed must be refused here, too; what was refused and which
    defaults were taken is listed. An empty cell is a value the tool does not give. Without a file:
    all stored runs, or, where only the checkout is at hand, those it carries.
    """
    file, tables, configs = points.stored(file, tables, configs)
    recipe, evaluation = points.recipe(tables, configs)
    headline = _check.check(file, recipe)
    if evaluation.refused:
        _report.show("Refused", ("what", "rows"), sorted(evaluation.refused.items()))
    if evaluation.defaults:
        taken = [
            (what, sum(kernels.values()), ", ".join(sorted(kernels)))
            for what, kernels in sorted(evaluation.defaults.items())
        ]
        _report.show("Defaults taken", ("what", "times", "kernels"), taken)
    return headline | {"refused": dict(evaluation.refused)}


@_report.command(app)
def tables(tables: TablesFolder = None, configs: ConfigsFolder = None) -> dict[str, Any]:
    """Print Table 2, the balance points, the bounds of all its kernels and the curves' errors."""
    tables = points.measured(tables, "--tables")
    cells = list(printed.table_2(tables, points.measured(configs, "--configs")))
    balances, stored = list(printed.balances()), list(printed.stored(tables))
    headline = _table_2(cells) | {"bounds": _bounds(cells), "balance": _balances(balances)}
    headline["agrees"] = headline["agrees"] and all(b.agrees for b in balances)
    rows = [(f"{x.system} {x.family}", x.rows, _percent(x.seen)) for x in stored]
    note = "Errors of the profiles' curves on every row; 'fits' tells those on unseen shapes."
    _report.show("Stored curves", ("kernels", "rows", "median / p90 error, %"), rows, note)
    return headline | {"curve_errors": {f"{x.system} {x.family}": list(x.seen) for x in stored}}


def _table_2(cells: list[printed.Cell]) -> dict[str, Any]:
    rows, agrees, result = [], True, {}
    for cell in cells:
        moved = cell.curves / cell.tables - 1
        # the program's figures are known to the digit printed
        good = round(cell.tables) == int(cell.row["tool"]) and abs(moved) <= MAX_CURVE_ERROR
        agrees &= good
        figures = (*(cell.row[name] for name in ("measured", "paper", "tool")), round(cell.tables))
        beside = (f"{x:+.1%}" for x in (moved, cell.curves / float(cell.row["measured"]) - 1))
        rows.append((cell.label, *figures, round(cell.curves), *beside, _report.verdict(good)))
        result[cell.label] = {"tables": cell.tables, "curves": cell.curves}
    columns = ("tokens/s per GPU", "measured", "paper", "tool", "as published", "curves")
    columns += ("curves / tables - 1", "curves / measured - 1", "verdict")
    note = "tool: the authors' program of May 2026. as published: ours, on the authors' tables."
    _report.show("Table 2", columns, rows, note)
    return {"table_2": result, "agrees": agrees}


def _balances(balances: list[printed.Balance]) -> dict[str, Any]:
    columns = ("FLOP per byte", "constants", "R", "group", "heads", "MoE batch", "EP", "verdict")
    rows = [
        (b.device, b.whose, f"{b.ratio:.1f}", *b.rounded, _report.verdict(b.agrees))
        for b in balances
    ]
    note = "R / 2, R / 4, R / (2 S) at S = 8/256; EP at 128 (H800) and 64 (H20) requests a GPU."
    _report.show("Balance points at 8 bits", columns, rows, note)
    return {f"{b.device} {b.whose}": [b.ratio, *b.rounded] for b in balances}


def _bounds(cells: list[printed.Cell]) -> dict[str, dict[str, str]]:
    result: dict[str, dict[str, str]] = {}
    for cell in cells:
        rows = [
            (name, f"{flops:.3g}", f"{moved:.3g}", f"{ratio:.4g}", f"{balance:.4g}", bound)
            for name, (flops, moved, ratio, balance, bound) in cell.bounds.items()
        ]
        columns = (cell.label, "GFLOP", "MB", "FLOP / byte", "balance", "bound")
        _report.show("", columns, rows)
        result[cell.label] = {name: row[-1] for name, row in cell.bounds.items()}
    return result


@_report.command(app)
def fits(
    names: Annotated[
        list[str] | None, typer.Argument(help="h20, h800, h100_sxm, h200_sxm ...; all if none.")
    ] = None,
    tables: TablesFolder = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for a [kernels] table of each profile.")
    ] = None,
) -> dict[str, Any]:
    """Fit the curves anew, with errors in sample and on unseen shapes. Takes minutes a system.

    h20 and h800 from the authors' tables, other systems from the optional package
    aiconfigurator-core. Fails where a median error is above that of the earlier fit.
    """
    headline, agrees = {}, True
    for name in names or [*printed.DEVICES, *printed.SYSTEMS]:
        results = printed.fitted_system(name, tables)
        lines = list(printed.lines(name, results))
        agrees &= not any(x.worse for x in lines)
        rows = [
            (x.family, x.rows, x.shapes, *map(_percent, (x.seen, x.unseen)),
             _report.verdict(not x.worse))
            for x in lines
        ]  # fmt: skip
        columns = (name, "rows", "shapes", "in sample, %", "unseen shapes, %", "verdict")
        _report.show("Median / p90 error", columns, rows)
        headline[name] = {x.family: [*x.seen, *(x.unseen or ())] for x in lines}
        if out is not None:
            path = out / f"{name}.kernels.toml"
            out.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(printed.sheet(results)) + "\n", encoding="utf-8")
            print(path)
    return headline | {"agrees": agrees}


def _percent(pair: tuple[float, float] | None) -> str:
    return "one shape" if pair is None else f"{pair[0]:.1f} / {pair[1]:.1f}"


if __name__ == "__main__":
    app()
