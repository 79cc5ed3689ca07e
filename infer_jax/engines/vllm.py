"""vLLM: the rules of its V1 scheduler, and the commands that start version 0.33.0.

The commands are from the wheel vllm-0.33.0: options in vllm/engine/arg_utils.py, their meaning and
which exclude each other in vllm/config/ (parallel, scheduler, cache, speculative, kv_transfer),
several machines in vllm/entrypoints/cli/serve.py, pools in
vllm/distributed/kv_transfer/kv_connector/v1/nixl/.
"""

import json
import shlex
from typing import TYPE_CHECKING

from infer_jax.engines.engine import Commands, ServingEngine, pass_budget
from infer_jax.engines.launches import PORTS, Instance, LaunchedService, Step, formats_missing
from infer_jax.engines.shell import (
    Shell,
    division_obstacles,
    line,
    machines,
    per_machine,
    visible,
    where,
)

if TYPE_CHECKING:
    from infer_jax.replays import Preempting

# Its scheduler, to which those of the others are compared (v1/core/sched/scheduler.py at 00024d3),
# schedules decodes first and chunks of prompts beside them, up to 8192 tokens on a large GPU, and
# allocates cache blocks as tokens are generated, so that a request holds half of its output on
# average. All three engines prepare one pass while another runs (async_scheduling, overlap
# schedulers); docs/theories/scheduler.md has files and versions.
SCHEDULING: dict[str, float] = {}
SOURCE = (
    "github.com/vllm-project/vllm, v0.33.0, vllm/engine/arg_utils.py; "
    "docs.vllm.ai/en/latest/serving/expert_parallel_deployment/"
)
# quantised while loading; vLLM's own "fp8" is for checkpoints stored in it (quantization/fp8.py)
CASTS = {"fp8": "fp8_per_tensor", "fp8_block": "fp8_per_block"}
CACHES = {"fp8": "fp8", "bfloat16": "bfloat16", "float16": "float16"}
KV_ROLE = {"prefill": "kv_producer", "decode": "kv_consumer"}


def vllm(
    *,
    blocks: float,
    budget: float = 8192,
    slots: float = 1024,
    block: float = 16,
    chunked: bool = True,
    entire: bool = True,
    watermark: float = 0.0,
    overlap: bool = True,
    drafts: float = 0,
) -> "Preempting":
    """vLLM V1: decodes first, parts of prompts beside them, the last one preempted.

    The names are ``max_num_batched_tokens``, ``max_num_seqs``, ``block_size``,
    ``enable_chunked_prefill``, ``scheduler_reserve_full_isl``, ``watermark`` (a share of the
    blocks) and ``async_scheduling`` (``overlap``; the default since 0.14.0). Sources: vllm-project/
    vllm, vllm/v1/core/sched/scheduler.py at 00024d3 (order, budget, preemption);
    vllm/config/scheduler.py and vllm/v1/core/kv_cache_manager.py at 6cf7b26 (a whole prompt's room,
    watermark, both younger than the first); vllm/v1/engine/core.py (``step_with_batch_queue``) and
    vllm/v1/core/sched/async_scheduler.py at 014b235 (overlap), pull request 27614 (its default).
    Prefix caches are in ``prefix_cache``. Left out: long prompts kept short by
    ``long_prefill_token_threshold``, priorities, connectors, and of overlap the pass too many of a
    request that ends by a stop word, and that a request whose last token is in flight may be
    preempted.

    >>> float(vllm(blocks=1000, watermark=0.01).watermark)
    10.0
    """
    from infer_jax.replays import Preempting  # loaded where something is replayed

    sizes = {
        "budget": budget, "slots": slots, "blocks": blocks, "block": block,
        "chunked": float(chunked), "entire": float(entire), "watermark": int(watermark * blocks),
    }  # fmt: skip
    return Preempting.of(**sizes, overlap=float(overlap), drafts=drafts)


def commands(service: LaunchedService) -> Commands:
    """vLLM's commands: attention groups are data-parallel ranks, EP is always TP x DP."""
    steps = tuple(step for one in service.instances for step in _steps(one, service))
    return Commands(steps, notes=tuple(_notes(service)))


def obstacles(service: LaunchedService) -> list[str]:
    """Why vLLM cannot start a plan that others might; nothing where it can."""
    reasons = formats_missing("vLLM", service.checkpoint, CASTS, CACHES)
    for one in service.instances:
        if one.ep not in (1, one.ranks):
            reasons.append(
                f"vLLM deals experts to all {one.ranks} GPUs of a stage or cuts each over all of "
                f"them; the plan deals them to {one.ep}"
            )
        if one.role == "decode" and one.pp > 1:
            reasons.append("the pool that decodes has pipeline stages, which NixlConnector refuses")
        if one.role == "prefill" and one.pp > 1 and service.hybrid:
            reasons.append(
                "NixlConnector refuses pipeline stages of a model whose layers keep caches of "
                "several kinds"
            )
        reasons += division_obstacles(one, lambda n, one=one: _fits(one, n))
    return list(dict.fromkeys(reasons))


def _fits(one: Instance, nodes: int) -> bool:
    """Whether every machine holds whole attention groups, or whole machines one group."""
    local, group = one.gpus // nodes, one.tp * one.pp
    return local % group == 0 or group % local == 0


def _steps(one: Instance, service: LaunchedService) -> list[Step]:
    """The commands of one kind of instance: one, or one for each kind of machine."""
    program = f"vllm serve {shlex.quote(service.checkpoint.repository)}"
    flags = _flags(one, service)
    nodes = machines(one, lambda n: _fits(one, n))
    if nodes == 1:
        copies = _together(one, service)
        shown = one._replace(copies=1) if copies else one
        return [Step(where(shown), line(visible(one) + program, [*flags, *copies]))]
    head = ["--master-addr", Shell('"$HEAD"')]
    return per_machine(one, program, flags, nodes, head, ["--headless"])


def _together(one: Instance, service: LaunchedService) -> list[object]:
    """Instances of a dense model that one command starts: they fit in one machine."""
    alone = service.experts or one.role or one.copies == 1
    fits = one.copies * one.gpus <= one.machine
    return ["--data-parallel-size", one.copies] if fits and not alone else []


def _flags(one: Instance, service: LaunchedService) -> list[object]:
    load = service.checkpoint
    flags: list[object] = ["--tensor-parallel-size", one.tp]
    if one.pp > 1:
        flags += ["--pipeline-parallel-size", one.pp]
    if one.groups > 1:
        flags += ["--data-parallel-size", one.groups]
    if one.ep > 1:
        flags += ["--enable-expert-parallel"]
    flags += ["--max-model-len", service.context]
    flags += ["--max-num-seqs", one.group_requests]
    flags += ["--max-num-batched-tokens", pass_budget(one, service, SCHEDULING)]
    if load.cast:
        flags += ["--quantization", CASTS[load.cast]]
    if load.cache:
        flags += ["--kv-cache-dtype", CACHES[load.cache]]
    if one.drafts:
        drafter = {"method": "draft_model", "model": service.draft}
        drafter = drafter if service.draft else {"method": "mtp"}
        speculation = json.dumps({**drafter, "num_speculative_tokens": one.drafts})
        flags += ["--speculative-config", speculation]
    if one.role:
        flags += ["--port", PORTS[one.role]]
        moved = {"kv_connector": "NixlConnector", "kv_role": KV_ROLE[one.role]}
        flags += ["--kv-transfer-config", json.dumps(moved)]
    return [*flags, "--trust-remote-code"] if load.code else flags


def _notes(service: LaunchedService) -> list[str]:
    notes: list[str] = []
    if len(service.instances) > 1:
        notes.append(
            "Pools need NIXL (pip install nixl), for every instance of a machine a "
            "VLLM_NIXL_SIDE_CHANNEL_PORT of its own, and before them a proxy that sends a "
            "request to both pools."
        )
    if any(one.copies > 1 and not _together(one, service) for one in service.instances):
        notes.append("Spread requests evenly over the instances.")
    return notes


VLLM = ServingEngine(
    name="vllm",
    title="vLLM",
    words=("vllm",),
    version="0.33.0",
    source=SOURCE,
    commands=commands,
    obstacles=obstacles,
    scheduling=SCHEDULING,
    rules=lambda tokens, block, caching, **sizes: vllm(blocks=tokens / block, block=block, **sizes),
    block=16.0,
    router="weighted_queue",
    pools=True,
    mixed_graphs=True,
)
