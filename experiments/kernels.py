"""Prediction from measured kernel efficiency (InferSim, Alibaba 2025): ours beside theirs.

``python experiments/kernels.py COMMAND`` and ``python -m experiments.kernels COMMAND`` are the
same program. Every command takes ``--json`` and then ends with its figures on one line.
Exit code 0: all that was compared agrees; 1: something does not; 2: bad input.
"""

import sys
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from experiments import _check, _report
from experiments._kernels import points

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="End with the figures as JSON on one line.")]
TablesFolder = Annotated[Path, typer.Option("--tables", help="Kernel tables, authors' layout.")]
ConfigsFolder = Annotated[Path, typer.Option("--configs", help="Folder of NAME_config.json.")]


@app.callback()
def _program() -> None:
    """Keep the commands' names even while there is one."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="CSV of runs, columns in any order.")],
    tables: TablesFolder,
    configs: ConfigsFolder,
    as_json: Json = False,
) -> None:
    """Compare a file of the tool's runs with ours as published, in float64, within 1e-9.

    Rows in which the tool crashed must be refused here, too; what was refused and which
    defaults were taken is listed. An empty cell is a value the tool does not give.
    """
    with _report.door():
        recipe, evaluation = points.recipe(tables, configs)
        report = _check.compare(file, recipe)
    _check.print_report(file, recipe, report)
    if evaluation.refused:
        _report.show("Refused", ("what", "rows"), sorted(evaluation.refused.items()))
    if evaluation.defaults:
        taken = [
            (what, sum(kernels.values()), ", ".join(sorted(kernels)))
            for what, kernels in sorted(evaluation.defaults.items())
        ]
        _report.show("Defaults taken", ("what", "times", "kernels"), taken)
    headline = report.headline() | {"refused": dict(evaluation.refused)}
    _report.finish(report.agrees, headline, as_json)


if __name__ == "__main__":
    app()
