"""InferenceX: closed loops of DeepSeek-R1 and others, in one pool or two, with or without drafts.

Columns as in the fixtures of SemiAnalysis InferenceX (vngcloud/InferenceX-app @7fe6d62). Lengths
are drawn from 80 to 100 % of those stated. ``decode_tp`` counts the GPUs of a server; with
``decode_dp_attention`` each is an attention rank of its own. The GPU counts of aggregated rows
are tp x ep and mean nothing: throughput per GPU is of tp GPUs, as requests in flight over latency
prove. Output tokens per second of two pools are per GPU that decodes, for the same reason.

How many tokens the rows of ``spec_method`` mtp draft is not in them, but in the scripts that ran
them (SemiAnalysisAI/InferenceX, benchmarks/single_node/dsr1_*_mtp.sh at 285b662 and 34bc7c4,
fixed_seq_len/ at 8eec0d4): TensorRT-LLM 3, 1 with attention data parallelism; SGLang 2 on NVIDIA's
chips, 3 on AMD's; ATOM 3 in FP8, its default of 1 in FP4. Two pools, whose recipes differ, are
taken to draft as TensorRT-LLM.
"""

from experiments._validation.row import (
    BF16,
    FP8,
    MXFP4,
    NVFP4,
    Cells,
    Formats,
    Read,
    Row,
    Served,
    UnusableError,
    known,
    mixture,
    number,
    optional,
    rows_of,
)
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment, ServingWorkload

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
    "mi300x": "mi300x",
    "mi325x": "mi325x",
    "mi355x": "mi355x",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200_nvl72",
    "gb300": "gb300_nvl72",
}
# behind Dynamo and MoRI the same engines run; ATOM, AMD's own, is read as vLLM, whose launches
# and scheduler it shares more than the others'
ENGINES = {"sglang": "sglang", "trt": "trtllm", "vllm": "vllm", "atom": "vllm"}
AMD = ("mi300x", "mi325x", "mi355x")
DRAFTS = {False: 3.0, True: 1.0}  # without and with attention data parallelism
SGLANG_DRAFTS, ATOM_FP4_DRAFTS = 2.0, 1.0  # of SGLang on NVIDIA's chips; of ATOM in FP4
DRAWN = 0.9  # mean over stated length
IDLE = 0.5  # share of the stated requests in flight below which a run was mostly idle
POLLING = (10.0, 30.0)  # passes between two looks for new requests: below 16 in flight, from 16 on


def read(lines: list[dict[str, str | None]]) -> Read:
    """The rows of a file's lines."""
    return rows_of(lines, _row)


def formats(model: str, hardware: str, engine: str, precision: str) -> Formats:
    """Number formats of the checkpoint and engine, which rows tell only by one precision.

    Those of experiments/_silicon/clean.py; AMD's 4-bit checkpoints are MXFP4 in the experts alone.
    """
    experts, amd = mixture(model), hardware in AMD
    blackwell = hardware.startswith(("b2", "b3", "gb"))
    short = 1.0 if blackwell or engine == "trtllm" or not experts else 2.0
    if model == "gpt-oss-120b":
        bits = 4.0 if hardware == "mi355x" else 8.0 if blackwell else 16.0
        return Formats(BF16, (0.53, bits), BF16, 2.0, 0.0)
    if precision == "fp8":
        return Formats(FP8, FP8, FP8, short, 2.0 if experts else 0.0)
    if precision != "fp4":
        raise UnusableError(f"precision {precision!r} is not known here")
    if amd:
        return Formats(BF16 if experts else MXFP4, MXFP4, MXFP4, short, 1.0)
    if not experts:
        return Formats(NVFP4, NVFP4, NVFP4, 1.0, 2.0)
    attention = (1.6, 16.0) if model == "deepseek-r1" else BF16
    return Formats(attention, NVFP4, NVFP4, 1.0, 1.0)


def _row(cells: Cells) -> Row:
    model = known(MODELS, cells, "model")
    name = (cells.get("hardware") or "").strip()
    system = known(SYSTEMS, cells, "hardware")
    framework = (cells.get("framework") or "").rpartition("-")[2]
    engine = known(ENGINES, {"framework": framework}, "framework")
    method = (cells.get("spec_method") or "").strip().lower()
    if method not in ("none", "mtp"):
        raise UnusableError(f"spec_method {method!r} is not known here")
    pools = _flag(cells, "disagg")
    served = Served(model, formats(model, name, engine, (cells.get("precision") or "").strip()))
    load = number(cells, "conc")
    lengths = {"isl": number(cells, "isl"), "osl": number(cells, "osl"), "nominal": 1.0}
    drafting = method == "mtp"
    make = "amd" if name in AMD else "nvidia"
    kind = f"{' pools' if pools else ''}{' drafts' if drafting else ''}"
    measured = _measured(cells)
    per = 1.0
    if pools:
        plan, copies, per = _pools(cells, drafting)
        work = ServingWorkload.of(**lengths, batch=max(load / copies, 1.0))
    else:
        plan = _plan(cells, "decode", number(cells, "decode_tp"), drafting)
        if drafting:
            plan = plan.with_(drafts=_drafts(cells, framework, make, float(plan.drafts)))
        polled = engine == "sglang" and make == "nvidia" and name not in ("h100", "h200")
        polled &= model in ("deepseek-r1", "qwen3.5-397b-a17b")
        plan = plan.with_(polling=POLLING[load >= 16] if polled else 1.0)
        work = ServingWorkload.of(**lengths, batch=load, waves=WAVES)
    framework = (cells.get("framework") or "").strip()
    return Row(
        id=cells.get("id") or "",
        dataset=f"inferencex {make}{kind}",
        served=served,
        system=system,
        engine=engine,
        work=work,
        plan=plan,
        measured=measured,
        group=f"{model} {name} {framework} {cells.get('precision')} {method}",
        asked="pools" if pools else "loop",
        date=(cells.get("date") or "").strip(),
        per=per,
        metered=1.0 if pools else _busy(cells, measured, load),
    )


def _busy(cells: Cells, measured: dict[str, float], load: float) -> float:
    """Requests in flight (throughput times latency) over those stated; 1 from ``IDLE`` on."""
    if not {"throughput", "e2e"} <= set(measured):
        return 1.0
    tokens = measured["throughput"] * number(cells, "decode_tp") * measured["e2e"]
    share = tokens / (number(cells, "osl") * DRAWN * load)
    return share if share < IDLE else 1.0


def _measured(cells: Cells) -> dict[str, float]:
    mean, median = (
        {k: optional(cells, f"{s}_{k}") for k in ("ttft", "tpot", "e2el")}
        for s in ("mean", "median")
    )
    found = {
        "tpot": mean["tpot"] or median["tpot"],
        "ttft": mean["ttft"] or median["ttft"],
        "ttft_mean": mean["ttft"],
        "ttft_median": median["ttft"],
        "e2e": mean["e2el"] or median["e2el"],
        "throughput": optional(cells, "output_tput_per_gpu"),
        "power": optional(cells, "avg_power_w"),
    }
    measured = {name: x for name, x in found.items() if x is not None}
    if "tpot" not in measured and "throughput" not in measured:
        raise UnusableError("neither TPOT nor throughput is given")
    return measured


def _flag(cells: Cells, name: str) -> bool:
    word = (cells.get(name) or "").strip().lower()
    if word not in ("true", "false"):
        raise UnusableError(f"{name} is neither true nor false")
    return word == "true"


def _plan(cells: Cells, role: str, chips: float, drafting: bool) -> Deployment:
    """One server of ``chips`` GPUs: attention over all of them, or a rank on each."""
    wide = _flag(cells, f"{role}_dp_attention")
    ep = number(cells, f"{role}_ep")
    if wide and ep == 1.0 and number(cells, f"{role}_tp") == 1.0:
        ep = chips  # labels of wide expert parallelism that give one rank of many
    if chips % ep:
        raise UnusableError(f"{role}_ep is no divisor of the GPUs")
    ranks = {"tp": 1.0, "attention_dp": chips} if wide else {"tp": chips}
    return Deployment.of(**ranks, ep=ep, drafts=DRAFTS[wide] if drafting else 0.0)


def _drafts(cells: Cells, framework: str, make: str, otherwise: float) -> float:
    """Tokens that a server of one pool drafts, by the script that ran it."""
    if framework == "sglang":
        return SGLANG_DRAFTS if make == "nvidia" else DRAFTS[False]
    if framework == "atom" and cells.get("precision") == "fp4":
        return ATOM_FP4_DRAFTS
    return otherwise


def _pools(cells: Cells, drafting: bool) -> tuple[Pools, float, float]:
    """The pools, instances that decode, and the share of all chips that throughput is of."""
    parts, counts, chips = [], [], []
    for role in ("prefill", "decode"):
        workers = optional(cells, f"{role}_num_workers", least=-1.0)
        if not workers:
            raise UnusableError("workers of the pools are missing")
        every = number(cells, f"num_{role}_gpu")
        if every % workers:
            raise UnusableError("GPUs of a pool are no multiple of its workers")
        parts.append(_plan(cells, role, every / workers, drafting and role == "decode"))
        counts.append(workers)
        chips.append(every)
    pools = Pools.of(
        prefill=parts[0],
        decode=parts[1],
        prefill_copies=counts[0],
        decode_copies=counts[1],
        prefill_batch=float(parts[0].attention_dp),
    )
    return pools, counts[1], chips[1] / sum(chips)
