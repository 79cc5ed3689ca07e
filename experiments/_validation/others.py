"""Estimators beside the shipped fit: what each says of the same rows."""

import csv
from collections.abc import Callable, Sequence

import numpy as np

from experiments._report import SHARED
from experiments._validation.calibrated import five_runs
from experiments._validation.estimates import IDEAL, answers
from infer_jax.calibration.pooled.answers import Columns
from infer_jax.calibration.pooled.readers import silicon
from infer_jax.calibration.pooled.rows import PooledRow
from infer_jax.estimators.serving import Serving

GOLDEN = SHARED / "golden" / "aiconfigurator_on_silicon.csv"


def data_sheet(rows: Sequence[PooledRow]) -> Columns:
    """Data-sheet rates and nothing else, through the same laws."""
    return answers(rows, Serving.roofline())


def roofline(rows: Sequence[PooledRow]) -> Columns:
    """The longer of reading and computing of each pass."""
    return answers(rows, Serving.roofline(), IDEAL)


def aiconfigurator(rows: Sequence[PooledRow]) -> Columns:
    """aiconfigurator 0.12 with its best labels, where its figures for a row are stored."""
    if not GOLDEN.exists():
        return {}
    with GOLDEN.open(newline="") as file:
        stored = {line["id"]: line for line in csv.DictReader(file)}
    columns = {name: f"pred_{name}_ms_E" for name in ("tpot", "ttft")}
    return {
        name: np.asarray([stored.get(r.id, {}).get(column) or "nan" for r in rows], float) / 1e3
        for name, column in columns.items()
    }


OTHERS: dict[str, Callable[[Sequence[PooledRow]], Columns]] = {
    "after five runs": five_runs,
    "data sheet": data_sheet,
    "roofline": roofline,
    "aiconfigurator": aiconfigurator,
}


def missing() -> dict[str, str]:
    """What is not compared, and why."""
    found = {}
    if not silicon.is_installed():
        found["the rows of aiconfigurator-core"] = "aiconfigurator-core is not installed"
    if not GOLDEN.exists():
        found["aiconfigurator"] = f"{GOLDEN.name} is missing"
    return found
