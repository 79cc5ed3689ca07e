"""Fit the default coefficients: ``python -m infer_jax.calibration.pooled``."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from infer_jax.calibration.pooled.rows import PooledRow
from infer_jax.catalog.files import read_text, write_text
from infer_jax.errors import InputError

FOLDER = Path("../shared/data/measured")
app = typer.Typer(add_completion=False)


@app.command()
def pooled(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help=f"Files of measured rows, or one folder of them; else {FOLDER}."),
    ] = None,
    starts: Annotated[
        int, typer.Option(min=1, help="Starts: the shipped fit, then points of the priors.")
    ] = 1,
    errors: Annotated[
        bool, typer.Option("--errors", help="Only the errors of the shipped fit on what is new.")
    ] = False,
    publishers: Annotated[
        bool, typer.Option("--publishers", help="Only the law of errors of a new publisher.")
    ] = False,
    operators: Annotated[
        bool,
        typer.Option("--operators", help="Only priors of kernels; FILE: the folder of the wheel."),
    ] = False,
    ship: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML to write, as the package reads it.")
    ] = None,
) -> None:
    """Fit the serving estimator to all measured rows, and its errors on what it has not seen.

    Prints coefficients with 80 % intervals, and the errors of systems, models, makes and pools that
    were left out. With --ship FILE both are written as `serving.toml`; with --errors the end of
    that file; with --publishers `spreads.toml`; with --operators `operators.toml`.
    """
    try:
        rows = [] if operators else _read(files or [FOLDER])
        import jax

        from infer_jax.calibration.pooled import publishers as of_publishers, shipping
        from infer_jax.calibration.pooled.likelihood import PooledTimes

        with jax.enable_x64(True):
            if operators:
                text = _operators(files[0] if files else None)
            elif publishers:
                times = PooledTimes.of(rows)
                text = shipping.laws_file(times, of_publishers.law_of_publishers(times))
                print(text)
            else:
                shipped = read_text(ship) if errors and ship is not None else ""
                text = _fit(rows, None if errors else starts, shipped)
        if ship is not None:
            write_text(ship, text)
    except InputError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def _read(paths: Sequence[Path]) -> list[PooledRow]:
    """The rows of files and folders; prints how many of each.

    Raises:
        InputError: a file that cannot be read, or no rows of aiconfigurator-core or others.
    """
    from infer_jax.calibration.pooled import readers

    sources: dict[str, Callable[[], readers.RowsRead]] = {}
    for path in paths:
        sources |= (
            readers.sources(path) if path.is_dir() else {str(path): partial(readers.read, path)}
        )
    rows, begin = [], time.perf_counter()
    for name, read in sources.items():
        found = read()
        rows += found.rows
        skipped = sum(found.skipped.values())
        _say(f"{name}: {len(found.rows)} rows, {skipped} left out", begin)
    if not any(row.dataset == "silicon pools" for row in rows):
        allowed = "pip install 'infer_jax[silicon]' and a folder: its rows count"
        raise InputError("pooled fit", "rows of aiconfigurator-core", "none", allowed)
    return rows


def _fit(rows: list[PooledRow], starts: int | None, text: str) -> str:
    """The file of a fit with its errors on what is new.

    ``starts``: None: no fit, the errors are of the shipped one, whose file is ``text``.
    """
    from infer_jax.calibration.pooled import likelihood, publishers, shipping
    from infer_jax.calibration.pooled.likelihood import FINE, PooledTimes, problem
    from infer_jax.calibration.uncertainty import covariance, identifiability, interval

    begin, fit = time.perf_counter(), None
    if starts is not None:
        times = PooledTimes.of(rows)
        fit = likelihood.solve_starts(problem(times, FINE), times, starts)
        servers = times.labels(lambda row: row.group).tolist()
        _say(f"fit of {len(servers)} times in {len(set(servers))} servers", begin)
        bounds = interval(fit, covariance(fit, servers), 0.8)
        _table(
            "One fit of all rows",
            ("coefficient", "value", "low", "high", "learnt"),
            (
                (p.name, *(f"{x:.4g}" for x in (fit.values[p.name], *bounds[p.name])),
                 f"{p.learnt:.2f}")
                for p in identifiability(fit).parameters
            ),
            "80 % intervals by the jackknife over servers. Learnt: near 1 the rows say nothing.",
        )  # fmt: skip
        losses = ", ".join(f"{x:.2f}" for x in fit.losses)
        _console().print(f"Half the sum of squares at the end of each start: {losses}.")
        text = shipping.fit_file(fit, times)
    new = publishers.new_errors(rows, fit, lambda what: _say(what, begin))
    _table(
        "Errors of what is new to the fit",
        ("new", "left out in turn", "rows", "TPOT, median %", "TTFT, median %"),
        (
            (kind, str(x.kinds or "-"), str(len(x.tpot)),
             *(f"{y:.1f}" for y in x.medians().values()))
            for kind, x in new.items()
        ),
    )  # fmt: skip
    return shipping.with_new_errors(text, new)


def _operators(path: Path | None) -> str:
    """The file of priors of kernels, from tables of measured operators."""
    from infer_jax.calibration.pooled import operators

    folder, begin = operators.data_folder(path), time.perf_counter()
    version = operators.package_version(folder)
    tables = operators.operator_tables(folder)
    _say(f"{len(tables)} tables of aisimulate {version}", begin)
    done = operators.fits(tables)
    priors = operators.pool_priors(done)
    columns = ("law", "chips", "format", "tables", "left out", "error, %", "median (least-most)")
    _table("Laws on tables of measured operators", columns, operators.summaries(done))
    _table(
        "Priors of kernels",
        ("coefficient", "prior", "spread", "tables", "error of the law, %"),
        (
            (name, f"{x.value:.3g}", f"{x.spread:.2f}", str(x.tables), f"{100 * x.error:.0f}")
            for name, x in priors.items()
        ),
        "Spread: deviation of the logarithm over tables, with what one table leaves open. Tables"
        f" on which the law errs by more than {100 * operators.WORST:.0f} % are left out.",
    )
    return operators.toml(priors, version)


def _console() -> Console:
    """The terminal; where there is none, wide enough that no cell is cut."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def _table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = ""
) -> None:
    table = Table(title=title, title_justify="left", caption=note, caption_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def _say(what: str, begin: float) -> None:
    _console().print(f"[dim]{time.perf_counter() - begin:6.1f} s[/]  {what}")


if __name__ == "__main__":
    app()
