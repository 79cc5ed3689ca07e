"""vLLM: the rules of its V1 scheduler, and the commands that start version 0.33.0.

The commands are from the wheel vllm-0.33.0: options in vllm/engine/arg_utils.py, their meaning and
which exclude each other in vllm/config/ (parallel, scheduler, cache, speculative, kv_transfer),
several machines in vllm/entrypoints/cli/serve.py, pools in
vllm/distributed/kv_transfer/kv_connector/v1/nixl/; the port of its side channel in vllm/envs.py.
Options of its router are from the wheel vllm-router 0.1.17 (vllm_router/router_args.py).
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from infer_jax.engines.engine import ServingEngine
from infer_jax.engines.launches import Instance, LaunchedService, Packages, Shell

if TYPE_CHECKING:
    from infer_jax.replays import Preempting

KV_ROLE = {"prefill": "kv_producer", "decode": "kv_consumer"}
# the default port of its side channel, of which each attention group takes one
SIDE_CHANNEL, STRIDE = 5600, 64


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


class VllmEngine(ServingEngine):
    """vLLM: attention groups are data-parallel ranks, EP is always TP x DP.

    Its scheduler, to which those of the others are compared (v1/core/sched/scheduler.py at
    00024d3), schedules decodes first and chunks of prompts beside them, up to 8192 tokens on a
    large GPU, and allocates cache blocks as tokens are generated, so that a request holds half of
    its output on average. All three engines prepare one pass while another runs (async_scheduling,
    overlap schedulers); docs/theories/scheduler.md has files and versions.
    """

    name, title, code, words = "vllm", "vLLM", 2, ("vllm",)
    version = "0.33.0"
    source = (
        "github.com/vllm-project/vllm, v0.33.0, vllm/engine/arg_utils.py; "
        "docs.vllm.ai/en/latest/serving/expert_parallel_deployment/"
    )
    block = 16.0
    router = "weighted_queue"
    pools = True
    mixed_graphs = True
    # quantised while loading; its own "fp8" is for checkpoints stored in it (quantization/fp8.py)
    casts: ClassVar[Mapping[str, str]] = {"fp8": "fp8_per_tensor", "fp8_block": "fp8_per_block"}
    caches: ClassVar[Mapping[str, str]] = {
        "fp8": "fp8",
        "bfloat16": "bfloat16",
        "float16": "float16",
    }
    address, others = ("--master-addr", Shell('"$HEAD"')), ("--headless",)
    packages = Packages(
        images={"NVIDIA": "vllm/vllm-openai:v{}", "AMD": "vllm/vllm-openai-rocm:v{}"},
        package="vllm",
        client="vllm",
        router="vllm-router==0.1.17",
        router_command=("vllm-router",),
        router_image="vllm/vllm-router:v{}",
        pool_option="--vllm-pd-disaggregation",
        transfer="NIXL (pip install nixl)",
        llm_d="nixlv2",
        dynamo=("vllm-runtime", "vLLM 0.31.0"),
    )

    def rules(self, tokens: float, block: float, *, caching: bool, **sizes) -> "Preempting":
        return vllm(blocks=tokens / block, block=block, **sizes)

    def obstacles_of(self, instance: Instance, service: LaunchedService) -> Iterator[str]:
        if instance.ep not in (1, instance.ranks):
            yield (
                f"vLLM deals experts to all {instance.ranks} GPUs of a stage or cuts each over all "
                f"of them; the plan deals them to {instance.ep}"
            )
        if instance.role == "decode" and instance.pp > 1:
            yield "the pool that decodes has pipeline stages, which NixlConnector refuses"
        if instance.role == "prefill" and instance.pp > 1 and service.hybrid:
            yield (
                "NixlConnector refuses pipeline stages of a model whose layers keep caches of "
                "several kinds"
            )

    def fits(self, instance: Instance, machines: int) -> bool:
        """Whether every machine holds whole attention groups, or whole machines one group."""
        local, group = instance.gpus // machines, instance.tp * instance.pp
        return local % group == 0 or group % local == 0

    def together(self, instance: Instance, service: LaunchedService) -> list[object]:
        """Instances of a dense model that fit in one machine."""
        several = instance.copies > 1 and not (service.experts or instance.role)
        fits = instance.copies * instance.gpus <= instance.machine
        return ["--data-parallel-size", instance.copies] if fits and several else []

    def program(self, service: LaunchedService) -> str:
        return f"vllm serve {shlex.quote(service.checkpoint.repository)}"

    def flags(self, instance: Instance, service: LaunchedService) -> list[object]:
        load = service.checkpoint
        flags: list[object] = ["--tensor-parallel-size", instance.tp]
        if instance.pp > 1:
            flags += ["--pipeline-parallel-size", instance.pp]
        if instance.groups > 1:
            flags += ["--data-parallel-size", instance.groups]
        if instance.ep > 1:
            flags += ["--enable-expert-parallel"]
        flags += ["--max-model-len", service.context]
        flags += ["--max-num-seqs", instance.group_requests]
        flags += ["--max-num-batched-tokens", self.budget(instance, service)]
        if load.cast:
            flags += ["--quantization", self.casts[load.cast]]
        if load.cache:
            flags += ["--kv-cache-dtype", self.caches[load.cache]]
        if instance.drafts:
            drafter = {"method": "draft_model", "model": service.draft}
            drafter = drafter if service.draft else {"method": "mtp"}
            speculation = json.dumps({**drafter, "num_speculative_tokens": instance.drafts})
            flags += ["--speculative-config", speculation]
        flags += instance.listens
        if instance.role:
            moved = {"kv_connector": "NixlConnector", "kv_role": KV_ROLE[instance.role]}
            flags += ["--kv-transfer-config", json.dumps(moved)]
        return [*flags, "--trust-remote-code"] if load.code else flags

    def address_options(
        self, instance: Instance, number: int, host: str
    ) -> tuple[dict[str, str], list[object]]:
        """It listens to all addresses by itself; pools find its caches at a port of their own."""
        if not instance.role:
            return {}, []
        side = "VLLM_NIXL_SIDE_CHANNEL"
        return {f"{side}_HOST": host, f"{side}_PORT": str(SIDE_CHANNEL + STRIDE * number)}, []

    def pool_notes(self) -> str:
        return (
            "Pools need NIXL (pip install nixl), for every instance of a machine a "
            "VLLM_NIXL_SIDE_CHANNEL_PORT of its own, and before them a proxy that sends a "
            "request to both pools."
        )
