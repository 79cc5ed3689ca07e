"""Reads measured runs of every known format, recognised by content."""

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from infer_jax.catalog.cells import MAX_BYTES, Cells, contents
from infer_jax.catalog.foreign import json_lines, read_json, read_toml
from infer_jax.catalog.measurements import aiperf, clients, kernels, logs, silicon, table
from infer_jax.catalog.measurements.run import NUMBERS, TEXTS, Run
from infer_jax.errors import InputError

# s: no request waits three hours for a token, no chip makes one in a microsecond
BOUNDS = {"ttft": (1e-4, 10800.0), "tpot": (1e-6, 60.0), "itl": (0.0, 60.0)}
POSITIVE = ("isl", "osl", "concurrency", "request_rate", "chips", "tp", "dp", "pp", "ep")
POSITIVE += ("max_num_seqs", "max_num_batched_tokens")
MAX_FAILED = 0.01  # share of failed requests above which a run is refused
MIN_IN_FLIGHT, MAX_IN_FLIGHT = 0.05, 1.5  # requests in flight over the stated concurrency
MAX_RATIO = 1.5  # between two TPOTs of one configuration on one day


def believable(run: Run) -> Run:
    """The run, if nothing in it is impossible.

    Raises:
        InputError: a failed or rate-limited run, no time at all, an impossible time or
            length, or times that do not fit the throughput.
    """
    for field, value, allowed in _problems(run):
        raise InputError(run.place, field, value, allowed)
    return run


def _problems(run: Run) -> Iterator[tuple[str, object, str]]:
    """What is impossible: field, value, and what would be allowed."""
    if run.completed == 0.0:
        yield "completed", 0, "a run with completed requests"
    if run.rate_limited:
        allowed = "0: a rate-limited run measures the limit, not the server"
        yield "rate-limited requests", run.rate_limited, allowed
    if run.failed > MAX_FAILED * ((run.completed or 0.0) + run.failed):
        yield "failed", run.failed, f"at most {MAX_FAILED:.0%} of the requests"
    if run.ttft.typical is None and run.tpot.typical is None:
        yield "ttft and tpot", "missing", "a run with at least one of them"
    for name, (low, high) in BOUNDS.items():
        for value in getattr(run, name).values:
            no_pace = name == "tpot" and value == 0.0 and run.osl == 1.0
            if not low <= value <= high and not no_pace:
                yield f"{name} (s)", value, f"{low:g} to {high:g} s"
    for name in POSITIVE:
        if getattr(run, name) == 0.0:
            yield name, 0, "a number above 0"
    if run.prefix is not None and run.isl is not None and run.prefix > run.isl:
        yield "prefix", run.prefix, f"at most isl = {run.isl:g}"
    # Little's law: with times in the wrong unit it is off by a factor of a thousand
    rate, latency = _rate(run), _latency(run)
    if run.concurrency is not None and rate is not None and latency is not None:
        full = (run.completed or run.concurrency) >= run.concurrency
        low = MIN_IN_FLIGHT * run.concurrency if run.loop == "closed" and full else 0.0
        high = MAX_IN_FLIGHT * run.concurrency
        if not low <= rate * latency <= high:
            allowed = f"{low:g} to {high:g} at concurrency {run.concurrency:g}"
            field = "throughput x latency (requests in flight)"
            yield field, f"{rate * latency:.4g}", f"{allowed}: are the units right?"


def _rate(run: Run) -> float | None:
    """Requests per second."""
    if run.request_throughput is not None:
        return run.request_throughput
    if run.completed and run.duration:
        return run.completed / run.duration
    if run.output_throughput is not None and run.osl:
        return run.output_throughput / run.osl
    return None


def _latency(run: Run) -> float | None:
    """Time of a whole request (s): measured, else TTFT + (O - 1) TPOT."""
    ttft, tpot = run.ttft.typical, run.tpot.typical
    if run.e2el.typical is not None or ttft is None or tpot is None or run.osl is None:
        return run.e2el.typical
    return ttft + (run.osl - 1.0) * tpot


def distinct(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The runs without second entries of a measurement.

    Raises:
        InputError: two entries of one configuration and day whose TPOTs contradict.
    """
    entries: set[tuple] = set()
    extremes: dict[tuple, dict[float, Run]] = {}  # of a configuration, by their TPOTs
    distinct_runs = []
    for run in runs:
        same = _configuration(run)
        entry = (same, (run.ttft, run.tpot, run.e2el, run.output_throughput))
        if entry in entries:
            continue
        entries.add(entry)
        distinct_runs.append(run)
        if a := run.tpot.typical:
            known = extremes.setdefault(same, {})
            for b, other in known.items():
                if max(a / b, b / a) > MAX_RATIO:
                    allowed = f"within a factor {MAX_RATIO} of {b:g} s in {other.place}, of the "
                    allowed += "same configuration; or say in what they differ"
                    raise InputError(run.place, "tpot (s)", a, allowed)
            known.setdefault(a, run)
            extremes[same] = {tpot: known[tpot] for tpot in (min(known), max(known))}
    return tuple(distinct_runs)


def _configuration(run: Run) -> tuple:
    """All fields in which two runs could differ legitimately."""
    deployment = (run.engine, run.version, run.model, run.system, run.precision, run.pools)
    layout = (run.chips, run.tp, run.pp, run.dp, run.ep)
    load = (run.isl, run.osl, run.prefix, run.concurrency, run.request_rate, run.burstiness)
    method = run.speculation.method if run.speculation else ""
    day = "".join(letter for letter in run.date or "" if letter.isdigit())[:8]
    return (*deployment, *layout, *load, method, day)


FACTS = (*TEXTS, *NUMBERS, "completed", "max_num_seqs", "max_num_batched_tokens")


def check_facts(where: str, values: Mapping[str, object]) -> dict[str, object]:
    """Facts as texts and floats; None is left out.

    Raises:
        InputError: an unknown name or a malformed value.
    """
    cells, facts = Cells(where, 0, values), dict[str, object]()
    for name, value in values.items():
        if value is None:
            continue
        if name not in FACTS:
            raise cells.error(name, value, f"a fact among {', '.join(FACTS)}")
        facts[name] = cells.text(name) if name in TEXTS else cells.number(name)
        if facts[name] in (None, ""):
            allowed = "a text" if name in TEXTS else "a number of at least 0"
            raise cells.error(name, value, allowed)
    return facts


def read_sidecar(path: str | os.PathLike[str]) -> dict[str, dict[str, object]]:
    """Facts by file name; those for every file under ``""``.

    Raises:
        InputError: unreadable, an unknown fact, a malformed value.
    """
    table = (read_json if Path(path).suffix.lower() == ".json" else read_toml)(path)
    common = {name: value for name, value in table.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in table.items() if isinstance(value, dict)}
    return {"": check_facts(str(path), common)} | {
        name: check_facts(f"{path}, table {name}", value) for name, value in tables.items()
    }


def complete(
    run: Run, sidecar: Mapping[str, Mapping[str, object]], flags: Mapping[str, object]
) -> Run:
    """The run with the facts that its file leaves open; a flag outranks the sidecar.

    Raises:
        InputError: a fact that contradicts the file, or chips that tp x dp x pp do not make.
    """
    facts = {**sidecar.get("", {}), **sidecar.get(Path(run.file).name, {}), **flags}
    for name, value in facts.items():
        stated = getattr(run, name)
        if stated is not None and stated != value:
            given = f"{value:.12g}" if isinstance(value, float) else value
            allowed = f"{given}, as an option or a sidecar says; what a file says need not be given"
            raise InputError(run.place, name, stated, allowed)
    run = run.replace(**facts)
    if run.tp is None or run.pools:
        return run
    if not run.tp:
        raise InputError(run.place, "tp", run.tp, "a number above 0")
    product = run.tp * (run.dp or 1.0) * (run.pp or 1.0)
    if run.chips is not None and run.chips % product:
        allowed = f"a multiple of tp x dp x pp = {product:g}"
        raise InputError(run.place, "chips", run.chips, allowed)
    return run.replace(chips=product) if run.chips is None else run


SUFFIXES = (".json", ".jsonl", ".csv", ".txt")  # of the files of a folder that are read
# how a format is read: texts of one or many runs, JSON objects with these keys, a run each
TEXT_FORMATS = (
    (logs.is_mlperf, logs.read_mlperf),
    (aiperf.is_table, aiperf.read_table),
    (silicon.is_table, silicon.runs_of),
    (table.is_table, table.read),
)
KEYED_FORMATS = (
    ({"backend", "dataset_name", "completed", "mean_ttft_ms"}, clients.read_sglang),
    ({"model_id", "num_prompts", "completed"}, clients.read_vllm),
    ({"hw", "framework", "tput_per_gpu"}, clients.read_inferencex),
)
FORMATS = (
    "a result of vLLM's bench serve, SGLang's bench_serving, AIPerf, InferenceX or MLPerf, a log "
    "of requests, or a CSV with the header of docs/formats.md"
)

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def read_runs(
    paths: Paths, sidecar: str | os.PathLike[str] | None = None, **facts: object
) -> tuple[Run, ...]:
    """The runs in files of any known format, checked, completed and without duplicates.

    Args:
        paths: files, folders (all .json, .jsonl, .csv and .txt files in them) or patterns.
        sidecar: TOML or JSON of facts that the files do not contain; see
            `infer_jax.catalog.measurements.reading`.
        **facts: the same for all files: engine, model, system, tp, ...

    Raises:
        InputError: a file of the wrong kind, a malformed or an impossible value, a failed or
            rate-limited run, entries that contradict each other or a fact.
    """
    flags = check_facts("facts", facts)
    by_file = read_sidecar(sidecar) if sidecar is not None else {}
    files = (path for path in _files(paths) if sidecar is None or path != Path(sidecar))
    runs = (run for path in files for run in _of_file(path))
    return distinct(believable(complete(run, by_file, flags)) for run in runs)


def _files(paths: Paths) -> Iterator[Path]:
    for name in [paths] if isinstance(paths, str | os.PathLike) else paths:
        path = Path(name)
        files = [path]
        if logs.is_bundle(path):
            files = [path / logs.REQUESTS]
        elif path.is_dir():
            try:
                files = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES)
            except OSError as error:
                reason = (error.strerror or type(error).__name__).lower()
                raise InputError(str(path), "", reason, "a readable folder") from None
        elif any(mark in str(name) for mark in "*?[") and not path.exists():
            files = [Path(match) for match in sorted(glob.glob(str(name)))]
        if not files:
            raise InputError(str(name), "", "no file", FORMATS)
        yield from files


def _of_file(path: Path) -> Iterator[Run]:
    file, text = str(path), contents(path)
    read = next((read for is_of, read in TEXT_FORMATS if is_of(text)), None)
    if read is not None:
        yield from read(file, text)
    elif text.lstrip()[:1] in "{[":
        yield from _of_documents(file, json_lines(file, text, MAX_BYTES))
    else:
        kind = "kernel measurements" if kernels.is_nccl_tests(text) else "unrecognised contents"
        raise InputError(file, "", kind, FORMATS)


def _of_documents(file: str, documents: list[tuple[int, object]]) -> Iterator[Run]:
    records = [(n, x) for n, x in documents if isinstance(x, dict) and aiperf.is_record(x)]
    if documents and len(records) == len(documents):
        yield aiperf.read_records(file, records)
    elif documents and logs.is_request(documents[0][1]):
        yield logs.read_requests(file)
    else:
        for line, value in documents:
            if isinstance(value, list):
                yield from (_of_object(file, i, x, "entry") for i, x in enumerate(value, 1))
            else:
                yield _of_object(file, line, value, "line")


def _of_object(file: str, number: int, value: object, unit: str) -> Run:
    if isinstance(value, dict):
        readers = (read for keys, read in KEYED_FORMATS if keys <= value.keys())
        read = next(readers, aiperf.read if aiperf.is_object(value) else None)
        if read is not None:
            return read(Cells(file, number, value, unit))
    at = f"{unit} {number}" if number else ""
    raise InputError(file, at, "unrecognised contents", FORMATS)
