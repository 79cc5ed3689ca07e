"""Reads profiles of AIPerf and genai-perf: JSON, CSV, or a record of requests.

Every metric carries its own unit, which is converted; inter-token latency is the request's
latency after the first token over the tokens after it: TPOT as it is meant here.
"""

from collections.abc import Iterator, Mapping, Sequence

from infer_jax.catalog.cells import Cells, Statistic
from infer_jax.catalog.foreign import csv_rows
from infer_jax.catalog.measurements.run import Run, read_run

SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
REQUESTS, TOKENS = {"requests": 1.0, "count": 1.0}, {"tokens": 1.0}
# by metric: the field of a run, and the factors of its units
METRICS = {
    "time_to_first_token": ("ttft", SECONDS),
    "inter_token_latency": ("tpot", SECONDS),
    "request_latency": ("e2el", SECONDS),
    "input_sequence_length": ("isl", TOKENS),
    "output_sequence_length": ("osl", TOKENS),
    "request_throughput": (
        "request_throughput",
        {"requests/sec": 1.0, "requests/s": 1.0, "per sec": 1.0},
    ),
    "output_token_throughput": ("output_throughput", {"tokens/sec": 1.0, "tokens/s": 1.0}),
    "request_count": ("completed", REQUESTS),
    "error_request_count": ("failed", REQUESTS),
}
CONFIG = "input_config."
LOADS = (f"{CONFIG}loadgen.", f"{CONFIG}perf_analyzer.stimulus.", CONFIG)  # in this order
OPTIONS = {
    "date": "start_time",
    "concurrency": " ".join(f"{place}concurrency" for place in LOADS),
    "request_rate": " ".join(f"{place}request_rate" for place in LOADS),
}


def is_object(value: Mapping[str, object]) -> bool:
    """True for a profile: an object of metrics, each with its unit."""
    metrics = value.get("records", value)
    latency = metrics.get("request_latency") if isinstance(metrics, dict) else None
    return isinstance(latency, dict) and "unit" in latency


def is_record(value: object) -> bool:
    """True for a line of ``profile_export.jsonl``: one request."""
    cells = Cells("", 0, value if isinstance(value, dict) else {})
    has_start = "request_start_ns" in cells.part("metadata").values
    return has_start and isinstance(cells.value("metrics"), dict)


def is_table(text: str) -> bool:
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
    early = {"time_to_first_token": "ttft"} if "ttft" in metrics.values else {}
    parts = {name: metrics.part(early.get(name, name)) for name in METRICS}
    run = _run(cells, {name: _metric(part, name) for name, part in parts.items()}, OPTIONS)
    names = (f"{CONFIG}endpoint.model_names", f"{CONFIG}model_names")
    models = next((x for name in names if (x := cells.value(name))), None)
    model = models[0] if isinstance(models, list) else None
    if models and not isinstance(model, str):
        raise cells.error("model_names", models, "a list of texts")
    failed, limited = 0.0, 0.0
    for error in cells.parts("error_summary"):
        count = 1.0 if (n := error.number("count")) is None else n
        failed += count
        limited += count if "429" in str(error.values) else 0.0
    return run.replace(model=model, failed=max(run.failed, failed), rate_limited=limited)


def read_table(file: str, text: str) -> Iterator[Run]:
    """The run in a CSV profile.

    Raises:
        InputError: as ``read``; a metric's name without a unit.
    """
    header: list[str] = []
    statistics: dict[str, Statistic] = {}
    for line, row in csv_rows(file, text):
        if row[0].lower() == "metric":
            header = ["avg" if key == "Value" else key for key in row[1:]]
            continue
        title, _, unit = row[0].partition("(")
        name = "_".join(title.lower().replace("-", " ").split())
        if len(row) > 1 and name in METRICS:
            metric = dict(zip(header, row[1:], strict=False))
            metric = {"unit": unit.rstrip(") ").strip() or "count"} | metric
            statistics[name] = _metric(Cells(file, line, metric), name)
    yield _run(Cells(file, 0, {}), statistics)


def read_records(file: str, records: Sequence[tuple[int, Mapping[str, object]]]) -> Run:
    """The run that records of single requests make up; its load must be given as a fact.

    Raises:
        InputError: no request completed, a metric in an unknown unit.
    """
    values: dict[str, list[float]] = {name: [] for name in METRICS}
    span, completed, failed, limited = [], 0, 0, 0
    for line, record in records:
        cells = Cells(file, line, record)
        if record.get("error"):
            failed += 1
            limited += "429" in str(record["error"])
            continue
        completed += 1
        for name in METRICS:
            metric = cells.part("metrics").part(name).values
            metric = {**metric, "avg": metric.get("value")} if metric else {}
            mean = _metric(Cells(file, line, metric), name).mean
            if mean is not None:
                values[name].append(mean)
        ends = map(cells.part("metadata").number, ("request_start_ns", "request_end_ns"))
        span += [end for end in ends if end is not None]
    if not completed:
        raise Cells(file, 0, {}).error("requests completed", 0, "at least one")
    duration = (max(span) - min(span)) * 1e-9 if span else 0.0
    run = _run(Cells(file, 0, {}), {name: Statistic.over(x) for name, x in values.items()})
    outputs = tuple(values["output_sequence_length"])
    return run.replace(
        completed=float(completed),
        failed=float(failed),
        rate_limited=float(limited),
        duration=duration or None,
        request_throughput=completed / duration if duration else None,
        output_throughput=sum(outputs) / duration if duration else None,
        input_lens=tuple(values["input_sequence_length"]),
        output_lens=outputs,
    )


def _run(
    cells: Cells, statistics: Mapping[str, Statistic], columns: Mapping[str, str] | None = None
) -> Run:
    fields: dict[str, object] = {}
    for name, statistic in statistics.items():
        field, units = METRICS[name]
        fields[field] = statistic if units is SECONDS else statistic.mean
    fields["failed"] = fields.get("failed") or 0.0
    return read_run(cells, columns or {}, source="aiperf", **fields)


def _metric(cells: Cells, name: str) -> Statistic:
    """One metric in SI units.

    Raises:
        InputError: an unknown unit or a malformed value.
    """
    if not cells.values:
        return Statistic()
    unit, (_, units) = str(cells.values.get("unit", "")).strip().lower(), METRICS[name]
    if unit not in units:
        raise cells.error(f"{name}.unit", unit, " or ".join(units))
    return cells.statistic({"{}": units[unit]})
