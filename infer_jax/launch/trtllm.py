"""Launch commands for TensorRT-LLM.

Options of trtllm-serve at commit 00209af149e7 (tensorrt_llm/commands/serve.py); the YAML file has
fields of the LLM API (nvidia.github.io/TensorRT-LLM/llm-api/reference.html).
"""

import shlex

from infer_jax.launch.servers import PORTS, Instance, Launch, LaunchedService, Step, budget, missing
from infer_jax.launch.shell import line, machines, undivided, visible, where

VERSION = "at commit 00209af149e7"
SOURCE = (
    "github.com/NVIDIA/TensorRT-LLM, 00209af149e7, tensorrt_llm/commands/serve.py; "
    "nvidia.github.io/TensorRT-LLM/features/parallel-strategy.html; "
    "nvidia.github.io/TensorRT-LLM/features/disagg-serving.html"
)
NAME = "TensorRT-LLM"


def trtllm(service: LaunchedService) -> Launch:
    """TensorRT-LLM's commands: attention is split over a stage, or a group is one GPU."""
    reasons = [*missing(service), *obstacles(service)]
    if reasons:
        return Launch(NAME, VERSION, SOURCE, missing=tuple(reasons))
    files = {_file(one): text for one in service.instances if (text := _yaml(one, service))}
    steps = [_step(one, service, files) for one in service.instances]
    notes: list[str] = []
    if len(service.instances) > 1:
        files["pools.yaml"] = _pools(service)
        steps.append(Step("before both pools", "trtllm-serve disaggregated -c pools.yaml"))
        notes.append("In pools.yaml stand the addresses of the instances.")
    if any(one.copies > 1 for one in service.instances):
        notes.append("Spread requests evenly over the instances.")
    return Launch(NAME, VERSION, SOURCE, tuple(steps), files, tuple(notes))


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
        reasons += undivided(one)
    return list(dict.fromkeys(reasons))


def _step(one: Instance, service: LaunchedService, files: dict[str, str]) -> Step:
    load = service.checkpoint
    flags: list[object] = ["--tp_size", one.ranks]
    if one.pp > 1:
        flags += ["--pp_size", one.pp]
    if one.ep > 1:
        flags += ["--ep_size", one.ep]
    nodes = machines(one)
    flags += ["--max_seq_len", service.context, "--max_batch_size", one.each]
    flags += ["--max_num_tokens", budget(one, service, "trtllm")]
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
    if budget(one, service, "trtllm") < service.isl:
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
