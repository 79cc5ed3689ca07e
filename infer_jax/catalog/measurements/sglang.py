"""Reads results of SGLang's ``bench_serving``: one JSON object, a run, on each line.

TPOT is (latency - TTFT) / (tokens - 1) of each request. Newer clients add the server's own
settings, which name the model and its parallelism.
"""

from infer_jax.catalog.measurements import vllm
from infer_jax.catalog.measurements.cells import Cells
from infer_jax.catalog.measurements.run import Run, Speculation


def recognises(value: object) -> bool:
    """True for an object with this client's keys."""
    keys = {"backend", "dataset_name", "completed", "mean_ttft_ms"}
    return isinstance(value, dict) and keys <= set(value)


def read(cells: Cells) -> Run:
    """The run in one line.

    Raises:
        InputError: a malformed value.
    """
    completed = cells.number("completed")
    failed, limited = vllm.failures(cells)
    server = cells.part("server_info")
    tp, dp = server.number("tp_size"), server.number("dp_size")
    if tp and dp and server.flag("enable_dp_attention"):
        tp = tp / dp  # SGLang's tp counts the chips that data-parallel attention divides
    accept = cells.number("accept_length")
    engine = cells.text("backend")
    return Run(
        **cells.place,
        source="sglang",
        engine="sglang" if engine and engine.startswith("sglang") else engine,
        version=server.text("version"),
        model=server.text("model_path"),
        tp=tp,
        dp=dp,
        pp=server.number("pp_size"),
        ep=server.number("ep_size"),
        isl=vllm.per_request(cells.number("total_input_tokens"), completed),
        osl=vllm.per_request(cells.number("total_output_tokens"), completed),
        input_lens=cells.numbers("input_lens"),
        output_lens=cells.numbers("output_lens"),
        concurrency=cells.number("max_concurrency"),
        request_rate=vllm.request_rate(cells),
        ttft=cells.statistic("ttft_ms", 1e-3),
        tpot=cells.statistic("tpot_ms", 1e-3),
        itl=cells.statistic("itl_ms", 1e-3),
        e2el=cells.statistic("e2e_latency_ms", 1e-3),
        request_throughput=cells.number("request_throughput"),
        output_throughput=cells.number("output_throughput"),
        duration=cells.number("duration"),
        completed=completed,
        failed=failed,
        rate_limited=limited,
        speculation=Speculation(acceptance_length=accept) if accept else None,
    )
