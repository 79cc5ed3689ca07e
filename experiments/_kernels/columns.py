"""Which column of a file of InferSim's runs is which figure of ours?

Names of kernels are the tool's; sizes are in binary units, as the tool prints them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.catalog.kernel_tables import KernelTables
from infer_jax.errors import InputError
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.kernels.efficiency import (
    HEADLESS,
    MEASURED,
    NO_TABLE,
    REFUSED,
    ZERO,
    Kernel,
)
from infer_jax.estimators.kernels.published import (
    PhaseInputs,
    communication,
    per_pair,
    rank_attention,
)
from infer_jax.estimators.kernels.published_pass import (
    attention_bytes,
    budget,
    expert_bytes,
    phase_time,
)
from infer_jax.physics import attention as att
from infer_jax.physics.decoder import total
from infer_jax.specs import (
    Architecture,
    Dense,
    Experts,
    GroupedQuery,
    Hardware,
    Latent,
    Linear,
    Sparse,
)

KINDS_OF = {
    "full": "attn_core kv_load qkv_proj q_down q_up kv_down bmm_q_wk bmm_o_wv o_proj",
    "linear": "lin_core lin_state_load lin_qkvzba lin_o_proj",
    "experts": "moe moe_load shared",
}
KIND = {name: kind for kind, names in KINDS_OF.items() for name in names.split()}
STAGES = ("prefill", "decode")
KINDS = {f"{stage}_{name}_us": kind for stage in STAGES for name, kind in KIND.items()}
KINDS |= {f"{stage}_attn_mfu": "full" for stage in STAGES}
STATIC = (
    "kv_too_big_flag slo_flag avg_context_len attn_params_MB lin_attn_params_MB expert_params_MB "
    "weights_GB kv_space_GB resolved_bs kv_target_per_token_KB kv_per_token_KB "
    "kv_target_per_req_MB kv_full_per_req_MB states_per_req_MB cache_per_req_MB "
    "gf_layer_attn_core gf_layer_moe gf_layer_others gf_attn_core gf_moe gf_others gf_total"
)
SENT = ("comm_before", "comm_after", "tp_allreduce")
COLUMNS = (
    *STATIC.split(),
    *KINDS,
    *(f"{stage}_{name}_us" for stage in STAGES for name in SENT),
    *("prefill_moe_mfu", "decode_moe_mfu", "prefill_ttft_ms", "decode_tpot_ms"),
    *("prefill_tgs", "decode_tgs"),
)
GIVEN = {
    "world": "world_size", "tp": "tp_size", "nodes": "num_nodes", "deepep": "enable_deepep",
    "two_batch": "enable_tbo", "sm_share": "sm_ratio",
}  # fmt: skip
KB, MB, GB = 2.0**10, 2.0**20, 2.0**30


def columns_of(
    model: Kernels, arch: Architecture, hardware: Hardware, row: Mapping[str, Array]
) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
    """Columns by what they are of (static, prefill, decode), and every kernel of both phases."""
    context = jnp.floor(row["target_isl"] + row["target_osl"] / 2.0)

    given = {name: row[column] for name, column in GIVEN.items()}
    job = partial(PhaseInputs, model=model, arch=arch, hardware=hardware, **given)
    jobs = {
        "prefill": job(stage="prefill", tokens=row["max_prefill_tokens"], length=row["target_isl"]),
        "decode": job(stage="decode", tokens=row["batch"], length=context),
    }
    values = {"static": _static(jobs["decode"], row)}
    kernels = {}
    for stage, one in jobs.items():
        values[stage], kernels[stage] = _phase(one)
    return values, kernels


def _phase(job: PhaseInputs) -> tuple[dict[str, Array], dict[str, Any]]:
    stage, (kernels, seconds, _) = job.stage, phase_time(job)
    twice = 1.0 if job.hybrid else 1.0 + job.two_batch
    values = {f"{stage}_{name}_us": 1e6 * kernel.seconds for name, kernel in kernels.items()}
    values |= {f"{stage}_{name}_us": 1e6 * x for name, x in communication(job).items()}
    values[f"{stage}_attn_mfu"] = kernels["attn_core"].mfu
    values[f"{stage}_moe_mfu"] = kernels["moe"].mfu
    values["prefill_ttft_ms" if stage == "prefill" else "decode_tpot_ms"] = 1e3 * seconds
    values[f"{stage}_tgs"] = job.tokens * twice / job.tp / seconds
    return values, kernels


def _static(job: PhaseInputs, row: Mapping[str, Array]) -> dict[str, Array]:
    held, done = budget(job), work(job)
    batch, tokens = row["batch"], row["target_isl"] + row["target_osl"]
    layers = total(b.count for b in job.arch.blocks)
    full = total(b.count for b in job.arch.blocks if not isinstance(b.attention, Linear))
    room, request = held.space / batch, held.token * tokens + held.state
    # one condition, per request or per token: which of them decides how a tie is rounded
    broken = request > room if job.hybrid else held.token > held.space / (batch * tokens)
    times = {"attn_core": full, "moe": layers, "others": layers}
    gf = {name: 1e-9 * done[name] for name in times}
    sizes = {
        KB: {"kv_target_per_token_KB": held.space / (batch * tokens),
             "kv_per_token_KB": held.token},
        MB: {**_layer_bytes(job), "kv_target_per_req_MB": room,
             "kv_full_per_req_MB": held.token * tokens, "states_per_req_MB": held.state,
             "cache_per_req_MB": request},
        GB: {"weights_GB": held.weights, "kv_space_GB": held.space},
    }  # fmt: skip
    return {
        "kv_too_big_flag": jnp.where(broken, 1.0, 0.0),
        "avg_context_len": job.length,
        "resolved_bs": batch,
        **{name: x / unit for unit, named in sizes.items() for name, x in named.items()},
        **{f"gf_layer_{name}": x for name, x in gf.items()},
        **{f"gf_{name}": times[name] * x for name, x in gf.items()},
        # linear layers are given the core of full ones in this figure alone
        "gf_total": layers * total(gf.values()),
    }


def _layer_bytes(job: PhaseInputs) -> dict[str, Array]:
    """Bytes of the projections of a full and a linear layer, and of an expert: the last of each."""
    names = ("attn_params_MB", "lin_attn_params_MB", "expert_params_MB")
    sizes: dict[str, Array] = dict.fromkeys(names, jnp.asarray(0.0))
    for block in job.arch.blocks:
        linear = isinstance(block.attention, Linear)
        sizes["lin_attn_params_MB" if linear else "attn_params_MB"] = attention_bytes(job, block)
        if block.feedforward is not None:
            sizes["expert_params_MB"] = expert_bytes(job, block.feedforward)
    return sizes


def work(job: PhaseInputs) -> dict[str, Array]:
    """FLOP per token of one layer: attention core at the mean context, experts, projections.

    The projections of full attention are counted for every layer, those of linear layers not.
    """
    width = job.arch.width
    flops: dict[str, Array] = {}
    for block in job.arch.blocks:
        attention, layer = block.attention, block.feedforward
        if isinstance(attention, GroupedQuery | Latent):
            cut = rank_attention(attention, job.tp)
            flops["attn_core"] = per_pair(cut, "decode") * job.length
            flops["others"] = _projected(cut, width)
        if layer is not None:
            active = layer.active if isinstance(layer, Experts) else 1.0
            common = 0.0 if isinstance(layer, Dense) else layer.shared.width / layer.width
            inner = jnp.floor(layer.width / job.tp)
            flops["moe"] = 6.0 * (common + active) * width * inner
    return flops


def _projected(cut: GroupedQuery | Latent, width: Array) -> Array:
    if isinstance(cut, GroupedQuery):
        return 4.0 * width * cut.head_width * (cut.query_heads + cut.kv_heads)
    heads, plain = cut.query_heads, cut.nope_width
    down = width * (cut.query_rank + cut.kv_rank + cut.rope_width)
    up = cut.query_rank * heads * (plain + cut.rope_width)
    absorbed = heads * cut.kv_rank * (plain + cut.value_width)
    return 2.0 * (down + up + absorbed + heads * cut.value_width * width)


Tabulated = GroupedQuery | Latent | Sparse | Linear  # attention that has tables of its cores


class Lack(NamedTuple):
    """A kernel without a measurement. ``error`` is set where no default is taken for it.

    ``warned``: the authors' tool prints a warning, about ``table``.
    """

    kernel: str
    table: str
    sentence: str
    warned: bool
    error: InputError | None = None
    headless: bool = False


def lacks(
    tables: KernelTables, arch: Architecture, kernels: Mapping[str, Kernel], stage: str, tp: float
) -> list[Lack]:
    """What the look-ups of one phase lacked, in the order in which the tool looks up."""
    return [
        _lack(tables, name, *table_of(arch, name, stage, tp), kernel)
        for name, kernel in kernels.items()
        if float(kernel.lack) != MEASURED
    ]


def table_of(arch: Architecture, kernel: str, stage: str, tp: float) -> tuple[str, str]:
    """The family of tables that a kernel is looked up in, and the shape in the file's name."""
    if kernel in ("attn_core", "lin_core"):
        wanted = Linear if kernel == "lin_core" else (GroupedQuery, Latent, Sparse)
        each = (b.attention for b in arch.blocks if isinstance(b.attention, wanted))
        attention = next(each)
        return f"{att.of(attention).core.table}.{stage}", core_of(attention, stage, tp)
    experts = all(not isinstance(b.feedforward, Dense) for b in arch.blocks)
    return (f"grouped.{stage}", "") if kernel == "moe" and experts else ("gemm", "")


def core_of(attention: Tabulated, stage: str, tp: float) -> str:
    """The shape of an attention core on one tensor rank, as the files are named."""
    match attention:
        case Sparse(base=base):
            return core_of(base, stage, tp)
        case Linear():
            a = attention
            shape = (a.conv_width, a.key_heads, a.key_width, a.value_heads, a.value_width)
        case GroupedQuery():
            a = attention
            shape = (a.query_heads // tp, a.kv_heads // tp, a.head_width)
        case Latent():
            a = attention
            inner = a.kv_rank if stage == "decode" else a.nope_width
            shape = (a.query_heads // tp, inner, a.rope_width)
    return "-".join(f"{float(x):g}" for x in shape)


def _lack(tables: KernelTables, name: str, family: str, core: str, kernel: Kernel) -> Lack:
    lack = float(kernel.lack)
    kind, _, stage = family.partition(".")
    if kind in ("gemm", "grouped"):
        folder = "gemm" if kind == "gemm" else f"grouped_gemm/{stage}"
        file = f"{folder}/{tables.device}/data"
        rows = file if kind == "gemm" else f"grouped_gemm {stage}"
        table, warned = (file, True) if lack == NO_TABLE else (rows, kind == "grouped")
    else:
        table, warned = f"{kind}/{stage}/{tables.device}/{core}", lack == NO_TABLE
        file = table
    if lack >= REFUSED or kind == "gdn":
        error = _refusal(tables, family, core, file, lack, float(kernel.row))
        return Lack(name, table, str(error), warned, error, lack == HEADLESS)
    why = "no such table" if lack == NO_TABLE else "no row fits"
    return Lack(name, table, f"{file}.csv: {why}: MFU {float(kernel.mfu):g} is taken", warned)


def _refusal(
    tables: KernelTables, family: str, core: str, file: str, lack: float, row: float
) -> InputError:
    """What is wrong with the table that a look-up needs, with file and line where it has one."""
    if lack == ZERO:
        where, line = tables.families[family].places[int(row)]
        return InputError(where, f"line {line}, mfu", 0, "a number above 0, for it is divided by")
    if lack == HEADLESS:
        return tables.headless[family, tuple(float(x) for x in core.split("-"))]
    what = "no such table" if family.startswith("gdn") else "no row of this kv_dtype"
    return InputError(f"{file}.csv", "", what, "a table measured for this shape")
