"""Estimators beside the shipped fit: what each says of the same rows."""

from collections.abc import Callable, Sequence

import numpy as np

from experiments._silicon import score as silicon_score
from experiments._validation import estimates, makes_folds, silicon
from experiments._validation.calibrated import five_runs
from experiments._validation.row import Row

Answered = dict[str, np.ndarray]


def data_sheet(rows: Sequence[Row]) -> Answered:
    """Data-sheet rates and nothing else, through the same laws."""
    return estimates.answers(rows, estimates.data_sheet())


def roofline(rows: Sequence[Row]) -> Answered:
    """The longer of reading and computing of each pass."""
    return estimates.answers(rows, estimates.data_sheet(), "ideal")


def groups(rows: Sequence[Row]) -> Answered:
    """AMD's rows by fits without their server's rows of equal lengths, each of its own build."""
    return makes_folds.as_answers(rows, lambda held: held.of_build, "groups")


def servers(rows: Sequence[Row]) -> Answered:
    """AMD's rows by fits without their server, whose build is then not known."""
    return makes_folds.as_answers(rows, lambda held: held.of_mature, "servers")


def aiconfigurator(rows: Sequence[Row]) -> Answered:
    """aiconfigurator 0.12 with its best labels, where its figures for a row are stored."""
    theirs = silicon_score.predicted_by_aiconfigurator(rows)  # pyright: ignore[reportArgumentType]
    if theirs is None:
        return {}
    return dict(zip(("tpot", "ttft"), theirs, strict=True))


OTHERS: dict[str, Callable[[Sequence[Row]], Answered]] = {
    "after five runs": five_runs,
    "groups left out": groups,
    "servers left out": servers,
    "data sheet": data_sheet,
    "roofline": roofline,
    "aiconfigurator": aiconfigurator,
}


def missing() -> dict[str, str]:
    """What is not compared, and why."""
    found = {}
    if not silicon.there():
        found["the rows that were fitted"] = "aiconfigurator-core is not installed"
    if not silicon_score.GOLDEN.exists():
        found["aiconfigurator"] = f"{silicon_score.GOLDEN.name} is missing"
    return found
