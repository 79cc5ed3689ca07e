"""Replays of measured vLLM servers: every request of two runs, and rows at given rates."""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _report
from infer_jax.errors import InputError

app = _report.program(__doc__)
MEASURED = _report.SHARED / "data" / "measured"


@_report.command(app, x64=True)
def requests(
    folder: Annotated[Path, typer.Option(help="Folder of runs.")] = MEASURED / "llmservingsim",
) -> dict[str, Any]:
    """Errors per request of two servers: data sheet, shipped coefficients, calibrated."""
    folders = sorted(p.parent for p in folder.glob("*/meta.json"))
    if not folders:
        raise InputError("command line", "--folder", str(folder), "a folder of measured runs")
    from experiments._replay import per_request

    return per_request.run(folders)


@_report.command(app, x64=True)
def rates(
    file: Annotated[Path, typer.Option(help="CSV of rows.")] = MEASURED / "open_loop_h100.csv",
) -> dict[str, Any]:
    """Errors of rows at given rates, by shipped coefficients."""
    if not file.is_file():
        raise InputError("command line", "--file", str(file), "a CSV file")
    from experiments._replay import open_loop

    return open_loop.run(file)


if __name__ == "__main__":
    app()
