"""One pass as a sum of kernels: time, terms and memory limit, corrected or as published."""

import jax.numpy as jnp
from jax import Array

from infer_jax import footprint
from infer_jax.estimators.estimate import Limit, Phase
from infer_jax.estimators.kernels import layers as corrected_layers, published as as_published
from infer_jax.estimators.kernels.budget import budget
from infer_jax.estimators.kernels.coefficients import Coefficients, KernelsPlan
from infer_jax.estimators.kernels.efficiency import MEASURED, Kernel
from infer_jax.estimators.kernels.tables import Tables
from infer_jax.footprint import EngineSettings, Launched, MeanLengths, Overheads
from infer_jax.physics.decoder import total
from infer_jax.physics.memory.chip_memory import Ranks, resident
from infer_jax.specs import Architecture, ForwardPass, Hardware, Torus, Workload
from infer_jax.typed_jax import trees

Answer = tuple[Phase, list[dict[str, Kernel]]]


def corrected(
    model: Coefficients,
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    plan: KernelsPlan,
) -> Answer:
    """One pass as engines run it, added up layer by layer."""
    rank = corrected_layers.Rank(model, arch, hardware, forward, plan)
    kernels_of: list[dict[str, Kernel]] = []
    kinds = ("attention", "feedforward", "network")
    terms: dict[str, Array] = {kind: jnp.asarray(0.0) for kind in kinds}
    time, useful = jnp.asarray(0.0), jnp.asarray(0.0)
    for block in arch.blocks:
        kernels, spent = corrected_layers.layer(rank, block)
        seconds, parts = corrected_layers.layer_time(rank, spent)
        time = time + block.count * seconds
        terms = {name: terms[name] + block.count * parts[name] for name in terms}
        useful = useful + block.count * total(k.flops / k.peak for k in kernels.values())
        kernels_of.append(kernels)
    last = corrected_layers.head(rank)
    batches = 1.0 + plan.two_batch
    terms["head"] = batches * last.seconds
    terms["scheduling"] = jnp.where(rank.decodes, model.schedule_decode, model.schedule_prefill)
    time = time + terms["head"] + terms["scheduling"]
    useful = batches * (useful + last.flops / last.peak)
    kernels_of.append({"head": last})
    limits = {"memory": _memory_limit(model, arch, hardware, forward, plan)} | _measured(
        model, kernels_of
    )
    phase = Phase(
        time=time, terms=terms, limits=limits, mfu=useful / time, layout=_layout(plan, rank.nodes)
    )
    return phase, kernels_of


def _account(
    model: Coefficients,
    arch: Architecture,
    hardware: Hardware,
    plan: KernelsPlan,
    requests: Array | float = 1.0,
) -> tuple[footprint.Account, Launched]:
    """The memory of one GPU as vLLM divides it, and how it is started for a group's requests."""
    ranks, usual = Ranks(plan.tp, plan.ep, plan.pp), footprint.default_numbers
    server = usual(EngineSettings) if model.server is None else model.server
    launched = Launched.in_flight(server)
    server = launched.settings(server, requests)
    return footprint.account(resident(arch), hardware, ranks, server, usual(Overheads)), launched


def _memory_limit(
    model: Coefficients,
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    plan: KernelsPlan,
) -> Limit:
    """Bytes of one GPU: weights, activations and reserve, and the cache of its sequences."""
    requests = forward.sequences / plan.ep
    gpu, _ = _account(model, arch, hardware, plan, requests)
    each = gpu.cache.on_average(forward.cached_tokens + forward.new_tokens)
    return Limit(need=gpu.fixed + requests * each, capacity=gpu.budget)


def largest_batch(
    model: Coefficients,
    arch: Architecture,
    hardware: Hardware,
    workload: Workload,
    plan: KernelsPlan,
) -> Array:
    """Requests of isl + osl tokens that fit beside the weights, whole ones in every group."""
    tokens = workload.isl + workload.osl
    if model.published:
        blank = ForwardPass(
            sequences=plan.ep, new_tokens=jnp.ones_like(tokens), cached_tokens=tokens
        )
        job = _job(model, arch, hardware, blank, plan, "decode")
        held = budget(job)
        room = jnp.maximum(held.space, 0.0) / (held.token * tokens + held.state)
    else:
        gpu, launched = _account(model, arch, hardware, plan)
        lengths = MeanLengths(workload.isl, workload.osl, held=1.0)
        room = footprint.requests_held(gpu, lengths, launched)
    return plan.ep * jnp.floor(room)


def _measured(model: Coefficients, in_order: list[dict[str, Kernel]]) -> dict[str, Limit]:
    """A limit of 0 kernels without a measured row, where efficiencies come from tables."""
    if model.published or not isinstance(model.efficiency, Tables):
        return {}
    lacking = total(
        jnp.where((k.lack != MEASURED) & (k.flops > 0), 1.0, 0.0)
        for kernels in in_order
        for k in kernels.values()
    )
    return {"kernels without a measurement": Limit(need=lacking, capacity=jnp.asarray(0.0))}


def _layout(plan: KernelsPlan, nodes: Array) -> dict[str, Array]:
    return {"tp": plan.tp, "ep": plan.ep, "pp": plan.pp, "nodes": nodes}


def _job(
    model: Coefficients,
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    plan: KernelsPlan,
    stage: str,
) -> as_published.PhaseInputs:
    """The inputs of the authors' program for a pass: counts of one GPU and one micro-batch."""
    world = plan.tp * plan.ep
    network = hardware.network
    domain = 1.0 if isinstance(network, Torus) else network.domain
    job = as_published.PhaseInputs(
        model=model,
        arch=arch,
        hardware=hardware,
        world=world,
        tp=plan.tp,
        nodes=jnp.where(plan.nodes > 0, plan.nodes, jnp.ceil(world / domain)),
        deepep=plan.deepep,
        two_batch=plan.two_batch,
        sm_share=plan.sm_share,
        stage=stage,
        tokens=forward.sequences,
        length=forward.cached_tokens + forward.new_tokens,
    )
    batches = 1.0 if job.hybrid else 1.0 + plan.two_batch
    each = forward.sequences / (plan.ep * batches)
    if stage == "decode":
        return job._replace(tokens=each, length=forward.cached_tokens)
    return job._replace(tokens=each * forward.new_tokens)


def published(
    model: Coefficients,
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    plan: KernelsPlan,
) -> Answer:
    """One pass as the authors' program adds it up, with one set of kernel names for all blocks."""

    def phase(stage: str) -> tuple[Phase, dict[str, Kernel]]:
        job = _job(model, arch, hardware, forward, plan, stage)
        kernels, spent = as_published.layers(job)
        seconds, terms = as_published.phase_time(job, spent)
        scheduling = model.scheduling(stage, job.hybrid)
        time = seconds + scheduling
        held = budget(job)
        context = forward.cached_tokens + forward.new_tokens
        each = held.token * context + held.state
        need = held.weights + model.reserve + forward.sequences / plan.ep * each
        ideal = total(k.flops / k.peak for k in kernels.values())
        layers = total(b.count for b in arch.blocks)
        whole = Phase(
            time=time,
            terms=terms | {"scheduling": scheduling * jnp.ones_like(time)},
            limits={"memory": Limit(need=need, capacity=hardware.chip.memory * model.byte_giga)},
            mfu=layers * ideal / time,
            layout=_layout(plan, job.nodes),
        )
        return whole, kernels

    decodes = forward.new_tokens <= model.decode_tokens
    answer, kernels = trees.where(decodes, phase("decode"), phase("prefill"))
    return answer, [kernels]
