"""SGLang: the rules of its scheduler, and the commands that start version 0.5.23.

The commands are from the wheel sglang-0.5.23: options in sglang/srt/arg_groups/fields/, their
meaning and which exclude each other in sglang/srt/arg_groups/ (parallel, speculative,
pd_disaggregation and validation hooks).
"""

import math
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
    from infer_jax.replays import PrefillFirst

RATIO, MIN_RATIO_FACTOR = (
    0.7,
    0.14,
)  # SGLANG_INIT_NEW_TOKEN_RATIO, SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR
# scheduler.py, get_next_batch_to_run: a batch of prompts before any decoding;
# server_args.py: chunked_prefill_size 16384 on the largest GPUs
SCHEDULING = {"prefill_first": 1.0, "budget": 16384.0, "held_output": 0.75}
SOURCE = (
    "github.com/sgl-project/sglang, v0.5.23, python/sglang/srt/arg_groups/fields; "
    "docs.sglang.io/advanced_features/server_arguments.html"
)
CASTS = {"fp8": "fp8"}
CACHES = {"fp8": "fp8_e4m3", "bfloat16": "bf16"}


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
    waited for; a request that finishes meanwhile decodes once more, and the tokens of a request
    taken back that are on their way are thrown away (``is_retracted``). Cached prefixes are in
    ``radix_cache``. Left out: the orders of the queue that need them, mixed chunks,
    ``max_prefill_tokens`` beyond a chunk, priorities, the slot of a request that is known to have
    finished, which the engine counts until it decodes again, and of overlap that a request whose
    last token is on its way may be taken back, and is counted in the share set then. Drafts are a
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


def commands(service: LaunchedService) -> Commands:
    """SGLang's commands: ``--tp-size`` counts the GPUs of a stage, all attention groups."""
    steps = tuple(step for one in service.instances for step in _steps(one, service))
    return Commands(steps, notes=tuple(_notes(service)))


def obstacles(service: LaunchedService) -> list[str]:
    """Why SGLang cannot start a plan that others might; nothing where it can."""
    reasons = formats_missing("SGLang", service.checkpoint, CASTS, CACHES)
    first = service.instances[0]
    for one in service.instances:
        if one.ep not in (1, one.ranks):
            reasons.append(
                f"the kernels that SGLang chooses on some chips deal experts to 1 or to all "
                f"{one.ranks} GPUs of a stage; the plan deals them to {one.ep}"
            )
        if one.drafts and service.draft and one.groups > 1:
            reasons.append("SGLang takes no drafting model beside attention groups")
        if one.role == "decode" and one.pp not in (1, first.pp):
            reasons.append(
                f"SGLang wants the pool that decodes in 1 stage or in the {first.pp} of the pool "
                f"that prefills, not {one.pp}"
            )
        reasons += division_obstacles(one, lambda n, one=one: _fits(one, n))
    return list(dict.fromkeys(reasons))


def _fits(one: Instance, nodes: int) -> bool:
    """Whether every machine holds whole stages, or whole machines one stage."""
    if nodes % one.pp:
        return one.pp % nodes == 0
    return one.ranks % (nodes // one.pp) == 0


def _steps(one: Instance, service: LaunchedService) -> list[Step]:
    program = "python -m sglang.launch_server"
    flags = _flags(one, service)
    nodes = machines(one, lambda n: _fits(one, n))
    if nodes == 1:
        copies = _together(one)
        shown = one._replace(copies=1) if copies else one
        return [Step(where(shown), line(visible(one) + program, [*flags, *copies]))]
    head = ["--dist-init-addr", Shell('"$HEAD:20000"')]
    return per_machine(one, program, flags, nodes, head)


def _together(one: Instance) -> list[object]:
    """Instances that one command starts: replicas in one machine, none with attention groups."""
    alone = one.role or one.groups > 1 or one.pp > 1 or one.copies == 1
    fits = one.copies * one.gpus <= one.machine
    return ["--dp-size", one.copies] if fits and not alone else []


def _flags(one: Instance, service: LaunchedService) -> list[object]:
    load = service.checkpoint
    flags: list[object] = ["--model-path", load.repository, "--tp-size", one.ranks]
    if one.pp > 1:
        flags += ["--pp-size", one.pp]
    if one.groups > 1:
        flags += ["--attn-dp-size", one.groups]
    if one.ep > 1:
        flags += ["--ep-size", one.ep]
    flags += ["--context-length", service.context]
    # both are divided among the attention groups by the server
    flags += ["--max-running-requests", one.group_requests * one.groups]
    tokens = pass_budget(one, service, SCHEDULING)
    whole = one.chunk == math.inf and tokens >= service.isl
    flags += ["--chunked-prefill-size", -1 if whole else tokens * one.groups]
    if one.role == "prefill":
        flags += ["--max-prefill-tokens", tokens]
    if load.cast:
        flags += ["--quantization", CASTS[load.cast]]
    if load.cache:
        flags += ["--kv-cache-dtype", CACHES[load.cache]]
    if one.drafts:
        flags += ["--speculative-algorithm", "STANDALONE" if service.draft else "NEXTN"]
        flags += ["--speculative-draft-model-path", service.draft] if service.draft else []
        flags += ["--speculative-num-steps", one.drafts, "--speculative-eagle-topk", 1]
        flags += ["--speculative-num-draft-tokens", one.drafts + 1]
    if one.role:
        flags += ["--port", PORTS[one.role]]
        flags += ["--disaggregation-mode", one.role]
        flags += ["--disaggregation-transfer-backend", "mooncake"]
    return [*flags, "--trust-remote-code"] if load.code else flags


def _notes(service: LaunchedService) -> list[str]:
    notes: list[str] = []
    if len(service.instances) > 1:
        notes.append(
            "Pools need Mooncake (pip install mooncake-transfer-engine) and before them "
            "`sglang_router.launch_router --pd-disaggregation` with the addresses of both pools."
        )
    if any(one.copies > 1 and not _together(one) for one in service.instances):
        notes.append("Spread requests evenly over the instances.")
    return notes


SGLANG = ServingEngine(
    name="sglang",
    title="SGLang",
    words=("sglang",),
    version="0.5.23",
    source=SOURCE,
    commands=commands,
    obstacles=obstacles,
    scheduling=SCHEDULING,
    rules=lambda tokens, block, caching, **sizes: sglang(tokens=tokens, page=block, **sizes),
    block=1.0,
    router="round_robin",
    settings=("overlap",),
    host_memory=False,  # of a radix tree
)
