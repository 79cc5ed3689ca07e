"""Which measured rows are there to fit and to score, cleaned?

Reads the rows of the optional package ``aiconfigurator-core`` where it is installed and applies
the rules of `experiments._silicon.clean`.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from experiments._silicon import clean
from experiments._silicon.clean import Formats
from infer_jax.catalog.measurements import silicon, silicon_runs
from infer_jax.catalog.measurements.silicon import Published
from infer_jax.catalog.measurements.silicon_runs import ServerDegrees
from infer_jax.errors import InputError
from infer_jax.specs import Architecture


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was served, on what, and the two times in seconds; lengths are nominal."""

    id: str
    line: int
    family: str
    model: str  # bundled architecture
    model_path: str
    system: str
    engine: str
    version: str
    date: str
    precision: str
    source: str  # fixed_length or random_length
    isl: float
    osl: float
    ttft: float
    tpot: float
    formats: Formats | None  # None for a row that is no single server

    @property
    def group(self) -> tuple:
        """The held-out group: family, system, prompt, output and engine."""
        return (self.family, self.system, self.isl, self.osl, self.engine)

    @property
    def profile(self) -> str:
        """The bundled hardware profile."""
        return clean.system_profile(self.system)

    def architecture(self) -> Architecture:
        """The architecture in this row's number formats.

        Raises:
            InputError: the row has none, being no single server.
        """
        if self.formats is None:
            raise InputError(self.id, "formats", "missing", "a row of one server")
        return clean.in_formats(clean.architecture(self.model), self.formats)


@dataclass(frozen=True, kw_only=True)
class Row(Measured):
    """One aggregated row and what the cleaning decides.

    ``first`` is the id of the first entry of the same measurement, the row's own where it is
    ``unique``. ``layout`` and ``concurrency`` are None for rows that cannot be read as one
    server (``anomaly`` "flattened_disaggregated").
    """

    first: str
    unique: bool
    anomaly: str
    hidden_mtp: bool = False
    concurrency: float | None = None
    layout: ServerDegrees | None = None

    @property
    def clean(self) -> bool:
        """True where the row is scored among the clean ones: unique and no anomaly."""
        return self.unique and not self.anomaly


def aggregated(path: str | os.PathLike[str] | None = None) -> tuple[Row, ...]:
    """Every aggregated row in file order, cleaned.

    Raises:
        InputError: the package is not installed, or its table is malformed.
    """
    published = [r for r in silicon.published_rows(path) if not r.disaggregated]
    served = [r for r in published if not silicon_runs.flattened(r)]
    runs = [_run(row) for row in served]
    first = clean.first_of(runs)
    verdicts = clean.anomalies(runs, first)
    found = {}
    for index, run in enumerate(runs):
        found[run.row.line] = Row(
            **facts(run.row),
            formats=run.formats,
            first=runs[first[index]].row.id,
            unique=first[index] == index,
            anomaly=verdicts[index],
            hidden_mtp=clean.hidden_mtp(run.row),
            concurrency=run.concurrency,
            layout=run.layout,
        )
    return tuple(found.get(row.line) or _dropped(row) for row in published)


def cleaned(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows that fits see."""
    return tuple(row for row in rows if row.clean)


def _run(row: Published) -> clean.Run:
    served = clean.served(row)
    layout = silicon_runs.layout(row, clean.mixture(served.architecture))
    load = silicon_runs.concurrency(row, layout.dp)
    return clean.Run(row, served, layout, load, clean.formats(row))


def _dropped(row: Published) -> Row:
    verdict = "flattened_disaggregated"
    return Row(**facts(row), formats=None, first=row.id, unique=False, anomaly=verdict)


def facts(row: Published) -> dict[str, Any]:
    """What a row says of itself, as fields of ``Measured``."""
    served = clean.served(row)
    return {
        "id": row.id,
        "line": row.line,
        "family": served.family,
        "model": served.architecture,
        "model_path": row.model_path,
        "system": row.system,
        "engine": row.backend,
        "version": row.version,
        "date": row.date,
        "precision": row.precision,
        "source": "fixed_length" if row.fixed_length else "random_length",
        "isl": row.isl,
        "osl": row.osl,
        "ttft": row.ttft_ms / 1e3,
        "tpot": row.tpot_ms / 1e3,
    }
