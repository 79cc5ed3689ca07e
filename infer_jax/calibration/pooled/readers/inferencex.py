"""InferenceX: closed loops of DeepSeek-R1 and others, in one pool or two, with or without drafts.

Columns as in the fixtures of SemiAnalysis InferenceX (vngcloud/InferenceX-app @7fe6d62). Lengths
are drawn from 80 to 100 % of those stated. ``decode_tp`` counts the GPUs of a server; with
``decode_dp_attention`` each is an attention rank of its own. The GPU counts of aggregated rows
are tp x ep and mean nothing: throughput per GPU is of tp GPUs, as requests in flight over latency
prove. Output tokens per second of two pools are per GPU that decodes, for the same reason.

How many tokens the rows of ``spec_method`` mtp draft stands only in the scripts that ran them
(SemiAnalysisAI/InferenceX, benchmarks/single_node/dsr1_*_mtp.sh at 285b662 and 34bc7c4,
fixed_seq_len/ at 8eec0d4): TensorRT-LLM 3, 1 with attention data parallelism; SGLang 2 on NVIDIA's
chips, 3 on AMD's; ATOM 3 in FP8, its default of 1 in FP4. Two pools, whose recipes differ, are
assumed to draft as TensorRT-LLM.

What two pools of TensorRT-LLM were started with, by the published recipes of InferenceX.

Rows of these runs state requests in flight, but neither how many of them a decode instance runs at
once, which often are fewer, so that first tokens wait for a place, nor how many tokens it drafts.
"""

import re
from functools import cache

from infer_jax.calibration.pooled.rows import (
    AMD,
    BF16,
    FP8,
    MXFP4,
    Cells,
    PooledRow,
    ServedModel,
    StoredFormats,
    UnusableRowError,
    gpt_oss_formats,
    is_mixture,
    lookup,
    number,
    nvfp4_formats,
    optional_number,
    prefill_batches,
    text,
)
from infer_jax.catalog.published.tables import tables
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment, ServingWorkload

KEY = re.compile(r"(\d+)p (\d+)d (t|te|de|d)p(\d+) batch(\d+) drafts(\d)")


def started_as(
    pools: Pools, system: str, model: str, precision: str, lengths: tuple[float, float], load: float
) -> Pools:
    """The pools with the settings of their recipe, or as they are where none is known."""
    decode = pools.decode
    assert isinstance(decode, Deployment)
    key = f"{system} {model} {precision} {lengths[0]:g} {lengths[1]:g}"
    copies = float(pools.prefill_copies), float(pools.decode_copies)
    server = float(decode.attention_dp), float(decode.instance), float(decode.drafts) > 0.0
    found = _recipes(key).get((*copies, *server, load))
    return pools if found is None else pools.replace(decode=decode.with_(**found))


@cache
def _recipes(key: str) -> dict[tuple[float, ...], dict[str, float]]:
    """What a decode instance was started with, of two recipes of one run that with more room.

    By copies that prefill and decode, attention groups and GPUs of an instance that decodes,
    whether it drafts, and requests in flight; ``max_sequences``: of an attention group.
    """
    found: dict[tuple[float, ...], dict[str, float]] = {}
    for name, loads in tables("pool_recipes").get(key, {}).items():
        match = KEY.fullmatch(name)
        assert match is not None, name
        form = match[3]
        prefill, decode, degree, batch, drafts = map(float, match.group(1, 2, 4, 5, 6))
        server = degree if form.startswith("d") else 1.0, degree, drafts > 0.0
        for load in loads:
            known = found.setdefault((prefill, decode, *server, load), {"max_sequences": 0.0})
            if batch >= known["max_sequences"]:
                known |= {"max_sequences": batch, "drafts": drafts}
    return found


WAVES = 10.0  # requests for each one in flight: benchmark_lib.sh at 8eec0d4
COLUMNS = ("hardware", "framework", "precision", "spec_method", "disagg", "decode_tp", "conc")
# words of `model`, the prefixes under which InferenceX keeps its runs
MODELS = {
    "dsr1": "deepseek-r1",
    "gptoss": "gpt-oss-120b",
    "gptoss120b": "gpt-oss-120b",
    "70b": "llama-3.3-70b",
    "llama70b": "llama-3.3-70b",
    "minimaxm2.5": "minimax-m2.5",
    "kimik2.5": "kimi-k2.5",
    "qwen3.5": "qwen3.5-397b-a17b",
    "glm5": "glm-5",
}
SYSTEMS = {
    **{name: name for name in AMD},
    **{name: f"{name}_sxm" for name in ("h100", "h200", "b200", "b300")},
    **{name: f"{name}_nvl72" for name in ("gb200", "gb300")},
}
# behind Dynamo and MoRI the same engines run; ATOM, AMD's own, is read as vLLM, whose launches
# and scheduler it shares more than the others'
ENGINES = {"sglang": "sglang", "trt": "trtllm", "vllm": "vllm", "atom": "vllm"}
METHODS = {"none": False, "mtp": True}  # of drafting
DRAFTS = {False: 3.0, True: 1.0}  # without and with attention data parallelism
SGLANG_DRAFTS, ATOM_FP4_DRAFTS = 2.0, 1.0  # of SGLang on NVIDIA's chips; of ATOM in FP4
MEAN_LENGTH = 0.9  # mean over stated length
BUSY = 0.5  # share of the stated requests in flight below which a run was mostly idle
POLLING = (10.0, 30.0)  # passes between two looks for new requests: below 16 in flight, from 16 on
# of each metric the columns, of which the first that a row has counts
METRICS = {
    "tpot": ("mean_tpot", "median_tpot"),
    "ttft": ("mean_ttft", "median_ttft"),
    "ttft_mean": ("mean_ttft",),
    "ttft_median": ("median_ttft",),
    "e2e": ("mean_e2el", "median_e2el"),
    "throughput": ("output_tput_per_gpu",),
    "power": ("avg_power_w",),
}
POLLING_MODELS = ("deepseek-r1", "qwen3.5-397b-a17b")


def formats(model: str, hardware: str, engine: str, precision: str) -> StoredFormats:
    """Number formats of the checkpoint and engine, of which rows state one precision alone.

    Those of ``silicon.formats``; AMD's 4-bit checkpoints are MXFP4 in the experts alone.
    """
    experts = is_mixture(model)
    blackwell = hardware.startswith(("b2", "b3", "gb"))
    cache = 1.0 if blackwell or engine == "trtllm" or not experts else 2.0
    if model == "gpt-oss-120b":
        return gpt_oss_formats(4.0 if hardware == "mi355x" else 8.0 if blackwell else 16.0)
    if precision == "fp8":
        return StoredFormats(FP8, FP8, FP8, cache, 2.0 if experts else 0.0)
    if precision != "fp4":
        raise UnusableRowError(f"precision {precision!r} is not known here")
    if hardware in AMD:
        return StoredFormats(BF16 if experts else MXFP4, MXFP4, MXFP4, cache, 1.0)
    return nvfp4_formats(model)


def row(cells: Cells) -> PooledRow:
    """A run, of the cells of its line."""
    model = lookup(MODELS, cells, "model")
    hardware, system = text(cells, "hardware"), lookup(SYSTEMS, cells, "hardware")
    framework = text(cells, "framework")
    own = framework.rpartition("-")[2]
    engine = lookup(ENGINES, {"framework": own}, "framework")
    method = text(cells, "spec_method").lower()
    drafting = lookup(METHODS, {"spec_method": method}, "spec_method")
    pools, precision = _flag(cells, "disagg"), text(cells, "precision")
    served = ServedModel(model, formats(model, hardware, engine, precision))
    load = number(cells, "conc")
    lengths = {"isl": number(cells, "isl"), "osl": number(cells, "osl"), "nominal": 1.0}
    make = "amd" if hardware in AMD else "nvidia"
    measured = _measured(cells)
    share = 1.0
    if pools:
        plan, copies, share = _pools(cells, drafting)
        if engine == "trtllm":
            sizes = lengths["isl"], lengths["osl"]
            plan = started_as(plan, system, model, precision, sizes, load)
        workload = ServingWorkload.of(**lengths, batch=load / copies, waves=WAVES)
    else:
        plan = _plan(cells, "decode", number(cells, "decode_tp"), drafting)
        if drafting:
            plan = plan.with_(drafts=_drafts(cells, own, make, float(plan.drafts)))
        polled = engine == "sglang" and make == "nvidia" and hardware not in ("h100", "h200")
        polled &= model in POLLING_MODELS
        plan = plan.with_(
            polling=POLLING[load >= 16] if polled else 1.0,
            balance_timeout=balance_timeout(engine, model),
        )
        workload = ServingWorkload.of(**lengths, batch=load, waves=WAVES)
    return PooledRow(
        id=cells.get("id") or "",
        dataset=f"inferencex {make}{' pools' * pools}{' drafts' * drafting}",
        served=served,
        system=system,
        engine=engine,
        workload=workload,
        plan=plan,
        measured=measured,
        group=f"{model} {hardware} {framework} {cells.get('precision')} {method}",
        mode="pools" if pools else "loop",
        date=text(cells, "date"),
        chip_share=share,
        busy_share=1.0 if pools else busy_share(cells, measured, load),
    )


def busy_share(cells: Cells, measured: dict[str, float], load: float) -> float:
    """Requests in flight (throughput times latency) over those stated; 1 from ``BUSY`` on."""
    if not {"throughput", "e2e"} <= set(measured):
        return 1.0
    tokens = measured["throughput"] * number(cells, "decode_tp") * measured["e2e"]
    share = tokens / (number(cells, "osl") * MEAN_LENGTH * load)
    return share if share < BUSY else 1.0


def _measured(cells: Cells) -> dict[str, float]:
    every = sorted({name for columns in METRICS.values() for name in columns})
    values = {name: x for name in every if (x := optional_number(cells, name)) is not None}
    measured = {
        metric: next(values[name] for name in columns if name in values)
        for metric, columns in METRICS.items()
        if values.keys() & set(columns)
    }
    if "tpot" not in measured and "throughput" not in measured:
        raise UnusableRowError("neither TPOT nor throughput is given")
    return measured


def _flag(cells: Cells, name: str) -> bool:
    word = text(cells, name).lower()
    if word not in ("true", "false"):
        raise UnusableRowError(f"{name} is neither true nor false")
    return word == "true"


def _plan(cells: Cells, role: str, chips: float, drafting: bool) -> Deployment:
    """One server of ``chips`` GPUs: attention over all of them, or a rank on each."""
    wide = _flag(cells, f"{role}_dp_attention")
    ep = number(cells, f"{role}_ep")
    if wide and ep == 1.0 and number(cells, f"{role}_tp") == 1.0:
        ep = chips  # labels of wide expert parallelism that give one rank of many
    if chips % ep:
        raise UnusableRowError(f"{role}_ep is no divisor of the GPUs")
    ranks = {"tp": 1.0, "attention_dp": chips} if wide else {"tp": chips}
    return Deployment.of(**ranks, ep=ep, drafts=DRAFTS[wide] if drafting else 0.0)


def balance_timeout(engine: str, model: str) -> float:
    """Passes that prompts wait for those of other groups, as the published scripts start a server.

    TensorRT-LLM's (benchmarks/single_node, dsr1_*_trt.sh and gptoss_*_trt.sh at 34bc7c4) balance
    attention groups: with timeout_iters 60, and for gpt-oss with its default of 50.
    """
    if engine != "trtllm":
        return 0.0
    return 50.0 if model == "gpt-oss-120b" else 60.0


def _drafts(cells: Cells, framework: str, make: str, default: float) -> float:
    """Tokens that a server of one pool drafts, by the script that ran it."""
    if framework == "sglang":
        return SGLANG_DRAFTS if make == "nvidia" else DRAFTS[False]
    if framework == "atom" and cells.get("precision") == "fp4":
        return ATOM_FP4_DRAFTS
    return default


def _pools(cells: Cells, drafting: bool) -> tuple[Pools, float, float]:
    """The pools, instances that decode, and the share of all chips that throughput is of."""
    plans, copies, chips = [], [], []
    for role in ("prefill", "decode"):
        workers = optional_number(cells, f"{role}_num_workers", low=-1.0)
        if not workers:
            raise UnusableRowError("workers of the pools are missing")
        gpus = number(cells, f"num_{role}_gpu")
        if gpus % workers:
            raise UnusableRowError("GPUs of a pool are no multiple of its workers")
        plans.append(_plan(cells, role, gpus / workers, drafting and role == "decode"))
        copies.append(workers)
        chips.append(gpus)
    pools = Pools.of(
        prefill=plans[0],
        decode=plans[1],
        prefill_copies=copies[0],
        decode_copies=copies[1],
        **prefill_batches(float(plans[0].attention_dp), number(cells, "isl")),
    )
    return pools, copies[1], chips[1] / sum(chips)
