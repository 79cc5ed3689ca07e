"""Reads results of vLLM's and SGLang's benchmarks and of InferenceX: one JSON object a run.

SGLang's client grew out of vLLM's; so did that of InferenceX, which writes seconds without the
suffix ``_ms``. TPOT is (latency - TTFT) / (tokens - 1) of each request. vLLM's names neither chips
nor parallelism, unless given as ``--metadata``, whose keys stand beside the others; newer ones of
SGLang add the server's own settings.

Aggregate files of InferenceX (InferenceMAX) are JSON arrays. Times are in seconds, throughput in
tokens per second and GPU, interactivity in tokens per second and user (1 / TPOT). ``tp`` counts the
GPUs of a server; with ``dp_attention`` each is an attention rank of its own. Lengths are nominal:
requests are drawn between 80 and 100 % of them.
"""

import math
from collections.abc import Mapping

from infer_jax.catalog.cells import Cells
from infer_jax.catalog.measurements.run import Run, Speculation, WorkerPool, read_record, read_run
from infer_jax.catalog.systems import system_named

ENGINES = ("vllm", "sglang", "tensorrt-llm", "trtllm")
LIMITED = ("429", "rate limit", "too many requests")
TOTALS = ("request_throughput", "output_throughput", "duration", "completed")
METADATA = ("chips", "tp", "pp", "dp", "ep", "version", "system", "date", "precision", "burstiness")
SHARED = {name: name for name in (*TOTALS, "input_lens", "output_lens")}
SHARED |= {"concurrency": "max_concurrency"}
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
INFERENCEX = {"version": "image", "concurrency": "conc"}
INFERENCEX |= {name: name for name in ("model", "date", "precision", "isl", "osl")}
INFERENCEX |= {name: f"{{}}_{name}" for name in ("ttft", "tpot", "itl", "e2el")}
POWER = {"power": "avg_power_w", "energy": "total_gpu_energy_j"}
POOL = {"workers": "{}_num_workers", "chips": "num_{}_gpu", "pp": "{}_pp", "ep": "{}_ep"}
FRAMEWORKS = {"trt": "trtllm", "tensorrt": "trtllm", "sglang": "sglang", "vllm": "vllm"}


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


def read_inferencex(cells: Cells) -> Run:
    """The run in one object of InferenceX.

    Raises:
        InputError: a malformed value.
    """
    tp, pp = cells.number("tp"), cells.number("pp") or 1.0
    chips, fields = None if tp is None else tp * pp, dict[str, object]()
    if cells.flag("disagg"):
        pools = tuple(_pool(cells, role) for role in ("prefill", "decode"))
        chips = sum(pool.chips or 0.0 for pool in pools) or chips
        fields["pools"] = pools
    else:
        fields |= {**_degrees(cells, ""), "pp": pp, "ep": cells.number("ep")}
    framework = cells.text("framework")  # "dynamo-trt" is trtllm
    engines = (engine for word, engine in FRAMEWORKS.items() if word in (framework or "").lower())
    drafts, per_chip = cells.text("spec_decoding"), cells.number("output_tput_per_gpu")
    notes = ("lengths are nominal: requests are drawn between 80 and 100 % of them",)
    if scenario := cells.text("scenario_type"):  # agentic traces: no lengths, a cache offloaded
        offload = cells.text("kv_offload_backend") or cells.value("kv_offloading") or "none"
        notes = (f"scenario {scenario}, KV offloading {offload}",)
    has_power = "power_valid" not in cells.values or cells.flag("power_valid")
    if not has_power:
        notes += ("power_valid is false: power and energy left out",)
    run = read_run(
        cells,
        INFERENCEX | POWER if has_power else INFERENCEX,
        source="inferencex",
        engine=next(engines, framework),
        system=system_named(cells.text("hw")),
        chips=chips,
        output_throughput=per_chip * chips if per_chip and chips else None,
        speculation=None if drafts in (None, "none", "off") else Speculation(method=drafts),
        notes=notes,
        **fields,
    )
    if run.tpot.values:
        return run
    origin = "interactivity, tokens per second and user"
    return run.replace(tpot=cells.statistic({"{}_intvty": 1.0}).reciprocal, tpot_from=origin)


def _degrees(cells: Cells, pool: str) -> dict[str, float | None]:
    """Ranks of attention: tensor parallel ones, or each by itself."""
    tp, wide = cells.number(f"{pool}tp"), cells.flag(f"{pool}dp_attention")
    return {"tp": 1.0, "dp": tp} if wide else {"tp": tp, "dp": 1.0}


def _pool(cells: Cells, role: str) -> WorkerPool:
    columns = {field: name.format(role) for field, name in POOL.items()}
    return read_record(WorkerPool, cells, columns, role=role, **_degrees(cells, f"{role}_"))
