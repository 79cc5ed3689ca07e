"""Names of the numbers of a model, a chip or a plan, in words."""

import re

NAMES = {
    "arch.width": "hidden size",
    "arch.vocabulary": "vocabulary",
    "arch.activations.bytes": "bytes of an activation",
    "arch.cache.bytes": "bytes of a KV cache element",
    "arch.embedding.bytes": "bytes of an embedding weight",
    "arch.head.bytes": "bytes of an output head weight",
    "count": "layers",
    "attention.head_width": "head size",
    "attention.value_width": "head size of values",
    "attention.kv_heads": "KV heads",
    "attention.query_heads": "query heads",
    "attention.kv_matrices": "matrices of keys and values",
    "attention.window": "attention window",
    "attention.kv_rank": "rank of the latent cache",
    "attention.query_rank": "rank of queries",
    "attention.rope_width": "head size with rotary positions",
    "attention.nope_width": "head size without positions",
    "attention.weights.bytes": "bytes of an attention weight",
    "feedforward.width": "feedforward size",
    "feedforward.inward": "feedforward matrices inward",
    "feedforward.weights.bytes": "bytes of a feedforward weight",
    "feedforward.experts": "experts",
    "feedforward.active": "active experts",
    "feedforward.shared.width": "size of shared experts",
    "feedforward.shared.inward": "shared experts' matrices inward",
    "feedforward.shared.weights.bytes": "bytes of a shared expert's weight",
    "chip.flops_16": "16-bit FLOP/s",
    "chip.flops_8": "8-bit FLOP/s",
    "chip.flops_4": "4-bit FLOP/s",
    "chip.memory": "memory",
    "chip.memory_bandwidth": "memory bandwidth",
    "network.domain": "GPUs of the fast domain",
    "network.domain_bandwidth": "fast domain's bandwidth",
    "network.network_bandwidth": "network bandwidth",
    "power": "power of a GPU",
    "price": "rent of a GPU",
    "plan.copies": "instances",
    "plan.tp": "tensor parallel, TP",
    "plan.pp": "pipeline stages, PP",
    "plan.ep": "expert parallel, EP",
    "plan.dp": "replicas, DP",
    "plan.attention_dp": "attention groups, DP",
    "workload.batch": "requests in flight",
    "workload.isl": "prompt tokens",
    "workload.osl": "output tokens",
    "workload.prefix": "cached prompt tokens",
}  # fmt: skip
BLOCK = re.compile(r"^arch\.blocks\.(\d+)\.")
POOL = re.compile(r"^plan\.(prefill|decode)[._](.+)$")
WITHIN = ("arch.blocks.*.", "hardware.")  # prefixes that are dropped from names


def named(path: str) -> str:
    """A number by the words of the field; one without words by its path, spelt out.

    >>> named("arch.blocks.*.attention.kv_heads"), named("hardware.chip.memory_bandwidth")
    ('KV heads', 'memory bandwidth')
    >>> named("hardware.host.disk_bandwidth")
    'host disk bandwidth'
    >>> named("plan.decode.tp"), named("plan.prefill_copies")
    ('tensor parallel, TP, decode pool', 'instances, prefill pool')
    >>> named("arch.blocks.0.count"), named("arch.blocks.1.count")
    ('layers', 'layers, block 2')
    """
    block = BLOCK.match(path)
    if block is not None:  # one of them, as a design has it
        of = f", block {int(block[1]) + 1}" if int(block[1]) else ""
        return named(BLOCK.sub("arch.blocks.*.", path)) + of
    pool = POOL.match(path)
    if pool is not None:  # of two
        return f"{named(f'plan.{pool[2]}')}, {pool[1]} pool"
    short = path
    for room in WITHIN:
        short = short.removeprefix(room)
    spelt = short.removeprefix("arch.").replace(".", " ").replace("_", " ").replace("* ", "")
    return NAMES.get(short) or spelt
