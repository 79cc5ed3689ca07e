"""Reads detail logs of MLPerf Inference: lines ``:::MLLOG {...}``, one run a file.

LoadGen's TPOT is (latency - first token) / (tokens - 1) of each sample. The log names no chips,
lengths or engine: they come from flags or a sidecar.
"""

import re

from infer_jax.catalog.foreign import json_of
from infer_jax.catalog.measurements.cells import Cells, read_run, statistic_of
from infer_jax.catalog.measurements.run import Run, Statistic

MARK = ":::MLLOG"
# keys of a time's mean, and of its percentiles
TIMES = {
    "ttft": ("result_first_token_mean_latency_ns",
             r"result_first_token_(\d+\.\d+)_percentile_latency_ns"),
    "tpot": ("result_time_to_output_token_mean",
             r"result_time_per_output_token_(\d+\.\d+)_percentile_ns"),
    "e2el": ("result_mean_latency_ns", r"result_(\d+\.\d+)_percentile_latency_ns"),
}  # fmt: skip
COLUMNS = {
    "request_throughput": "result_completed_samples_per_sec",
    "completed": "result_query_count",
}


def recognises(text: str) -> bool:
    """True for a detail log."""
    return MARK in text[:65536]


def read(file: str, text: str) -> Run:
    """The run in one log.

    Raises:
        InputError: a malformed line, an invalid or an accuracy run, or no token latencies.
    """
    values = {}
    for line, words in enumerate(text.splitlines(), 1):
        if not words.startswith(MARK):
            continue
        try:
            entry = json_of(file, words[len(MARK) :])
            values[str(entry["key"])] = entry["value"]  # pyright: ignore[reportIndexIssue]
        except (ValueError, KeyError, TypeError, IndexError):
            raise Cells(file, line, {}).error("entry", words, ":::MLLOG and an object") from None
    cells = Cells(file, 0, values)
    validity = cells.text("result_validity")
    if validity != "VALID":
        raise cells.error("result_validity", validity or "missing", "VALID: a run that went well")
    if cells.text("effective_test_mode") == "AccuracyOnly":
        raise cells.error("effective_test_mode", "AccuracyOnly", "a performance run")
    times = {name: _statistic(cells, *keys) for name, keys in TIMES.items()}
    if not times["ttft"].values:
        key = "result_first_token_99.00_percentile_latency_ns"
        raise cells.error(key, "missing", "a log with token latencies (use_token_latencies)")
    server = cells.text("effective_scenario") == "Server"
    completed = cells.number("result_completed_tokens_per_second")
    return read_run(
        cells,
        COLUMNS,
        source="mlperf",
        request_rate=cells.number("effective_target_qps") if server else None,
        burstiness=1.0 if server else None,  # LoadGen's Server scenario is Poisson
        output_throughput=completed or cells.number("result_tokens_per_second"),
        **times,
    )


def _statistic(cells: Cells, mean: str, percentiles: str) -> Statistic:
    matches = (re.fullmatch(percentiles, key) for key in cells.values)
    names = {mean: "mean"} | {m[0]: f"p{float(m[1]):g}" for m in matches if m}
    return statistic_of({name: cells.number(key, 1e-9) for key, name in names.items()})
