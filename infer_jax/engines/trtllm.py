"""TensorRT-LLM: the rules of its scheduler, and the commands that start it.

Options are of trtllm-serve at commit 00209af149e7 (tensorrt_llm/commands/serve.py); the YAML file
has fields of the LLM API (nvidia.github.io/TensorRT-LLM/llm-api/reference.html).
"""

import shlex
from typing import TYPE_CHECKING

from infer_jax.engines.engine import Commands, ServingEngine, pass_budget
from infer_jax.engines.launches import PORTS, Instance, LaunchedService, Step
from infer_jax.engines.shell import division_obstacles, line, machines, visible, where
from infer_jax.errors import InputError

if TYPE_CHECKING:
    from infer_jax.replays import GuaranteedNoEvict, Preempting

# microBatchScheduler.cpp: whole prompts, unless enable_chunked_prefill; capacityScheduler.cpp,
# GUARANTEED_NO_EVICT: blocks for the whole output
SCHEDULING = {"whole": 1.0, "held_output": 1.0}
SOURCE = (
    "github.com/NVIDIA/TensorRT-LLM, 00209af149e7, tensorrt_llm/commands/serve.py; "
    "nvidia.github.io/TensorRT-LLM/features/parallel-strategy.html; "
    "nvidia.github.io/TensorRT-LLM/features/disagg-serving.html"
)


def trtllm(
    *,
    blocks: float,
    budget: float = 8192,
    slots: float = 2048,
    block: float = 32,
    chunked: bool = False,
    evicts: bool = False,
    overlap: bool = True,
    drafts: float = 0,
    reuse: bool = False,
) -> "GuaranteedNoEvict | Preempting":
    """TensorRT-LLM: in-flight batching; no eviction, or (``evicts``) the last request is paused.

    The names are ``max_num_tokens``, ``max_batch_size``, ``tokens_per_block``,
    ``enable_chunked_prefill``, ``capacity_scheduler_policy`` and ``disable_overlap_scheduler``
    (false by default). Sources: NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/batch_manager/
    capacityScheduler.cpp at 02a10fe and microBatchScheduler.cpp at 0a949d3: first come, first
    served; a prompt that is cut is cut at a multiple of a block. Overlap: tensorrt_llm/_torch/
    pyexecutor/py_executor.py at 4b7d719, ``_executor_loop_overlap``: a pass is scheduled and
    launched before the results of the one before it are read; a request whose last token is in
    flight is in no further pass (``GENERATION_TO_COMPLETE``), and counts as active until then.
    Drafts (``max_draft_len`` of MTP and of EAGLE in one model) count as tokens of a pass, 1 + k of
    each request that decodes (microBatchScheduler.cpp), and take no blocks beyond prompt and output
    (kvCacheManager.cpp at 002ba6a, ``getRemainingBlocksToCompletion``); put together ahead, a
    request is in one pass more unless the one that runs was wanted for one token
    (``willCompleteNextIteration``). ``reuse`` is ``enable_block_reuse``. Left out: overlap, drafts
    and reuse where requests are paused, drafts with reuse, prompts in equal progress, adapters,
    micro-batches of a pipeline, and prompts that would fit what is left of a unit after one was
    cut.

    >>> type(trtllm(blocks=1000)).__name__, type(trtllm(blocks=1000, evicts=True)).__name__
    ('GuaranteedNoEvict', 'Preempting')

    Raises:
        InputError: drafts or reuse where requests are paused, or drafts with reuse.
    """
    from infer_jax.replays import (  # loaded where something is replayed
        BlockReuse,
        GuaranteedNoEvict,
        Preempting,
    )

    sizes = {
        "budget": budget, "slots": slots, "blocks": blocks, "block": block,
        "chunked": float(chunked), "unit": block,
    }  # fmt: skip
    if evicts and drafts:
        raise InputError("trtllm", "drafts", drafts, "0 where requests are paused")
    if reuse and (evicts or drafts):
        what = "requests are paused" if evicts else "tokens are drafted"
        raise InputError("trtllm", "reuse", True, f"no where {what}")
    if evicts:
        return Preempting.of(**sizes, hold=1)
    if reuse:
        return BlockReuse.of(**sizes, overlap=float(overlap))
    return GuaranteedNoEvict.of(**sizes, overlap=float(overlap), drafts=drafts)


def commands(service: LaunchedService) -> Commands:
    """TensorRT-LLM's commands: attention is split over a stage, or a group is one GPU."""
    files = {_file(one): text for one in service.instances if (text := _yaml(one, service))}
    steps = [_step(one, service, files) for one in service.instances]
    notes: list[str] = []
    if len(service.instances) > 1:
        files["pools.yaml"] = _pools(service)
        steps.append(Step("before both pools", "trtllm-serve disaggregated -c pools.yaml"))
        notes.append("In pools.yaml stand the addresses of the instances.")
    if any(one.copies > 1 for one in service.instances):
        notes.append("Spread requests evenly over the instances.")
    return Commands(tuple(steps), files, tuple(notes))


def obstacles(service: LaunchedService) -> list[str]:
    """Why TensorRT-LLM cannot start a plan that others might; nothing where it can."""
    load = service.checkpoint
    reasons: list[str] = []
    if load.cast:
        reasons.append(
            f"TensorRT-LLM loads {load.cast} from a checkpoint that is stored so, and no "
            f"repository of {load.repository} in {load.cast} is known here"
        )
    if load.cache not in ("", "fp8"):
        reasons.append(f"TensorRT-LLM keeps no KV cache in {load.cache}")
    if service.draft and any(one.drafts for one in service.instances):
        reasons.append("a drafting model is given to TensorRT-LLM by a folder, which is not known")
    for one in service.instances:
        if one.maker == "AMD":
            reasons.append("TensorRT-LLM runs on NVIDIA GPUs")
        if one.groups > 1 and one.tp > 1:
            reasons.append(
                f"TensorRT-LLM gives each of the {one.ranks} GPUs of a stage an attention group "
                f"of its own; the plan has {one.groups} groups of {one.tp}"
            )
        reasons += division_obstacles(one)
    return list(dict.fromkeys(reasons))


def _step(one: Instance, service: LaunchedService, files: dict[str, str]) -> Step:
    load = service.checkpoint
    flags: list[object] = ["--tp_size", one.ranks]
    if one.pp > 1:
        flags += ["--pp_size", one.pp]
    if one.ep > 1:
        flags += ["--ep_size", one.ep]
    nodes = machines(one)
    flags += ["--max_seq_len", service.context, "--max_batch_size", one.group_requests]
    flags += ["--max_num_tokens", pass_budget(one, service, SCHEDULING)]
    flags += ["--port", PORTS[one.role]] if one.role else []
    flags += ["--config", _file(one)] if _file(one) in files else []
    flags += ["--trust_remote_code"] if load.code else []
    program = f"trtllm-serve {shlex.quote(load.repository)}"
    if nodes == 1:
        return Step(where(one), line(visible(one) + program, flags))
    # one Slurm task for each GPU
    each = one.gpus // nodes
    tasks = f"--ntasks {one.gpus} --ntasks-per-node {each} --mpi pmix"
    launcher = f"srun --nodes {nodes} {tasks} trtllm-llmapi-launch {program}"
    return Step(where(one, f"{nodes} machines under Slurm"), line(launcher, flags))


def _file(one: Instance) -> str:
    return f"{one.role or 'plan'}.yaml"


def _yaml(one: Instance, service: LaunchedService) -> str:
    """The settings that have no command-line option, as YAML."""
    lines = ["enable_attention_dp: true"] if one.groups > 1 else []
    if pass_budget(one, service, SCHEDULING) < service.isl:
        lines.append("enable_chunked_prefill: true")
    if service.checkpoint.cache:
        lines += ["kv_cache_config:", f"  dtype: {service.checkpoint.cache}"]
    if one.drafts:
        lines += ["speculative_config:", "  decoding_type: MTP"]
        lines.append(f"  num_nextn_predict_layers: {one.drafts}")
    if one.role:
        lines += ["cache_transceiver_config:", "  backend: DEFAULT"]
    if one.role == "prefill":
        lines.append("disable_overlap_scheduler: true")
    return "\n".join(lines)


def _pools(service: LaunchedService) -> str:
    """Where requests come in, and the addresses of both pools."""
    lines = ["hostname: localhost", "port: 8000"]
    for one, title in zip(service.instances, ("context", "generation"), strict=True):
        lines += [f"{title}_servers:", f"  num_instances: {one.copies}", "  urls:"]
        lines += [f'    - "{one.role}-{i}:{PORTS[one.role]}"' for i in range(one.copies)]
    return "\n".join(lines)


TRTLLM = ServingEngine(
    name="trtllm",
    title="TensorRT-LLM",
    words=("trt", "tensorrt"),
    version="at commit 00209af149e7",
    source=SOURCE,
    commands=commands,
    obstacles=obstacles,
    scheduling=SCHEDULING,
    rules=lambda tokens, block, caching, **sizes: trtllm(
        blocks=tokens / block, block=block, reuse=caching, **sizes
    ),
    block=32.0,
    # tensorrt_llm/_torch/pyexecutor/executor_request_queue.py, _balance_requests_across_ranks,
    # fills the ranks with the fewest tokens
    router="minimum_tokens",
)
