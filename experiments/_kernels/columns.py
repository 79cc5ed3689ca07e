"""Which column of a file of InferSim's runs is which figure of ours?

Names of kernels are the tool's; sizes are in binary units, as the tool prints them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.kernels.budget import budget, work
from infer_jax.estimators.kernels.published import PhaseInputs, communication, layers, phase_time
from infer_jax.physics.decoder import total
from infer_jax.specs import Architecture, Hardware, Linear

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
        values[stage], kernels[stage] = _phase(one, model.scheduling(stage, one.hybrid))
    return values, kernels


def _phase(job: PhaseInputs, scheduling: Array) -> tuple[dict[str, Array], dict[str, Any]]:
    kernels, spent = layers(job)
    stage = job.stage
    seconds = phase_time(job, spent)[0] + scheduling
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
        MB: {"attn_params_MB": held.attention, "lin_attn_params_MB": held.linear,
             "expert_params_MB": held.expert, "kv_target_per_req_MB": room,
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
