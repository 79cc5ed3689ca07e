"""Measured kernel tables in aiconfigurator's optional package.

Parquet files ``systems/data/<system>/<family>/<engine>/<version>/<name>.parquet`` inside the
package ``aiconfigurator-core``, millions of rows: they are read by column, where installed.
"""

from pathlib import Path

import numpy as np

from infer_jax.catalog.archives import parquet_columns, read_parquet
from infer_jax.catalog.measurements.silicon import package_folder
from infer_jax.errors import InputError

MILLISECONDS = ("latency", "avg_ms")
SECONDS = "seconds"


def kernel_tables(system: str) -> tuple[str, ...]:
    """The tables of a system, as ``family/engine/version/name``.

    Raises:
        InputError: the package is not installed, or has no such system.
    """
    root = _system(system)
    names = (path.relative_to(root).with_suffix("") for path in root.rglob("*.parquet"))
    return tuple(sorted(str(path) for path in names))


def kernel_columns(system: str, table: str, **equal: object) -> dict[str, np.ndarray]:
    """The columns of one table, of the rows where each of ``equal`` holds.

    The measured time is the column ``seconds``.

    Raises:
        InputError: pyarrow or the package is not installed, no such table or column, or a time
            that is none.
    """
    path = _system(system) / f"{table}.parquet"
    if table not in kernel_tables(system):
        allowed = f"one of {', '.join(kernel_tables(system))}"
        raise InputError(f"kernel tables of {system}", "table", table, allowed)
    names = parquet_columns(path)
    for name in equal:
        if name not in names:
            raise InputError(str(path), name, equal[name], f"a column among {', '.join(names)}")
    filters = [(name, "=", value) for name, value in equal.items()] or None
    columns = read_parquet(path, filters)
    time = next((name for name in MILLISECONDS if name in columns), None)
    if time is None:
        raise InputError(
            str(path), "latency", "missing", f"a table with {' or '.join(MILLISECONDS)}"
        )
    seconds = columns.pop(time).astype(np.float64) * 1e-3
    if wrong := np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0.0))).tolist():
        row = f"row {wrong[0]} of those asked for, {time}"
        raise InputError(str(path), row, seconds[wrong[0]] * 1e3, "a time above 0")
    return {**columns, SECONDS: seconds}


def _system(system: str) -> Path:
    root = package_folder() / "data"
    if not (root / system).is_dir():
        known = ", ".join(sorted(path.name for path in root.iterdir()))
        raise InputError("aiconfigurator-core", "system", system, known)
    return root / system
