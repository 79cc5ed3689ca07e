"""``ij.memory``: what one GPU holds, and how many tokens and requests its cache takes."""

from typing import Annotated

from infer_jax import verbs
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option, either, without_none


@verb
def memory(
    config: opt.Config,
    hardware: opt.System,
    *,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,
    layout: opt.Layout = None,
    enable_expert_parallel: opt.ExpertParallel = False,
    enable_dp_attention: opt.DpAttention = False,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    gpu_memory_utilization: opt.GpuMemory = None,
    max_model_len: Annotated[float | None, Option.of("TOKENS", opt.WHOLE)] = None,
    max_num_batched_tokens: opt.PassTokens = None,
    max_num_seqs: Annotated[float | None, Option.of("N", opt.WHOLE)] = None,
    block_size: Annotated[float, Option.of("TOKENS", opt.WHOLE)] = 16.0,
    batch: opt.Batch = None,
    isl: opt.Isl = 4096,
    osl: opt.Osl = 512,
    engine: opt.Engine = None,
    set: opt.Changes = None,
) -> "verbs.MemoryResult":
    """Does it fit: weights, KV cache, its tokens and requests, as a vLLM server prints them.

    Args:
        max_model_len: Longest request; the model's longest context where not given.
        max_num_seqs: Sequences of one pass at most; those of --batch, else 1,024, where not given.
        block_size: Tokens of a cache block.

    Raises:
        InputError: a model or system that cannot be read, a split that no engine runs, no longest
            context where the model has none.

    >>> import infer_jax as ij
    >>> held = ij.memory("llama-3.1-8b", "h100_sxm", tp=1, max_model_len=8192)
    >>> bool(held.memory.fits), round(float(held.memory.token_bytes))
    (True, 131072)
    """
    import jax.numpy as jnp

    from infer_jax.compiling import once
    from infer_jax.estimators.serving.plan import deployment
    from infer_jax.footprint import MeanLengths, memory_with_requests
    from infer_jax.physics.memory.chip_memory import Ranks
    from infer_jax.specs import UNBOUNDED
    from infer_jax.verbs import inputs, memory_result as own

    setup = inputs.setup(config, hardware, quant, kv_dtype, None, set)
    arch = setup.model.architecture
    degrees = {"tp": tp, "pp": pp, "ep": ep, "dp": dp}
    split = verbs.LayoutOptions.of(layout, degrees, enable_expert_parallel, enable_dp_attention)
    plan = deployment(split.plan(arch))
    groups = float(plan.attention_dp)
    if max_num_batched_tokens is None and plan.chunk < UNBOUNDED:
        max_num_batched_tokens = float(plan.chunk)
    longest = float(arch.max_positions)
    if max_model_len is None and longest >= UNBOUNDED:
        raise refuse("max_model_len", "missing", "the tokens of the longest request")
    context = either(max_model_len, longest)
    if context > longest:
        allowed = f"at most {longest:.12g}{inputs.context_hint()}"
        raise refuse("max_model_len", context, allowed)
    if batch is not None:
        inputs.check_context(setup.model, inputs.workload(isl, osl, 0.0))
    settings, overheads = own.server_settings(setup.system)
    server = own.serving_of(setup.system)
    served = (server if engine is None else server.for_engine(engine)).chosen_engine
    group = either(batch, 1.0) / groups
    tokens = either(max_num_batched_tokens, float(served.budget))
    slots = min(float(settings.sequences), tokens) if batch is None else max(group, 1.0)
    slots = either(max_num_seqs, slots)
    if max_num_batched_tokens is None:  # of a server for these requests, as ``estimate`` has it
        prompt = isl + slots if batch is not None and float(served.whole) else slots
        tokens = max(tokens, prompt)
    asked = without_none(utilization=gpu_memory_utilization)
    asked |= {"context": context, "batched_tokens": tokens, "sequences": slots}
    settings = settings.with_(**asked, block=block_size)
    lengths = MeanLengths(*map(jnp.asarray, (isl, osl, float(served.held_output), 0.0)))
    ranks = Ranks(plan.tp, plan.attention_dp, plan.pp)
    parts = ranks, settings, overheads, lengths, jnp.asarray(group)
    held, cache = once(memory_with_requests, arch, setup.hardware, *parts)
    fixed, filled = float(held.budget - held.available), None
    if batch is not None:
        average = float(cache.average)
        fits = group <= slots and fixed + average <= float(held.budget)
        filled = own.Batch(batch, isl, osl, average, float(cache.most), fixed, fits)
    notes = [
        f"Per GPU of at most {slots:,.12g} sequences and {tokens:,.12g} tokens in a pass; the "
        "cache is of one group of tp x pp GPUs.",
        *[note for note in setup.notes if "USD/h" not in note],
    ]
    if group > slots:
        notes.insert(0, f"At most {slots * groups:,.12g} of {batch:,.12g} requests run at once.")
    return own.MemoryResult(setup, plan, settings, held, filled, str(split), notes)
