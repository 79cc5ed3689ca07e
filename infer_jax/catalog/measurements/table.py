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

from infer_jax.catalog.cells import Cells, Statistic, read_rows
from infer_jax.catalog.measurements.run import NUMBERS, TEXTS, Run, read_run

COLUMNS = {name: name for name in (*TEXTS, *NUMBERS, "failed", "rate_limited", "burstiness")}
COLUMNS |= {"duration": "duration", "completed": "completed", "power": "power_w"}
COLUMNS |= {"energy": "energy_j", "output_throughput": "output_throughput"}
COLUMNS |= {"request_throughput": "request_throughput"}
TIMES = {name: f"{name}_{{}}_s {name}_{{}}_ms" for name in ("ttft", "tpot", "itl", "e2el")}
TIME = re.compile(
    r"((ttft|tpot|itl|e2el)_(mean|median|std|p\d+(\.\d+)?)_(s|ms)"
    r"|intvty_(mean|median|std|p\d+(\.\d+)?))"
)
# of TPOT: vLLM, SGLang, AIPerf and MLPerf leave the first token out, GuideLLM divides the whole
# latency by all tokens, InferenceX prints tokens per second of one user
DEFINITIONS = ("excludes_first", "includes_first", "interactivity")


def is_table(text: str) -> bool:
    """True where the first line names a time of this table."""
    header = text.lstrip().partition("\n")[0].split(",")
    return any(TIME.fullmatch(column.strip()) for column in header)


def read(file: str, text: str) -> Iterator[Run]:
    """A run for each row below the header.

    Raises:
        InputError: an unknown column, a row of another length, a malformed cell.
    """
    line, header, rows = read_rows(file, text, exact=True)
    known = {*COLUMNS.values(), "tpot_definition"}
    for column in header:
        if column not in known and not TIME.fullmatch(column):
            allowed = f"{', '.join(sorted(known))}, <time>_<statistic>_<unit> (ttft_mean_ms)"
            raise Cells(file, line, {}).error("column", column, allowed)
    return map(_run, rows)


def _run(cells: Cells) -> Run:
    """A row, its TPOT without the first token."""
    run = read_run(cells, COLUMNS | TIMES, source="csv")
    definition = cells.text("tpot_definition") or DEFINITIONS[0]
    if definition not in DEFINITIONS:
        raise cells.error("tpot_definition", definition, " or ".join(DEFINITIONS))
    if definition == "interactivity":
        speeds = cells.statistic({"intvty_{}": 1.0})
        return run.replace(tpot=speeds.reciprocal, tpot_from=definition)
    if definition == "excludes_first":
        return run
    osl, whole, ttft = run.osl, run.tpot.mean, run.ttft.mean
    if osl is None or osl <= 1.0 or whole is None or ttft is None:
        allowed = "osl above 1 and the means of ttft and tpot, to leave the first token out"
        raise cells.error("tpot_definition", definition, allowed)
    # exact for means where all outputs have osl tokens
    converted = (osl * whole - ttft) / (osl - 1.0)
    if converted <= 0.0:
        raise cells.error("tpot_mean", whole, f"at least TTFT / osl = {ttft / osl:g} s")
    origin = "the whole latency over all tokens"
    return run.replace(tpot=Statistic(converted), tpot_from=origin)
