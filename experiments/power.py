"""What chips draw, fitted to servers whose power was measured, and errors of servers left out.

With ``--ship`` it writes the file that the package carries.
"""

import sys
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _report
from infer_jax.errors import InputError

app = _report.program(__doc__)
ML_ENERGY = _report.GOLDEN / "ml_energy_power.csv"


@app.command()
def power(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files of rows, as `validation` reads them.")
    ] = None,
    ship: Annotated[
        Path | None, typer.Option(help="TOML to write the fit of all rows to, with intervals.")
    ] = None,
    as_json: _report.Json = False,
) -> None:
    """Fit the power of chips, and score rows whose server or generation each fit has not seen."""
    headline = {}
    with _report.door():
        import jax

        from experiments._validation import kinds, power as study

        folder = kinds.MEASURED
        paths = files or [
            folder / "inferencex_deepseek_r1.csv",
            *sorted(folder.glob("h200_gpt_oss/*.tsv")),
            ML_ENERGY,
        ]
        rows = [row for path in paths for row in kinds.read(path).rows if "power" in row.measured]
        if len({row.group for row in rows}) < 2:
            raise InputError("power", "rows", len(rows), "rows with watts of two servers or more")
        with jax.enable_x64(True):
            headline = study.run(rows)
            if ship is not None:
                study.ship(ship, rows)
    _report.finish(True, headline, as_json)


if __name__ == "__main__":
    app()
