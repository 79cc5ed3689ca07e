"""Reads results of SGLang's ``bench_serving``: one JSON object, a run, on each line.

TPOT is (latency - TTFT) / (tokens - 1) of each request. Newer clients add the server's own
settings, which name the model and its parallelism.
"""

from infer_jax.catalog.measurements import vllm
from infer_jax.catalog.measurements.cells import Cells, read_run
from infer_jax.catalog.measurements.run import Run, Speculation

TIMES = {name: (f"{name}_ms", 1e-3) for name in ("ttft", "tpot", "itl")}
TIMES["e2el"] = ("e2e_latency_ms", 1e-3)


def recognises(value: object) -> bool:
    """True for an object with this client's keys."""
    keys = {"backend", "dataset_name", "completed", "mean_ttft_ms"}
    return isinstance(value, dict) and keys <= set(value)


def read(cells: Cells) -> Run:
    """The run in one line.

    Raises:
        InputError: a malformed value.
    """
    failed, limited = vllm.failures(cells)
    server = cells.part("server_info")
    tp, dp = server.number("tp_size"), server.number("dp_size")
    if tp and dp and server.flag("enable_dp_attention"):
        tp = tp / dp  # SGLang's tp counts the chips that data-parallel attention divides
    accept = cells.number("accept_length")
    engine = cells.text("backend")
    return read_run(
        cells,
        vllm.SHARED | TIMES,
        source="sglang",
        engine="sglang" if engine and engine.startswith("sglang") else engine,
        version=server.text("version"),
        model=server.text("model_path"),
        tp=tp,
        dp=dp,
        pp=server.number("pp_size"),
        ep=server.number("ep_size"),
        request_rate=vllm.request_rate(cells),
        failed=failed,
        rate_limited=limited,
        speculation=Speculation(acceptance_length=accept) if accept else None,
        **vllm.lengths(cells),
    )
