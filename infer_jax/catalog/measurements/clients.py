"""Reads results of ``vllm bench serve`` and of SGLang's ``bench_serving``: one JSON object a run.

SGLang's client grew out of vLLM's; so did that of InferenceX, which writes seconds without the
suffix ``_ms``. TPOT is (latency - TTFT) / (tokens - 1) of each request. vLLM's names neither chips
nor parallelism, unless given as ``--metadata``, whose keys stand beside the others; newer ones of
SGLang add the server's own settings.
"""

import math
from collections.abc import Mapping

from infer_jax.catalog.cells import Cells
from infer_jax.catalog.measurements.run import Run, Speculation, read_record, read_run

ENGINES = ("vllm", "sglang", "tensorrt-llm", "trtllm")
LIMITED = ("429", "rate limit", "too many requests")
SHARED = {
    "input_lens": "input_lens",
    "output_lens": "output_lens",
    "concurrency": "max_concurrency",
}
TOTALS = ("request_throughput", "output_throughput", "duration", "completed")
METADATA = ("chips", "tp", "pp", "dp", "ep", "version", "system", "date", "precision", "burstiness")
SHARED |= {name: name for name in TOTALS}
SHARED |= {name: f"{{}}_{name}_ms {{}}_{name}" for name in ("ttft", "tpot", "itl", "e2el")}
VLLM = {**SHARED, "model": "model_id", **{name: name for name in METADATA}}
SGLANG = {
    **SHARED,
    "e2el": "{}_e2e_latency_ms",
    "version": "server_info.version",
    "model": "server_info.model_path",
    "pp": "server_info.pp_size",
    "ep": "server_info.ep_size",
}
DRAFTS = {
    "acceptance_length": "spec_decode_acceptance_length",
    "drafts": "spec_decode_num_drafts",
    "draft_tokens": "spec_decode_draft_tokens",
    "accepted_tokens": "spec_decode_accepted_tokens",
    "per_position": "spec_decode_per_position_acceptance_rates",
}


def is_vllm(value: Mapping[str, object]) -> bool:
    """True for an object with the keys of vLLM's client."""
    return {"model_id", "num_prompts", "completed"} <= set(value)


def is_sglang(value: Mapping[str, object]) -> bool:
    """True for an object with the keys of SGLang's client."""
    return {"backend", "dataset_name", "completed", "mean_ttft_ms"} <= set(value)


def read_vllm(cells: Cells) -> Run:
    """The run in one result of vLLM's client.

    Raises:
        InputError: no times in it, or a malformed value.
    """
    drafts, prompts = None, cells.number("num_prompts")
    if any(key.startswith("spec_decode_") for key in cells.values):
        rate = cells.number("spec_decode_acceptance_rate", 1e-2)  # written in percent
        drafts = read_record(Speculation, cells, DRAFTS, acceptance_rate=rate)
    # the client's backend may name the engine ("openai" is any server)
    names = ((cells.text(key) or "").lower() for key in ("engine", "backend", "endpoint_type"))
    engine = next((name for name in names if name in ENGINES), None)
    run = _run(cells, VLLM, source="vllm", engine=engine, speculation=drafts)
    if not run.ttft.values:
        unit = "_ms" if any(key.endswith("_ttft_ms") for key in cells.values) else ""
        raise cells.error(f"mean_ttft{unit}", "missing", "a run of a generating model, streamed")
    if run.failed == 0.0 and prompts and run.completed is not None:
        run = run.replace(failed=max(prompts - run.completed, 0.0))
    return run


def read_sglang(cells: Cells) -> Run:
    """The run in one line of SGLang's client.

    Raises:
        InputError: a malformed value.
    """
    tp, dp = cells.number("server_info.tp_size"), cells.number("server_info.dp_size")
    if tp and dp and cells.flag("server_info.enable_dp_attention"):
        tp = tp / dp  # SGLang's tp counts the chips that data-parallel attention divides
    accept, engine = cells.number("accept_length"), cells.text("backend")
    engine = "sglang" if engine and engine.startswith("sglang") else engine
    drafts = Speculation(acceptance_length=accept) if accept else None
    return _run(cells, SGLANG, source="sglang", engine=engine, tp=tp, dp=dp, speculation=drafts)


def _run(cells: Cells, columns: Mapping[str, str], **fields: object) -> Run:
    """A run with mean lengths, the rate of an open loop, and the requests that failed."""
    completed, errors = cells.number("completed"), cells.value("errors") or []
    for field, name in {"isl": "total_input_tokens", "osl": "total_output_tokens"}.items():
        total = cells.number(name)
        fields[field] = total / completed if total is not None and completed else None
    if cells.value("request_rate") not in ("inf", "Infinity", math.inf):
        fields["request_rate"] = cells.number("request_rate")
    if not isinstance(errors, list):
        raise cells.error("errors", errors, "a list of texts")
    messages = [str(error).lower() for error in errors if error]
    limited = sum(any(word in message for word in LIMITED) for message in messages)
    failed = max(cells.number("failed") or 0.0, float(len(messages)))
    return read_run(cells, columns, failed=failed, rate_limited=float(limited), **fields)
