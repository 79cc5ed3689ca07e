"""Numbers of specs and terms of a time by the words of the field, for tables, pictures and pages.

JSON has their short names.
"""

import re

TERMS = {
    "front": "network and tokeniser",
    "admission": "wait until scheduled",
    "beside decodes": "decodes beside the prompt",
    "first wave": "first wave of the benchmark",
    "host": "host between passes",
}
NAMES = {
    "arch.width": "hidden size",
    "active": "cores of a die",
    "limit": "power",
    "count": "layers",
    "attention.head_width": "head size",
    "attention.value_width": "head size of values",
    "attention.kv_heads": "KV heads",
    "attention.query_heads": "query heads",
    "attention.kv_matrices": "matrices of keys and values",
    "attention.kv_rank": "rank of the latent cache",
    "attention.query_rank": "rank of queries",
    "attention.rope_width": "head size with rotary positions",
    "attention.nope_width": "head size without positions",
    "feedforward.width": "feedforward size",
    "feedforward.inward": "feedforward matrices inward",
    "feedforward.experts": "experts",
    "feedforward.active": "active experts",
    "feedforward.shared.width": "size of shared experts",
    "feedforward.shared.inward": "shared experts' matrices inward",
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
}


def name_of(path: str) -> str:
    """A number by the words of the field; one without words by its path, spelt out.

    >>> name_of("arch.blocks.*.attention.kv_heads"), name_of("hardware.chip.memory_bandwidth")
    ('KV heads', 'memory bandwidth')
    >>> name_of("plan.decode.tp"), name_of("plan.prefill_copies")
    ('tensor parallel, TP, decode pool', 'instances, prefill pool')
    >>> name_of("arch.blocks.1.count"), name_of("arch.blocks.*.attention.weights.bytes")
    ('layers, block 2', 'bytes of attention weights')
    """
    block = re.match(r"arch\.blocks\.(\d+)\.", path)
    if block is not None:  # one of them, as a design has it
        of = f", block {int(block[1]) + 1}" if int(block[1]) else ""
        return name_of(f"arch.blocks.*.{path[block.end() :]}") + of
    pool = re.match(r"plan\.(prefill|decode)[._](.+)", path)
    if pool is not None:
        return f"{name_of(f'plan.{pool[2]}')}, {pool[1]} pool"
    short = path.removeprefix("arch.blocks.*.").removeprefix("hardware.")
    spelt = short.removeprefix("arch.").replace(".", " ").replace("_", " ").replace("* ", "")
    if spelt.endswith(" bytes"):
        spelt = f"bytes of {spelt.removesuffix(' bytes')}"
    return NAMES.get(short, spelt)


def term(name: str) -> str:
    """A term of a time, in words.

    >>> term("front"), term("attention")
    ('network and tokeniser', 'attention')
    """
    return TERMS.get(name, name)
