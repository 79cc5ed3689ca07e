"""Launch commands for SGLang 0.5.23.

From the wheel sglang-0.5.23: options in sglang/srt/arg_groups/fields/, their meaning and which
exclude each other in sglang/srt/arg_groups/ (parallel, speculative, pd_disaggregation and
validation hooks).
"""

import math

from infer_jax.launch.servers import (
    PORTS,
    Instance,
    Launch,
    LaunchedService,
    Step,
    budget,
    formats_missing,
    missing,
)
from infer_jax.launch.shell import Shell, line, machines, per_machine, undivided, visible, where

VERSION = "0.5.23"
SOURCE = (
    "github.com/sgl-project/sglang, v0.5.23, python/sglang/srt/arg_groups/fields; "
    "docs.sglang.io/advanced_features/server_arguments.html"
)
CASTS = {"fp8": "fp8"}
CACHES = {"fp8": "fp8_e4m3", "bfloat16": "bf16"}


def sglang(service: LaunchedService) -> Launch:
    """SGLang's commands: ``--tp-size`` counts the GPUs of a stage, all attention groups."""
    reasons = [*missing(service), *obstacles(service)]
    if reasons:
        return Launch("SGLang", VERSION, SOURCE, missing=tuple(reasons))
    steps = [step for one in service.instances for step in _steps(one, service)]
    return Launch("SGLang", VERSION, SOURCE, tuple(steps), notes=tuple(_notes(service)))


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
        reasons += undivided(one, lambda n, one=one: _fits(one, n))
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
    flags += ["--max-running-requests", one.each * one.groups]
    tokens = budget(one, service, "sglang")
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
