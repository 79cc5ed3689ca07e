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

from infer_jax.catalog.measurements.cells import Cells, read_rows, read_run, statistic_of
from infer_jax.catalog.measurements.run import NUMBERS, TEXTS, Run, Statistic

TOTALS = ("burstiness", "duration", "completed", "output_throughput", "request_throughput")
COLUMNS = {name: name for name in (*TEXTS, *NUMBERS, *TOTALS)}
COLUMNS |= {"power": "power_w", "energy": "energy_j"}
# of TPOT: vLLM, SGLang, AIPerf and MLPerf leave the first token out, GuideLLM divides the whole
# latency by all tokens, InferenceX prints tokens per second of one user
DEFINITIONS = ("excludes_first", "includes_first", "interactivity")
COUNTS = ("failed", "rate_limited")
STATISTIC = r"(mean|median|std|p\d+(?:\.\d+)?)"
# name, statistic, and unit of a time or none of an interactivity
TIME = re.compile(rf"(ttft|tpot|itl|e2el)_{STATISTIC}_(s|ms)|(intvty)_{STATISTIC}")
SCALES = {"s": 1.0, "ms": 1e-3, None: 1.0}


def recognises(text: str) -> bool:
    """True where the first line names a time of this table."""
    header = text.lstrip().partition("\n")[0].split(",")
    return any(TIME.fullmatch(column.strip()) for column in header)


def read(file: str, text: str) -> Iterator[Run]:
    """A run for each row below the header.

    Raises:
        InputError: an unknown column, a row of another length, a malformed cell.
    """
    line, header, rows = read_rows(file, text, exact=True)
    known = {*COLUMNS.values(), *COUNTS, "tpot_definition"}
    for column in header:
        if column not in known and not TIME.fullmatch(column):
            allowed = f"{', '.join(sorted(known))}, <time>_<statistic>_<unit> (ttft_mean_ms)"
            raise Cells(file, line, {}).error("column", column, allowed)
    return map(_run, rows)


def _run(cells: Cells) -> Run:
    times: dict[str, dict[str, float | None]] = {}
    for column in cells.values:
        if match := TIME.fullmatch(column):
            name, rank, unit, *speed = match.groups()
            name, rank = (name, rank) if name else speed
            times.setdefault(name, {})[rank] = cells.number(column, SCALES[unit])
    statistics = {name: Statistic() for name in ("ttft", "tpot", "itl", "e2el", "intvty")}
    statistics |= {name: statistic_of(values) for name, values in times.items()}
    statistics["tpot"], origin = _tpot(cells, statistics)
    del statistics["intvty"]
    counts = {name: cells.number(name) or 0.0 for name in COUNTS}
    return read_run(cells, COLUMNS, source="csv", tpot_from=origin, **counts, **statistics)


def _tpot(cells: Cells, statistics: dict[str, Statistic]) -> tuple[Statistic, str]:
    """TPOT without the first token, and the definition in the file."""
    whole, ttft = statistics["tpot"], statistics["ttft"]
    definition = cells.text("tpot_definition") or DEFINITIONS[0]
    if definition not in DEFINITIONS:
        raise cells.error("tpot_definition", definition, " or ".join(DEFINITIONS))
    if definition == "interactivity":
        return statistics["intvty"].reciprocal, definition
    if definition == "excludes_first":
        return whole, Run.tpot_from
    osl = cells.number("osl")
    if osl is None or osl <= 1.0 or whole.mean is None or ttft.mean is None:
        allowed = "osl above 1 and the means of ttft and tpot, to leave the first token out"
        raise cells.error("tpot_definition", definition, allowed)
    # exact for means where all outputs have osl tokens
    converted = (osl * whole.mean - ttft.mean) / (osl - 1.0)
    if converted <= 0.0:
        raise cells.error("tpot_mean", whole.mean, f"at least TTFT / osl = {ttft.mean / osl:g} s")
    return Statistic(converted), "the whole latency over all tokens"
