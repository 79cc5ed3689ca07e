"""Which machine and which models did FlexGen measure?

A T4 with 16 GB, a host of 208 GB and a 1.5 TB SSD; OPT models (arXiv 2205.01068, Table 1).
Source: FlexGen (arXiv 2303.06865), Table 1 and Section 6.
"""

from typing import Any

import numpy as np

from infer_jax.catalog import load_system
from infer_jax.estimators.offloading.published import GIB
from infer_jax.specs import Architecture, Block, Dense, GroupedQuery, Hardware

SHAPES = {  # layers, width, heads; the hidden layer is 4 widths
    "opt-1.3b": (24, 2048, 32),
    "opt-2.7b": (32, 2560, 32),
    "opt-6.7b": (32, 4096, 32),
    "opt-13b": (40, 5120, 40),
    "opt-30b": (48, 7168, 56),
    "opt-66b": (64, 9216, 72),
    "opt-175b": (96, 12288, 96),
}


def t4(gpu: float = 15.0, cpu: float = 204.0, disk: float = 1500.0) -> Hardware:
    """The machine with so many GiB of each memory; those of the released configuration."""
    system = load_system("t4_host").hardware
    return system.replace(
        chip=system.chip.with_(memory=gpu * GIB),
        host=system.host.with_(memory=cpu * GIB, disk=disk * GIB),
    )


def opt(layers: Any, width: Any, hidden: Any, heads: Any) -> Architecture:
    """An OPT model in 16 bits: the matrices of its layers alone, which is all that counts here."""
    head = width / heads
    attention = GroupedQuery.of(query_heads=1, kv_heads=1, head_width=1, value_width=1).replace(
        query_heads=heads, kv_heads=heads, head_width=head, value_width=head
    )
    feedforward = Dense.of(width=1, inward=1).replace(width=hidden)
    block = Block.of(count=1, attention=attention, feedforward=feedforward).replace(count=layers)
    arch = Architecture.of(width=1, vocabulary=50272, tied=1, blocks=(block,))
    return arch.replace(width=width)


def opt_model(model: str) -> Architecture:
    """The OPT model of that name."""
    layers, width, heads = (np.asarray(x, np.float64) for x in SHAPES[model])
    return opt(layers, width, 4.0 * width, heads)
