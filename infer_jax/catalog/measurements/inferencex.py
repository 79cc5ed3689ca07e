"""Reads aggregate files of InferenceX (InferenceMAX): a JSON array of runs.

Times are in seconds, throughput in tokens per second and GPU, interactivity in tokens per second
and user (1 / TPOT). ``tp`` counts the GPUs of a server; with ``dp_attention`` each is an
attention rank of its own. Lengths are nominal: requests are drawn between 80 and 100 % of them.
"""

from infer_jax.catalog.measurements.cells import Cells, read_run
from infer_jax.catalog.measurements.run import Run, Speculation, WorkerPool
from infer_jax.catalog.systems import system_named

COLUMNS = {"version": "image", "concurrency": "conc"}
ENGINES = {"trt": "trtllm", "tensorrt": "trtllm", "sglang": "sglang", "vllm": "vllm"}
COLUMNS |= {x: x for x in ("model", "date", "precision", "isl", "osl", "ttft", "itl", "e2el")}


def recognises(value: object) -> bool:
    """True for an object with this file's keys."""
    return isinstance(value, dict) and {"hw", "framework", "tput_per_gpu"} <= set(value)


def read(cells: Cells) -> Run:
    """The run in one object.

    Raises:
        InputError: a malformed value.
    """
    roles = ("prefill", "decode") if cells.flag("disagg") else ()
    pools = tuple(_pool(cells, role) for role in roles)
    tp, pp = cells.number("tp"), cells.number("pp")
    wide = cells.flag("dp_attention")
    chips = sum(p.chips or 0.0 for p in pools) or (None if tp is None else tp * (pp or 1.0))
    times = cells.statistic("tpot", 1.0)
    origin = Run.tpot_from
    if not times.values:
        times = cells.statistic("intvty", 1.0).reciprocal
        origin = "interactivity, tokens per second and user"
    valid = cells.flag("power_valid") or "power_valid" not in cells.values
    notes = ("lengths are nominal: requests are drawn between 80 and 100 % of them",)
    scenario = cells.text("scenario_type")
    if scenario:  # agentic traces: lengths are not given, and the cache may be offloaded
        offload = cells.text("kv_offload_backend") or cells.values.get("kv_offloading") or "none"
        notes = (f"scenario {scenario}, KV offloading {offload}",)
    framework = cells.text("framework")  # "dynamo-trt" is trtllm
    engines = (engine for word, engine in ENGINES.items() if word in (framework or "").lower())
    drafts, per_chip = cells.text("spec_decoding"), cells.number("output_tput_per_gpu")
    layout = {"tp": 1.0 if wide else tp, "dp": tp if wide else 1.0, "pp": pp or 1.0}
    return read_run(
        cells,
        COLUMNS if pools else COLUMNS | {"ep": "ep"},
        source="inferencex",
        engine=next(engines, framework),
        system=system_named(cells.text("hw")),
        chips=chips,
        pools=pools,
        **({} if pools else layout),
        tpot=times,
        tpot_from=origin,
        output_throughput=per_chip * chips if per_chip and chips else None,
        power=cells.number("avg_power_w") if valid else None,
        energy=cells.number("total_gpu_energy_j") if valid else None,
        speculation=None if drafts in (None, "none", "off") else Speculation(method=drafts),
        notes=notes if valid else (*notes, "power_valid is false: power and energy left out"),
    )


def _pool(cells: Cells, role: str) -> WorkerPool:
    tp, wide = cells.number(f"{role}_tp"), cells.flag(f"{role}_dp_attention")
    return WorkerPool(
        role=role,
        workers=cells.number(f"{role}_num_workers"),
        chips=cells.number(f"num_{role}_gpu"),
        tp=1.0 if wide else tp,
        dp=tp if wide else 1.0,
        pp=cells.number(f"{role}_pp"),
        ep=cells.number(f"{role}_ep"),
    )
