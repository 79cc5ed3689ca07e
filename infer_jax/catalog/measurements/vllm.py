"""Reads results of ``vllm bench serve``: one JSON object a run.

Also the client that InferenceX forked from it, which writes seconds without the suffix ``_ms``.
TPOT is (latency - TTFT) / (tokens - 1) of each request. Neither names chips nor parallelism,
unless given as ``--metadata``, whose keys stand beside the others.
"""

import math

from infer_jax.catalog.measurements.cells import Cells
from infer_jax.catalog.measurements.run import Run, Speculation

ENGINES = ("vllm", "sglang", "tensorrt-llm", "trtllm")
LIMITED = ("429", "rate limit", "too many requests")


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
    completed = cells.number("completed")
    failed, limited = failures(cells)
    prompts = cells.number("num_prompts")
    if failed == 0.0 and prompts and completed is not None:
        failed = max(prompts - completed, 0.0)
    total_in, total_out = cells.number("total_input_tokens"), cells.number("total_output_tokens")
    ttft = cells.statistic(f"ttft{unit}", scale)
    if not ttft.values:
        raise cells.error(f"mean_ttft{unit}", "missing", "a run of a generating model, streamed")
    return Run(
        **cells.place,
        chips=cells.number("chips"),
        tp=cells.number("tp"),
        pp=cells.number("pp"),
        dp=cells.number("dp"),
        ep=cells.number("ep"),
        source="vllm",
        engine=_engine(cells),
        version=cells.text("version"),
        model=cells.text("model_id"),
        system=cells.text("system"),
        date=cells.text("date"),
        precision=cells.text("precision"),
        isl=per_request(total_in, completed),
        osl=per_request(total_out, completed),
        input_lens=cells.numbers("input_lens"),
        output_lens=cells.numbers("output_lens"),
        concurrency=cells.number("max_concurrency"),
        request_rate=request_rate(cells),
        burstiness=cells.number("burstiness"),
        ttft=ttft,
        tpot=cells.statistic(f"tpot{unit}", scale),
        itl=cells.statistic(f"itl{unit}", scale),
        e2el=cells.statistic(f"e2el{unit}", scale),
        request_throughput=cells.number("request_throughput"),
        output_throughput=cells.number("output_throughput"),
        duration=cells.number("duration"),
        completed=completed,
        failed=failed,
        rate_limited=limited,
        speculation=speculation(cells),
    )


def request_rate(cells: Cells) -> float | None:
    """Requests per second of an open loop; None where the rate is infinite or not given.

    Raises:
        InputError: neither a number nor infinite.
    """
    value = cells.values.get("request_rate")
    if value in ("inf", "Infinity", math.inf):
        return None
    return cells.number("request_rate")


def per_request(total: float | None, completed: float | None) -> float | None:
    """Tokens a completed request; None where that is not in the file."""
    return total / completed if total is not None and completed else None


def failures(cells: Cells) -> tuple[float, float]:
    """(failed requests, those of them turned away by a rate limit).

    Raises:
        InputError: a malformed count or list of errors.
    """
    errors = cells.values.get("errors") or []
    if not isinstance(errors, list):
        raise cells.error("errors", errors, "a list of texts")
    said = [str(error).lower() for error in errors if error]
    limited = sum(any(word in error for word in LIMITED) for error in said)
    return max(cells.number("failed") or 0.0, float(len(said))), float(limited)


def speculation(cells: Cells) -> Speculation | None:
    """vLLM's counts of drafts; it writes the acceptance rate in percent.

    Raises:
        InputError: a malformed value.
    """
    if not any(key.startswith("spec_decode_") for key in cells.values):
        return None
    return Speculation(
        acceptance_rate=cells.number("spec_decode_acceptance_rate", 1e-2),
        acceptance_length=cells.number("spec_decode_acceptance_length"),
        drafts=cells.number("spec_decode_num_drafts"),
        draft_tokens=cells.number("spec_decode_draft_tokens"),
        accepted_tokens=cells.number("spec_decode_accepted_tokens"),
        per_position=cells.numbers("spec_decode_per_position_acceptance_rates"),
    )


def _engine(cells: Cells) -> str | None:
    """The engine where the client's backend names one ("openai" is any server)."""
    for key in ("engine", "backend", "endpoint_type"):
        name = cells.text(key)
        if name and name.lower() in ENGINES:
            return name.lower()
    return None
