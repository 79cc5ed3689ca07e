"""SGLang: the rules of its scheduler, and the commands that start version 0.5.23.

The commands are from the wheel sglang-0.5.23: options in sglang/srt/arg_groups/fields/, their
meaning and which exclude each other in sglang/srt/arg_groups/ (parallel, speculative,
pd_disaggregation and validation hooks); the bootstrap port is in sglang/srt/arg_groups/fields/
disagg.py. Options of its router are from the wheel sglang-router 0.3.2 (sglang_router/
router_args.py).
"""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from infer_jax.engines.engine import ServingEngine
from infer_jax.engines.launches import Instance, LaunchedService, Packages, Shell

if TYPE_CHECKING:
    from infer_jax.replays import PrefillFirst

RATIO = 0.7  # SGLANG_INIT_NEW_TOKEN_RATIO
MIN_RATIO_FACTOR = 0.14  # SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR


def sglang(
    *,
    tokens: float,
    budget: float = 8192,
    slots: float | None = None,
    page: float = 1,
    conservativeness: float = 1.0,
    poll: float = 1.0,
    overlap: bool = True,
    drafts: float = 0,
) -> "PrefillFirst":
    """SGLang: prompts first, room by an estimate of what running requests will need.

    The names are ``max_total_num_tokens``, ``chunked_prefill_size``, ``max_running_requests``,
    ``page_size``, ``schedule_conservativeness``, ``scheduler_recv_interval`` (which the engine
    counts for decode passes alone) and ``disable_overlap_schedule`` (false by default). Sources:
    sgl-project/sglang, python/sglang/srt/managers/schedule_policy.py at 00550cd and python/sglang/
    srt/environ.py (0.7, 0.14, 600, 20, 4096). Overlap: scheduler.py at 0003215,
    ``event_loop_overlap``, ``update_running_batch``: a pass is launched, then the one before it is
    waited for; a request that finishes meanwhile decodes once more, and the tokens of a retracted
    request that are on their way are thrown away (``is_retracted``). Cached prefixes are in
    ``radix_cache``. Left out: the orders of the queue that need them, mixed chunks,
    ``max_prefill_tokens`` beyond a chunk, priorities, the slot of a request that is known to have
    finished, which the engine counts until it decodes again, and of overlap that a request whose
    last token is on its way may be retracted, and is counted in the ratio set then. Drafts are a
    chain (``speculative_num_steps`` ``drafts``, ``speculative_eagle_topk`` 1,
    ``speculative_num_draft_tokens`` one more) of EAGLE, NEXTN or MTP:
    python/sglang/srt/mem_cache/allocation_sizing.py at 027bddf (2 (k + 1) tokens ahead of those
    read, ``get_alloc_reserve_per_decode``), schedule_batch.py (``new_tokens_required_next_decode``:
    k + 1 where passes do not overlap, the first version of speculation; ``retract_decode``: from
    the back of the batch) and server_args.py (48 requests where ``max_running_requests`` is not
    given). Left out of them: trees and lengths that adapt.

    >>> rules = sglang(tokens=100_000)
    >>> round(float(rules.ratio), 3), round(float(rules.least), 3)
    (0.7, 0.098)
    >>> float(sglang(tokens=100_000, drafts=3).slots)
    48.0
    """
    from infer_jax.replays import PrefillFirst  # loaded where something is replayed

    if slots is None:
        slots = 48 if drafts else 1024
    ratio = min(RATIO * conservativeness, 1.0)
    return PrefillFirst.of(
        budget=budget, slots=slots, blocks=tokens // page, block=page, poll=poll,
        unit=page, overlap=float(overlap), drafts=drafts, ratio=ratio,
        least=min(MIN_RATIO_FACTOR * ratio, 1.0),
    )  # fmt: skip


class SglangEngine(ServingEngine):
    """SGLang: ``--tp-size`` counts the GPUs of a stage, all attention groups."""

    name, title, code, words = "sglang", "SGLang", 1, ("sglang",)
    version = "0.5.23"
    source = (
        "github.com/sgl-project/sglang, v0.5.23, python/sglang/srt/arg_groups/fields; "
        "docs.sglang.io/advanced_features/server_arguments.html"
    )
    # scheduler.py, get_next_batch_to_run: a batch of prompts before any decoding;
    # server_args.py: chunked_prefill_size 16384 on the largest GPUs
    scheduling: ClassVar[Mapping[str, float]] = {
        "prefill_first": 1.0,
        "budget": 16384.0,
        "held_output": 0.75,
    }
    block = 1.0
    router = "round_robin"
    settings = ("overlap",)
    host_memory = False  # of a radix tree
    casts: ClassVar[Mapping[str, str]] = {"fp8": "fp8"}
    caches: ClassVar[Mapping[str, str]] = {"fp8": "fp8_e4m3", "bfloat16": "bf16"}
    address = ("--dist-init-addr", Shell('"$HEAD:20000"'))
    packages = Packages(
        images={"NVIDIA": "lmsysorg/sglang:v{}"},
        package="sglang",
        client="sglang",
        router="sglang-router==0.3.2",
        router_command=("python3", "-m", "sglang_router.launch_router"),
        pool_option="--pd-disaggregation",
        bootstrap=8998,
        transfer="Mooncake (pip install mooncake-transfer-engine)",
        llm_d="sglang",
        dynamo=("sglang-runtime", "SGLang 0.5.21"),
        dynamo_words={"mooncake": ("nixl",)},  # its image moves caches by NIXL
    )

    def rules(self, tokens: float, block: float, *, caching: bool, **sizes) -> "PrefillFirst":
        return sglang(tokens=tokens, page=block, **sizes)

    def obstacles_of(self, instance: Instance, service: LaunchedService) -> Iterator[str]:
        if instance.ep not in (1, instance.ranks):
            yield (
                "the kernels that SGLang chooses on some chips deal experts to 1 or to all "
                f"{instance.ranks} GPUs of a stage; the plan deals them to {instance.ep}"
            )
        if instance.drafts and service.draft and instance.groups > 1:
            yield "SGLang takes no drafting model beside attention groups"
        stages = service.instances[0].pp
        if instance.role == "decode" and instance.pp not in (1, stages):
            yield (
                f"SGLang wants the pool that decodes in 1 stage or in the {stages} of the pool "
                f"that prefills, not {instance.pp}"
            )

    def fits(self, instance: Instance, machines: int) -> bool:
        """Whether every machine holds whole stages, or whole machines one stage."""
        if machines % instance.pp:
            return instance.pp % machines == 0
        return instance.ranks % (machines // instance.pp) == 0

    def together(self, instance: Instance, service: LaunchedService) -> list[object]:
        """Replicas in one machine, none with attention groups."""
        plain = not instance.role and instance.groups == 1 and instance.pp == 1
        fits = instance.copies * instance.gpus <= instance.machine
        several = instance.copies > 1 and plain and fits
        return ["--dp-size", instance.copies] if several else []

    def program(self, service: LaunchedService) -> str:
        return "python -m sglang.launch_server"

    def flags(self, instance: Instance, service: LaunchedService) -> list[object]:
        load = service.checkpoint
        flags: list[object] = ["--model-path", load.repository, "--tp-size", instance.ranks]
        if instance.pp > 1:
            flags += ["--pp-size", instance.pp]
        if instance.groups > 1:
            flags += ["--attn-dp-size", instance.groups]
        if instance.ep > 1:
            flags += ["--ep-size", instance.ep]
        flags += ["--context-length", service.context]
        # both are divided among the attention groups by the server
        flags += ["--max-running-requests", instance.group_requests * instance.groups]
        tokens = self.budget(instance, service)
        whole = instance.chunk == math.inf and tokens >= service.isl
        flags += ["--chunked-prefill-size", -1 if whole else tokens * instance.groups]
        if instance.role == "prefill":
            flags += ["--max-prefill-tokens", tokens]
        if load.cast:
            flags += ["--quantization", self.casts[load.cast]]
        if load.cache:
            flags += ["--kv-cache-dtype", self.caches[load.cache]]
        if instance.drafts:
            flags += ["--speculative-algorithm", "STANDALONE" if service.draft else "NEXTN"]
            flags += ["--speculative-draft-model-path", service.draft] if service.draft else []
            flags += ["--speculative-num-steps", instance.drafts, "--speculative-eagle-topk", 1]
            flags += ["--speculative-num-draft-tokens", instance.drafts + 1]
        flags += instance.listens
        if instance.role:
            flags += ["--disaggregation-mode", instance.role]
            flags += ["--disaggregation-transfer-backend", "mooncake"]
        return [*flags, "--trust-remote-code"] if load.code else flags

    def address_options(
        self, instance: Instance, number: int, host: str
    ) -> tuple[dict[str, str], list[object]]:
        variables, options = super().address_options(instance, number, host)
        if instance.role == "prefill":
            options += ["--disaggregation-bootstrap-port", self.packages.bootstrap + number]
        return variables, options

    def pool_notes(self) -> str:
        return (
            "Pools need Mooncake (pip install mooncake-transfer-engine) and before them "
            "`sglang_router.launch_router --pd-disaggregation` with the addresses of both pools."
        )
