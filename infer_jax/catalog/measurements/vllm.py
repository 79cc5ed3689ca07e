"""Reads results of ``vllm bench serve``: one JSON object a run.

Also the client that InferenceX forked from it, which writes seconds without the suffix ``_ms``.
TPOT is (latency - TTFT) / (tokens - 1) of each request. Neither names chips nor parallelism,
unless given as ``--metadata``, whose keys stand beside the others.
"""

import math

from infer_jax.catalog.foreign import Parsed
from infer_jax.catalog.measurements.cells import Cells, read_run
from infer_jax.catalog.measurements.run import Run, Speculation

ENGINES = ("vllm", "sglang", "tensorrt-llm", "trtllm")
LIMITED = ("429", "rate limit", "too many requests")
# of this client and of SGLang's, which grew out of it
TOTALS = ("request_throughput", "output_throughput", "duration", "completed")
SHARED = {name: name for name in ("input_lens", "output_lens", *TOTALS)}
SHARED["concurrency"] = "max_concurrency"
METADATA = ("chips", "tp", "pp", "dp", "ep", "version", "system", "date", "precision", "burstiness")
COLUMNS = {"model": "model_id", **SHARED, **{name: name for name in METADATA}}
DRAFTS = {"acceptance_length": "acceptance_length", "drafts": "num_drafts",
          "draft_tokens": "draft_tokens", "accepted_tokens": "accepted_tokens"}  # fmt: skip


def recognises(value: object) -> bool:
    """True for an object with this client's keys."""
    return isinstance(value, dict) and {"model_id", "num_prompts", "completed"} <= set(value)


def read(cells: Cells) -> Run:
    """The run in one result.

    Raises:
        InputError: no times in it, or a malformed value.
    """
    seconds = not any(key.endswith("_ttft_ms") for key in cells.values)
    unit, scale = ("", 1.0) if seconds else ("_ms", 1e-3)
    times = {name: (f"{name}{unit}", scale) for name in ("ttft", "tpot", "itl", "e2el")}
    failed, limited = failures(cells)
    # the client's backend may name the engine ("openai" is any server)
    names = (cells.text(key) or "" for key in ("engine", "backend", "endpoint_type"))
    run = read_run(
        cells,
        COLUMNS | times,
        source="vllm",
        engine=next((name.lower() for name in names if name.lower() in ENGINES), None),
        request_rate=request_rate(cells),
        rate_limited=limited,
        speculation=speculation(cells),
        **lengths(cells),
    )
    prompts = cells.number("num_prompts")
    if failed == 0.0 and prompts and run.completed is not None:
        failed = max(prompts - run.completed, 0.0)
    if not run.ttft.values:
        raise cells.error(f"mean_ttft{unit}", "missing", "a run of a generating model, streamed")
    return run.replace(failed=failed)


def request_rate(cells: Cells) -> float | None:
    """Requests per second of an open loop; None where the rate is infinite or not given.

    Raises:
        InputError: neither a number nor infinite.
    """
    value = cells.values.get("request_rate")
    if value in ("inf", "Infinity", math.inf):
        return None
    return cells.number("request_rate")


def lengths(cells: Cells) -> dict[str, float | None]:
    """Tokens of the mean completed request, in and out; None where the file has no totals."""
    completed = cells.number("completed")
    totals = {"isl": cells.number("total_input_tokens"), "osl": cells.number("total_output_tokens")}
    return {k: x / completed if x is not None and completed else None for k, x in totals.items()}


def failures(cells: Cells) -> tuple[float, float]:
    """(failed requests, those of them turned away by a rate limit).

    Raises:
        InputError: a malformed count or list of errors.
    """
    errors = cells.values.get("errors") or []
    if not isinstance(errors, list):
        raise cells.error("errors", errors, "a list of texts")
    messages = [str(error).lower() for error in errors if error]
    limited = sum(any(word in message for word in LIMITED) for message in messages)
    return max(cells.number("failed") or 0.0, float(len(messages))), float(limited)


def speculation(cells: Cells) -> Speculation | None:
    """vLLM's counts of drafts; it writes the acceptance rate in percent.

    Raises:
        InputError: a malformed value.
    """
    if not any(key.startswith("spec_decode_") for key in cells.values):
        return None
    counts: Parsed = {field: cells.number(f"spec_decode_{key}") for field, key in DRAFTS.items()}
    rate = cells.number("spec_decode_acceptance_rate", 1e-2)
    ranks = cells.numbers("spec_decode_per_position_acceptance_rates")
    return Speculation(acceptance_rate=rate, per_position=ranks, **counts)
