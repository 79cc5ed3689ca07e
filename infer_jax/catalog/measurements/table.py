"""Reads a plain CSV of runs: one row a run, columns named after the fields of ``Run``.

Facts and lengths keep their names (engine, version, model, system, date, precision, chips, tp,
pp, dp, ep, isl, osl, prefix, concurrency, request_rate, burstiness, duration, completed, failed,
output_throughput, request_throughput, power_w, energy_j). Times are ``<time>_<statistic>_<unit>``
with time ttft, tpot, itl or e2el, statistic mean, median, std or p99, and unit s or ms.
``tpot_definition`` is excludes_first (the default), includes_first or interactivity; in the last
case the column is ``intvty_<statistic>``.
"""

import re
from collections.abc import Iterator

from infer_jax.catalog.foreign import csv_rows
from infer_jax.catalog.measurements import tpot
from infer_jax.catalog.measurements.cells import Cells, read_run, statistic_of
from infer_jax.catalog.measurements.run import NUMBERS, TEXTS, Run, Statistic

COLUMNS = {name: name for name in (*TEXTS, *NUMBERS)} | {
    name: name for name in ("burstiness", "duration", "completed", "output_throughput",
                            "request_throughput")
} | {"power": "power_w", "energy": "energy_j"}  # fmt: skip
COUNTS = ("failed", "rate_limited")
STATISTIC = r"(mean|median|std|p\d+(?:\.\d+)?)"
TIME = re.compile(rf"(ttft|tpot|itl|e2el)_{STATISTIC}_(s|ms)")
SPEED = re.compile(rf"intvty_{STATISTIC}")
SCALES = {"s": 1.0, "ms": 1e-3}


def recognises(text: str) -> bool:
    """True where the first line names a time of this table."""
    header = text.lstrip().partition("\n")[0].split(",")
    return any(TIME.fullmatch(c.strip()) or SPEED.fullmatch(c.strip()) for c in header)


def read(file: str, text: str) -> Iterator[Run]:
    """A run for each row below the header.

    Raises:
        InputError: an unknown column, a row of another length, a malformed cell.
    """
    rows = csv_rows(file, text)
    line, header = next(rows)
    known = {*COLUMNS.values(), *COUNTS, "tpot_definition"}
    for column in header:
        if column not in known and not TIME.fullmatch(column) and not SPEED.fullmatch(column):
            allowed = f"{', '.join(sorted(known))}, <time>_<statistic>_<unit> (ttft_mean_ms)"
            raise Cells(file, line, {}).error("column", column, allowed)
    for line, row in rows:
        cells = Cells(file, line, dict(zip(header, row, strict=False)))
        if len(row) != len(header):
            raise cells.error("number of cells", len(row), f"{len(header)}, as the header has")
        yield _run(cells)


def _run(cells: Cells) -> Run:
    times: dict[str, dict[str, float]] = {}
    for column in cells.values:
        if match := TIME.fullmatch(column) or SPEED.fullmatch(column):
            parts = match.groups()
            name, statistic = parts[:2] if len(parts) == 3 else ("intvty", parts[0])
            value = cells.number(column, SCALES[parts[2]] if len(parts) == 3 else 1.0)
            if value is not None:
                times.setdefault(name, {})[statistic] = value
    statistics = {name: statistic_of(values) for name, values in times.items()}
    per_token, origin = _tpot(cells, statistics)
    others = {name: statistics.get(name, Statistic()) for name in ("ttft", "itl", "e2el")}
    counts = {name: cells.number(name) or 0.0 for name in COUNTS}
    return read_run(
        cells, COLUMNS, source="csv", tpot=per_token, tpot_from=origin, **counts, **others
    )


def _tpot(cells: Cells, statistics: dict[str, Statistic]) -> tuple[Statistic, str]:
    """TPOT without the first token, and the definition in the file."""
    tpots, ttft = statistics.get("tpot", Statistic()), statistics.get("ttft", Statistic())
    definition = cells.text("tpot_definition") or tpot.EXCLUDES
    if definition not in tpot.DEFINITIONS:
        raise cells.error("tpot_definition", definition, " or ".join(tpot.DEFINITIONS))
    if definition == tpot.INTERACTIVITY:
        return tpot.of_interactivity(statistics.get("intvty", Statistic())), "interactivity"
    if definition == tpot.EXCLUDES:
        return tpots, Run.tpot_from
    osl = cells.number("osl")
    if osl is None or osl <= 1.0 or tpots.mean is None or ttft.mean is None:
        allowed = "osl above 1 and the means of ttft and tpot, to leave the first token out"
        raise cells.error("tpot_definition", definition, allowed)
    converted = tpot.without_first(tpots.mean, ttft.mean, osl)
    if converted <= 0.0:
        raise cells.error("tpot_mean", tpots.mean, f"at least TTFT / osl = {ttft.mean / osl:g} s")
    return Statistic(converted), "the whole latency over all tokens"
