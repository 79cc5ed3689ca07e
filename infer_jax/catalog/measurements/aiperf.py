"""Reads profiles of AIPerf and genai-perf: JSON, CSV, or a record of requests.

Every metric carries its own unit, which is converted; inter-token latency is the request's
latency after the first token over the tokens after it: TPOT as it is meant here.
"""

from collections.abc import Iterable, Mapping, Sequence

from infer_jax.catalog.foreign import csv_rows
from infer_jax.catalog.measurements.cells import Cells, read_run, statistic_of, statistic_over
from infer_jax.catalog.measurements.run import Run, Statistic

UNITS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
TIMES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "request_latency": "e2el",
}
MEANS = {
    "input_sequence_length": "isl",
    "output_sequence_length": "osl",
    "request_throughput": "request_throughput",
    "output_token_throughput": "output_throughput",
    "request_count": "completed",
}
COUNTS = {
    "request_throughput": ("requests/sec", "requests/s", "per sec"),
    "output_token_throughput": ("tokens/sec", "tokens/s"),
    "input_sequence_length": ("tokens",),
    "output_sequence_length": ("tokens",),
    "request_count": ("requests", "count"),
    "error_request_count": ("requests", "count"),
}


def recognises(value: object) -> bool:
    """True for a profile: an object of metrics, each with its unit."""
    if not isinstance(value, dict):
        return False
    metrics = value.get("records", value)
    latency = metrics.get("request_latency") if isinstance(metrics, dict) else None
    return isinstance(latency, dict) and "unit" in latency


def recognises_record(value: object) -> bool:
    """True for a line of ``profile_export.jsonl``: one request."""
    if not isinstance(value, dict):
        return False
    metrics, metadata = value.get("metrics"), value.get("metadata")
    return (
        isinstance(metrics, dict) and isinstance(metadata, dict) and "request_start_ns" in metadata
    )


def recognises_table(text: str) -> bool:
    """True for a CSV that begins with AIPerf's header."""
    return text.lstrip().lower().startswith("metric,avg,")


def read(cells: Cells) -> Run:
    """The run in one profile.

    Raises:
        InputError: a metric in an unknown unit, a malformed value, a cancelled run.
    """
    if cells.flag("was_cancelled"):
        raise cells.error("was_cancelled", "true", "a run that went to its end")
    metrics = cells.part("records") if "records" in cells.values else cells
    times = {name: _metric(metrics.part(_key(metrics, name)), name) for name in (*TIMES, *COUNTS)}
    config = cells.part("input_config")
    models = config.part("endpoint").values.get("model_names") or config.values.get("model_names")
    model = models[0] if isinstance(models, list) and models else None
    if models and not isinstance(model, str):
        raise config.error("model_names", models, "a list of texts")
    load = [config.part("loadgen"), config.part("perf_analyzer").part("stimulus"), config]
    run = _run(cells, times)
    failed, limited = _errors(cells)
    return run.replace(
        failed=max(run.failed, failed),
        rate_limited=limited,
        model=model,
        date=cells.text("start_time"),
        concurrency=_first(x.number("concurrency") for x in load),
        request_rate=_first(x.number("request_rate") for x in load),
    )


def read_table(file: str, text: str) -> Run:
    """The run in a CSV profile.

    Raises:
        InputError: as ``read``; a metric's name without a unit.
    """
    header: list[str] = []
    statistics: dict[str, Statistic] = {}
    for line, row in csv_rows(file, text):
        if row[0].lower() == "metric":
            header = row[1:]
            continue
        if len(row) < 2:
            continue
        title, _, unit = row[0].partition("(")
        name = "_".join(title.lower().replace("-", " ").split())
        if name in TIMES or name in COUNTS:
            keys = ["avg" if key == "Value" else key for key in header]
            metric = dict(zip(keys, row[1:], strict=False))
            metric = {"unit": unit.rstrip(") ").strip() or "count"} | metric
            statistics[name] = _metric(Cells(file, line, metric), name)
    statistics |= {name: Statistic() for name in (*TIMES, *COUNTS) if name not in statistics}
    return _run(Cells(file, 0, {}), statistics)


def read_records(file: str, records: Sequence[tuple[int, Mapping[str, object]]]) -> Run:
    """The run that records of single requests make up; its load must be given as a fact.

    Raises:
        InputError: no request completed, a metric in an unknown unit.
    """
    values: dict[str, list[float]] = {name: [] for name in (*TIMES, *COUNTS)}
    starts, ends, failed, limited = [], [], 0, 0
    for line, record in records:
        cells = Cells(file, line, record)
        if record.get("error"):
            failed += 1
            limited += "429" in str(record["error"])
            continue
        for name in values:
            metric = cells.part("metrics").part(name).values
            metric = {**metric, "avg": metric.get("value")} if metric else {}
            mean = _metric(Cells(file, line, metric), name).mean
            if mean is not None:
                values[name].append(mean)
        starts.append(cells.part("metadata").number("request_start_ns"))
        ends.append(cells.part("metadata").number("request_end_ns"))
    if not starts:
        raise Cells(file, 0, {}).error("requests completed", 0, "at least one")
    span = [x for x in (*starts, *ends) if x is not None]
    duration = (max(span) - min(span)) * 1e-9 if span else 0.0
    statistics = {name: statistic_over(metric) for name, metric in values.items()}
    run = _run(Cells(file, 0, {}), statistics)
    outputs = tuple(values["output_sequence_length"])
    return run.replace(
        completed=float(len(starts)),
        failed=float(failed),
        rate_limited=float(limited),
        duration=duration or None,
        request_throughput=len(starts) / duration if duration else None,
        output_throughput=sum(outputs) / duration if duration else None,
        input_lens=tuple(values["input_sequence_length"]),
        output_lens=outputs,
    )


def _errors(cells: Cells) -> tuple[float, float]:
    """(failed requests, of these the rejected ones) in the summary of errors."""
    counts = []
    for entry in cells.parts("error_summary"):
        number = entry.number("count")
        counts.append((1.0 if number is None else number, str(entry.values)))
    return sum(n for n, _ in counts), sum(n for n, text in counts if "429" in text)


def _run(cells: Cells, statistics: Mapping[str, Statistic]) -> Run:
    means = {field: statistics[name].mean for name, field in MEANS.items()}
    return read_run(
        cells,
        {},
        source="aiperf",
        failed=statistics["error_request_count"].mean or 0.0,
        **means,
        **{field: statistics[name] for name, field in TIMES.items()},
    )


def _key(metrics: Cells, name: str) -> str:
    """A metric's key: early versions abbreviated one."""
    return "ttft" if name == "time_to_first_token" and "ttft" in metrics.values else name


def _metric(cells: Cells, name: str) -> Statistic:
    """One metric in SI units.

    Raises:
        InputError: an unknown unit or a malformed value.
    """
    if not cells.values:
        return Statistic()
    unit = str(cells.values.get("unit", "")).strip().lower()
    allowed = UNITS if name in TIMES else dict.fromkeys(COUNTS[name], 1.0)
    if unit not in allowed:
        raise cells.error(f"{name}.unit", unit, " or ".join(allowed))
    scale = allowed[unit]
    return statistic_of(
        {
            key: value
            for key in cells.values
            if key in ("avg", "std") or (key[:1] == "p" and key[1:2].isdigit())
            if (value := cells.number(key, scale)) is not None
        }
    )


def _first(values: Iterable[float | None]) -> float | None:
    return next((value for value in values if value is not None), None)
