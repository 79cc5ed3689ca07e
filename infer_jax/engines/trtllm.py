"""TensorRT-LLM: the rules of its scheduler, and the commands that start it.

Options are of trtllm-serve at commit 00209af149e7 (tensorrt_llm/commands/serve.py); the YAML file
has fields of the LLM API (nvidia.github.io/TensorRT-LLM/llm-api/reference.html).
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from infer_jax.engines.engine import ServingEngine
from infer_jax.engines.launches import (
    PORTS,
    Instance,
    Launch,
    LaunchedService,
    Packages,
    Step,
    command_line,
)
from infer_jax.errors import InputError

if TYPE_CHECKING:
    from infer_jax.replays import GuaranteedNoEvict, Preempting


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


class TrtllmEngine(ServingEngine):
    """TensorRT-LLM: attention is split over a stage, or a group is one GPU."""

    name, title, code, words = "trtllm", "TensorRT-LLM", 0, ("trt", "tensorrt")
    version = "at commit 00209af149e7"
    source = (
        "github.com/NVIDIA/TensorRT-LLM, 00209af149e7, tensorrt_llm/commands/serve.py; "
        "nvidia.github.io/TensorRT-LLM/features/parallel-strategy.html; "
        "nvidia.github.io/TensorRT-LLM/features/disagg-serving.html"
    )
    # microBatchScheduler.cpp: whole prompts, unless enable_chunked_prefill; capacityScheduler.cpp,
    # GUARANTEED_NO_EVICT: blocks for the whole output
    scheduling: ClassVar[Mapping[str, float]] = {"whole": 1.0, "held_output": 1.0}
    block = 32.0
    # tensorrt_llm/_torch/pyexecutor/executor_request_queue.py, _balance_requests_across_ranks,
    # fills the ranks with the fewest tokens
    router = "minimum_tokens"
    under_slurm = True
    packages = Packages(
        images={"NVIDIA": "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc29"},
        package="tensorrt-llm",
        pool_command=("trtllm-serve", "disaggregated", "-c", "pools.yaml", "-t", "3600"),
        transfer="UCX or NIXL",
        dynamo=("tensorrtllm-runtime", "TensorRT-LLM 1.3.0rc29"),
        dynamo_words={
            "--tp_size": ("--tensor-parallel-size",),
            "--pp_size": ("--pipeline-parallel-size",),
            "--ep_size": ("--expert-parallel-size",),
            "--max_seq_len": ("--max-seq-len",),
            "--max_batch_size": ("--max-batch-size",),
            "--max_num_tokens": ("--max-num-tokens",),
            "--config": ("--extra-engine-args",),
            "--trust_remote_code": (
                "--override-engine-args",
                json.dumps({"trust_remote_code": True}),
            ),
        },
    )

    def rules(
        self, tokens: float, block: float, *, caching: bool, **sizes
    ) -> "GuaranteedNoEvict | Preempting":
        return trtllm(blocks=tokens / block, block=block, reuse=caching, **sizes)

    def format_obstacles(self, service: LaunchedService) -> Iterator[str]:
        load = service.checkpoint
        if load.cast:
            yield (
                f"TensorRT-LLM loads {load.cast} from a checkpoint that is stored so, and no "
                f"repository of {load.repository} in {load.cast} is known here"
            )
        if load.cache not in ("", "fp8"):
            yield f"TensorRT-LLM keeps no KV cache in {load.cache}"
        if service.draft and any(x.drafts for x in service.instances):
            yield "a drafting model is given to TensorRT-LLM by a folder, which is not known"

    def obstacles_of(self, instance: Instance, service: LaunchedService) -> Iterator[str]:
        if instance.maker == "AMD":
            yield "TensorRT-LLM runs on NVIDIA GPUs"
        if instance.groups > 1 and instance.tp > 1:
            yield (
                f"TensorRT-LLM gives each of the {instance.ranks} GPUs of a stage an attention "
                f"group of its own; the plan has {instance.groups} groups of {instance.tp}"
            )

    def launch(self, service: LaunchedService) -> Launch:
        """Commands, and the files of settings that have no option."""
        launch = super().launch(service)
        if not launch.steps:
            return launch
        texts = {_file(x): self._yaml(x, service) for x in service.instances}
        files, steps = {name: text for name, text in texts.items() if text}, launch.steps
        if len(service.instances) > 1:
            files["pools.yaml"] = pools_file(
                [
                    [f"{x.role}-{i}:{PORTS[x.role]}" for i in range(x.copies)]
                    for x in service.instances
                ]
            )
            steps += (Step("before both pools", "trtllm-serve disaggregated -c pools.yaml"),)
        return launch._replace(steps=steps, files=files)

    def program(self, service: LaunchedService) -> str:
        return f"trtllm-serve {shlex.quote(service.checkpoint.repository)}"

    def flags(self, instance: Instance, service: LaunchedService) -> list[object]:
        flags: list[object] = ["--tp_size", instance.ranks]
        flags += ["--pp_size", instance.pp] if instance.pp > 1 else []
        flags += ["--ep_size", instance.ep] if instance.ep > 1 else []
        flags += ["--max_seq_len", service.context, "--max_batch_size", instance.group_requests]
        flags += ["--max_num_tokens", self.budget(instance, service)]
        flags += instance.listens
        flags += ["--config", _file(instance)] if self._yaml(instance, service) else []
        return [*flags, "--trust_remote_code"] if service.checkpoint.code else flags

    def steps(self, instance: Instance, service: LaunchedService) -> list[Step]:
        machines = self.machines(instance)
        if machines == 1:
            return super().steps(instance, service)
        # one Slurm task for each GPU
        tasks = f"--ntasks {instance.gpus} --ntasks-per-node {instance.gpus // machines} --mpi pmix"
        launcher = f"srun --nodes {machines} {tasks} trtllm-llmapi-launch {self.program(service)}"
        command = command_line(launcher, self.flags(instance, service))
        return [Step(instance.where(f"{machines} machines under Slurm"), command)]

    def _yaml(self, instance: Instance, service: LaunchedService) -> str:
        """The settings that have no command-line option, as YAML."""
        lines = ["enable_attention_dp: true"] if instance.groups > 1 else []
        if self.budget(instance, service) < service.isl:
            lines.append("enable_chunked_prefill: true")
        if service.checkpoint.cache:
            lines += ["kv_cache_config:", f"  dtype: {service.checkpoint.cache}"]
        if instance.drafts:
            lines += ["speculative_config:", "  decoding_type: MTP"]
            lines.append(f"  num_nextn_predict_layers: {instance.drafts}")
        if instance.role:
            lines += ["cache_transceiver_config:", "  backend: DEFAULT"]
        if instance.role == "prefill":
            lines.append("disable_overlap_scheduler: true")
        return "\n".join(lines)

    def pool_notes(self) -> str:
        return "In pools.yaml stand the addresses of the instances."


def _file(instance: Instance) -> str:
    return f"{instance.role or 'plan'}.yaml"


def pools_file(addresses: Sequence[Sequence[str]], host: str = "localhost") -> str:
    """Where requests come in, and the addresses of both pools."""
    lines = [f"hostname: {host}", "port: 8000"]
    for those, title in zip(addresses, ("context", "generation"), strict=True):
        lines += [f"{title}_servers:", f"  num_instances: {len(those)}", "  urls:"]
        lines += [f'    - "{address}"' for address in those]
    return "\n".join(lines)
