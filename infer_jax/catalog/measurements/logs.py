"""Reads logs as one run a file: detail logs of MLPerf Inference, and a server's log of requests.

MLPerf's have lines ``:::MLLOG {...}``. LoadGen's TPOT is (latency - first token) / (tokens - 1) of
each sample. They name no chips, lengths or engine: these come from flags or a sidecar.

Logs of requests are those of LLMServingSim's benchmark of vLLM: one request on each line, with its
tokens, its arrival, and the engine's times of queueing, first token and last token. ``meta.json``
beside one describes the server.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from infer_jax.catalog.cells import MAX_BYTES, Cells, Statistic, contents
from infer_jax.catalog.foreign import json_of
from infer_jax.catalog.measurements.run import Run, Speculation, read_run
from infer_jax.errors import InputError

MARK = ":::MLLOG"
MLPERF = {
    "ttft": "result_first_token_{}_latency_ns",
    "tpot": "result_time_per_output_token_{}_ns",
    "e2el": "result_{}_latency_ns",
    "request_throughput": "result_completed_samples_per_sec",
    "output_throughput": "result_completed_tokens_per_second",
    "completed": "result_query_count",
}
REQUESTS, META = "requests.jsonl", "meta.json"
LOGGED = {"input_toks", "output_toks", "arrival_time", "first_token_ts", "last_token_ts"}
SERVER = {
    "tp": "engine_kwargs.tensor_parallel_size",
    "pp": "engine_kwargs.pipeline_parallel_size",
    "dp": "engine_kwargs.data_parallel_size",
    "max_num_seqs": "engine_kwargs.max_num_seqs",
    "max_num_batched_tokens": "engine_kwargs.max_num_batched_tokens",
    "version": "vllm_version",
    "model": "model engine_kwargs.model",
}


def is_mlperf(text: str) -> bool:
    """True for a detail log."""
    return MARK in text[:65536]


def read_mlperf(file: str, text: str) -> Iterator[Run]:
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
    load = {}
    if cells.text("effective_scenario") == "Server":  # LoadGen's Server scenario is Poisson
        load = {"request_rate": cells.number("effective_target_qps"), "burstiness": 1.0}
    run = read_run(cells, MLPERF, source="mlperf", **load)
    if not run.ttft.values:
        key = "result_first_token_99.00_percentile_latency_ns"
        raise cells.error(key, "missing", "a log with token latencies (use_token_latencies)")
    mean = cells.number("result_time_to_output_token_mean", 1e-9)
    rate = run.output_throughput or cells.number("result_tokens_per_second")
    yield run.replace(tpot=Statistic(mean, None, run.tpot.percentiles), output_throughput=rate)


def is_bundle(folder: Path) -> bool:
    """True for a folder of one run: its requests, and its server's arguments."""
    return (folder / REQUESTS).is_file() and (folder / META).is_file()


def is_request(value: object) -> bool:
    """True for a line of a log of requests."""
    return isinstance(value, dict) and set(value) >= LOGGED


def read_requests(file: str) -> Run:
    """The run in a log of requests.

    Raises:
        InputError: see ``read_trace``; a ``meta.json`` beside it that is not understood, or of
            another number of requests.
    """
    from infer_jax.catalog.traces import read_trace  # with the formats of traces

    trace = read_trace(file)
    if not len(trace.first):
        raise InputError(file, "first_token_ts", "missing in a request", "the times of every one")
    count, span = float(len(trace)), float(trace.arrivals[-1])
    after = np.maximum(trace.osl - 1.0, 1.0)
    run = Run(
        file=file,
        line=0,
        source="request log",
        isl=float(trace.isl.mean()),
        osl=float(trace.osl.mean()),
        input_lens=tuple(trace.isl.tolist()),
        output_lens=tuple(trace.osl.tolist()),
        concurrency=None if span > 0.0 else count,
        request_rate=(count - 1.0) / span if span > 0.0 else None,
        ttft=Statistic.over((trace.first - trace.arrivals).tolist()),
        tpot=Statistic.over(((trace.last - trace.first) / after)[trace.osl > 1].tolist()),
        e2el=Statistic.over((trace.last - trace.arrivals).tolist()),
        duration=float(trace.last.max()),
        completed=count,
    )
    meta = Path(file).with_name(META)
    return _of_server(run, meta) if meta.is_file() else run


def _of_server(run: Run, path: Path) -> Run:
    """The run with its server's arguments, as vLLM names them."""
    file = str(path)
    values = json_of(file, contents(path), MAX_BYTES)
    cells = Cells(file, 0, values if isinstance(values, dict) else {})
    logged = cells.number("num_requests")
    if logged is not None and logged != run.completed:
        allowed = f"{run.completed:g}, the requests in {REQUESTS}"
        raise cells.error("num_requests", logged, allowed)
    server = read_run(cells, SERVER)
    wide = cells.flag("engine_kwargs.enable_expert_parallel")
    drafts = cells.value("engine_kwargs.speculative_config")
    return run.replace(
        **{name: getattr(server, name) for name in SERVER},
        engine="vllm" if server.version else None,
        ep=(server.tp or 1.0) * (server.dp or 1.0) if wide else None,
        speculation=Speculation() if drafts else None,
    )
