"""Reads a server's log of requests as one run; ``meta.json`` beside it describes the server.

The logs are those of LLMServingSim's benchmark of vLLM: one request on each line, with its tokens,
its arrival, and the engine's times of queueing, first token and last token.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from infer_jax.catalog.foreign import json_of
from infer_jax.catalog.measurements.cells import MAX_BYTES, Cells, contents, statistic_over
from infer_jax.catalog.measurements.run import Run, Speculation
from infer_jax.errors import InputError

REQUESTS, META = "requests.jsonl", "meta.json"
COLUMNS = {"input_toks", "output_toks", "arrival_time", "first_token_ts", "last_token_ts"}
# numbers of a run by the engine's arguments
ARGUMENTS = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
}


def is_bundle(folder: Path) -> bool:
    """True for a folder of one run: its requests, and its server's arguments."""
    return (folder / REQUESTS).is_file() and (folder / META).is_file()


def recognises(value: object) -> bool:
    """True for a line of such a log."""
    return isinstance(value, dict) and set(value) >= COLUMNS


def read(file: str) -> Run:
    """The run in a log of requests.

    Raises:
        InputError: see ``read_trace``; a ``meta.json`` beside it that is not understood, or of
            another number of requests.
    """
    from infer_jax.catalog.traces import read_trace  # which reads cells by this package

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
        ttft=statistic_over((trace.first - trace.arrivals).tolist()),
        tpot=statistic_over(((trace.last - trace.first) / after)[trace.osl > 1].tolist()),
        e2el=statistic_over((trace.last - trace.arrivals).tolist()),
        duration=float(trace.last.max()),
        completed=count,
    )
    meta = Path(file).with_name(META)
    return run.replace(**_facts(meta, count)) if meta.is_file() else run


def _facts(path: Path, count: float) -> Mapping[str, object]:
    """The server of a log by its engine's arguments, as vLLM names them."""
    file = str(path)
    values = json_of(file, contents(path), MAX_BYTES)
    cells = Cells(file, 0, values if isinstance(values, dict) else {})
    logged = cells.number("num_requests")
    if logged is not None and logged != count:
        raise cells.error("num_requests", logged, f"{count:g}, the requests in {REQUESTS}")
    engine, version = cells.part("engine_kwargs"), cells.text("vllm_version")
    numbers = {field: engine.number(key) for field, key in ARGUMENTS.items()}
    experts = (numbers["tp"] or 1.0) * (numbers["dp"] or 1.0)
    return {
        **numbers,
        "engine": None if version is None else "vllm",
        "version": version,
        "model": cells.text("model") or engine.text("model"),
        "ep": experts if engine.flag("enable_expert_parallel") else None,
        "speculation": Speculation() if engine.values.get("speculative_config") else None,
    }
