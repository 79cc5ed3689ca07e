"""What chips draw, fitted to servers whose power was measured, and errors of servers left out.

With ``--ship`` it writes the file that the package carries.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _report
from infer_jax.errors import InputError

app = _report.program(__doc__)
ML_ENERGY = _report.GOLDEN / "ml_energy_power.csv"


@_report.command(app, x64=True)
def power(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files of rows, as `validation` reads them.")
    ] = None,
    ship: Annotated[
        Path | None, typer.Option(help="TOML to write the fit of all rows to, with intervals.")
    ] = None,
) -> dict[str, Any]:
    """Fit the power of chips, and score rows whose server or generation each fit has not seen."""
    from experiments._validation import kinds, power as study

    folder = kinds.MEASURED
    known = [folder / "inferencex_deepseek_r1.csv", *sorted(folder.glob("h200_gpt_oss/*.tsv"))]
    paths = files or [*known, ML_ENERGY]
    rows = [row for path in paths for row in kinds.read(path).rows if "power" in row.measured]
    if len({row.group for row in rows}) < 2:
        raise InputError("power", "rows", len(rows), "rows with watts of two servers or more")
    figures = study.run(rows)
    if ship is not None:
        study.ship(ship, rows)
    return figures


if __name__ == "__main__":
    app()
