"""Reads aggregate files of InferenceX (InferenceMAX): a JSON array of runs.

Times are in seconds, throughput in tokens per second and GPU, interactivity in tokens per second
and user (1 / TPOT). ``tp`` counts the GPUs of a server; with ``dp_attention`` each is an
attention rank of its own. Lengths are nominal: requests are drawn between 80 and 100 % of them.
"""

from collections.abc import Mapping

from infer_jax.catalog.cells import Cells
from infer_jax.catalog.measurements.run import Run, Speculation, WorkerPool, read_record, read_run
from infer_jax.catalog.systems import system_named

COLUMNS = {"version": "image", "concurrency": "conc"}
COLUMNS |= {name: name for name in ("model", "date", "precision", "isl", "osl")}
COLUMNS |= {name: f"{{}}_{name}" for name in ("ttft", "tpot", "itl", "e2el")}
POWER = {"power": "avg_power_w", "energy": "total_gpu_energy_j"}
POOL = {"workers": "{}_num_workers", "chips": "num_{}_gpu", "pp": "{}_pp", "ep": "{}_ep"}
ENGINES = {"trt": "trtllm", "tensorrt": "trtllm", "sglang": "sglang", "vllm": "vllm"}


def recognises(value: Mapping[str, object]) -> bool:
    """True for an object with this file's keys."""
    return {"hw", "framework", "tput_per_gpu"} <= set(value)


def read(cells: Cells) -> Run:
    """The run in one object.

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
    engines = (engine for word, engine in ENGINES.items() if word in (framework or "").lower())
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
        COLUMNS | POWER if has_power else COLUMNS,
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
